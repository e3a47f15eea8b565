package cli

import (
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func (wk *workerCommands) workerTokenCommand() *cobra.Command {
	var name string
	var life time.Duration
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Create a token for one worker to join",
		Long: `Token creates and prints a token with which one worker of that name may join the cluster, once, until it expires.
Copy it to the worker's machine, for 'outbid worker join'. It requires the role admin or operator.`,
		Annotations: map[string]string{globalFlags: globalServer},
		Example:     "  outbid worker token --name gpu-7 > gpu-7.token",
		Args:        exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if name == "" {
				return badInput("--name is missing: name the worker that may join with the token")
			}
			c, err := wk.connect()
			if err != nil {
				return err
			}
			defer c.close()
			resp, err := c.NewWorkerToken(cmd.Context(), &outbidv1.NewWorkerTokenRequest{Node: name, Life: durationpb.New(life)})
			if err != nil {
				return err
			}
			wk.printf("%s\n", resp.GetToken())
			wk.notef("valid for worker %s, once, until %s: outbid worker join --server URL --join-token FILE", name,
				resp.GetExpires().AsTime().Local().Format(time.DateTime))
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&name, "name", "", "name of the worker's node")
	f.DurationVar(&life, "expires", time.Hour, "how long the token is valid")
	return cmd
}

func (wk *workerCommands) workerRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "remove NODE",
		Short: "Remove a worker from the cluster",
		Long: `Remove removes a worker from the cluster at once. The server stops sending it orders and ignores its messages, and the
NATS in the server's process disconnects it. Its trials continue elsewhere once its leases have expired. A separate
NATS accepts its connections until its credentials expire, but no client reads its subjects. It requires an admin's
token of the API.`,
		Annotations: map[string]string{globalFlags: globalServer},
		Example:     "  outbid worker remove gpu-7",
		Args:        exactArgs("NODE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := wk.connect()
			if err != nil {
				return err
			}
			defer c.close()
			if _, err := c.RemoveWorker(cmd.Context(), &outbidv1.RemoveWorkerRequest{Node: args[0]}); err != nil {
				return err
			}
			wk.printf("%s is removed\n", args[0])
			return nil
		},
	}
}

// joinOptions has the flags of join.
type joinOptions struct {
	token, name, dir, nats string
	// podToken is the file with the token of this pod.
	podToken string
}

func (wk *workerCommands) workerJoinCommand() *cobra.Command {
	var o joinOptions
	cmd := &cobra.Command{
		Use:   "join",
		Short: "Join this machine's worker to a cluster",
		Long: `Join creates a key on this machine, sends its public part and the token of 'outbid worker token' to the server, and
writes the directory for 'outbid worker --credentials'. The key never leaves the machine. To join again under the same
name, use another token; this revokes the previous credentials.

In a Kubernetes pod, --service-account-token joins with the pod's projected ServiceAccount token instead, if the server
admits it (serve --service-accounts). The name is then the pod's, or that of its Kubernetes node with --name. It may
join as often as it likes, so 'outbid worker --service-account-token' joins at every start.`,
		Annotations: map[string]string{globalFlags: globalServer},
		Example: `  outbid worker join --server https://tuner.example.org:7700 --ca ca.pem --join-token gpu-7.token --credentials /etc/outbid/worker
  outbid worker --credentials /etc/outbid/worker`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error { return wk.join(cmd, o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.token, "join-token", "", "`FILE` with the token; - for standard input")
	serviceAccountFlag(cmd, &o.podToken)
	f.StringVar(&o.name, "name", "", "name of this node (default: the token's)")
	f.StringVar(&o.dir, "credentials", filepath.Join(defaultData, "worker"), "`DIR` to write to")
	f.StringVar(&o.nats, "nats", "", "`URL` of NATS for this machine (default: from the server)")
	_ = cmd.MarkFlagFilename("join-token")
	_ = cmd.MarkFlagDirname("credentials")
	return cmd
}

// join creates a key, has the server sign it, and writes the credentials.
func (wk *workerCommands) join(cmd *cobra.Command, o joinOptions) error {
	token, err := wk.readToken(o)
	if err != nil {
		return err
	}
	var ca []byte
	if file := wk.caFile(); file != "" {
		if ca, err = os.ReadFile(file); err != nil {
			return badInput("--ca: %w", trimOp(err))
		}
	}
	// Create the directory first, because joining uses up the token.
	if err := os.MkdirAll(o.dir, 0o700); err != nil {
		return badInput("--credentials: %w", trimOp(err))
	}
	c, err := wk.connect()
	if err != nil {
		return err
	}
	defer c.close()
	who, err := c.join(cmd.Context(), token, o.name, o.nats)
	if err != nil {
		return err
	}
	if err := who.Write(o.dir, ca); err != nil {
		return err
	}
	wk.printf("worker %s has joined; NATS is at %s\n", who.Node, bus.RedactURLs(who.NATS))
	wk.printf("next: outbid worker --credentials %s\n", o.dir)
	return nil
}

// readToken reads the token of a worker or of this pod.
func (wk *workerCommands) readToken(o joinOptions) (string, error) {
	if o.podToken == "" {
		return wk.readJoinToken(o.token)
	}
	if o.token != "" {
		return "", badInput("--join-token and --service-account-token: give only one of them")
	}
	return readPodToken(o.podToken)
}

// readJoinToken reads a token from its file.
func (wk *workerCommands) readJoinToken(file string) (string, error) {
	if file == "" {
		return "", badInput("--join-token is missing: give a file with the output of 'outbid worker token --name NAME' on the server")
	}
	var data []byte
	var err error
	if file == "-" {
		data, err = io.ReadAll(io.LimitReader(wk.stdin, 1<<10))
	} else {
		data, err = os.ReadFile(file)
	}
	if err != nil {
		return "", badInput("--join-token: %w", trimOp(err))
	}
	token := strings.TrimSpace(string(data))
	if token == "" || len(strings.Fields(token)) > 1 {
		return "", badInput("--join-token %s: want a file with the token from 'outbid worker token'", file)
	}
	return token, nil
}

// reachable replaces loopback and wildcard hosts in URLs by the host through which the server was reached.
func reachable(list, server string) string {
	at, err := url.Parse(server)
	if err != nil {
		return list
	}
	parts := strings.Split(list, ",")
	for i, p := range parts {
		u, err := url.Parse(p)
		if err != nil {
			continue
		}
		if ip := net.ParseIP(u.Hostname()); ip != nil && (ip.IsUnspecified() || ip.IsLoopback()) {
			u.Host = net.JoinHostPort(at.Hostname(), u.Port())
			parts[i] = u.String()
		}
	}
	return strings.Join(parts, ",")
}
