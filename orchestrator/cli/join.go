package cli

import (
	"fmt"
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
	"github.com/outbid-dev/outbid/orchestrator/identity"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func (a *app) workerTokenCommand() *cobra.Command {
	var name string
	var life time.Duration
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Make a token with which one worker may join",
		Long: `Token makes a token with which one worker of that name may join the cluster, once, until it runs out, and prints
it. Bring it to the worker's machine, for 'outbid worker join'. It takes an admin's token of the API.`,
		Example: "  outbid worker token --name gpu-7 > gpu-7.token",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if name == "" {
				return badInput("--name is missing: say which worker may join with the token")
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			defer c.close()
			resp, err := c.NewWorkerToken(cmd.Context(), &outbidv1.NewWorkerTokenRequest{Node: name, Life: durationpb.New(life)})
			if err != nil {
				return err
			}
			a.printf("%s\n", resp.GetToken())
			a.notef("good for worker %s, once, until %s: outbid worker join --server URL --join-token FILE", name,
				resp.GetExpires().AsTime().Local().Format(time.DateTime))
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&name, "name", "", "name of the worker's node")
	f.DurationVar(&life, "expires", time.Hour, "how long the token is good for")
	return cmd
}

func (a *app) workerRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "remove NODE",
		Short: "Take a worker out of the cluster",
		Long: `Remove takes a worker out of the cluster at once: it gets no orders any more, nothing that it says is believed,
and the NATS of the server's own process cuts it off. Its trials go on elsewhere once its lease has run out. Another
NATS lets it connect until its credentials run out, to subjects of its own that nobody listens to. It takes an admin's
token of the API.`,
		Example: "  outbid worker remove gpu-7",
		Args:    exactly("NODE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			defer c.close()
			if _, err := c.RemoveWorker(cmd.Context(), &outbidv1.RemoveWorkerRequest{Node: args[0]}); err != nil {
				return err
			}
			a.printf("%s is out\n", args[0])
			return nil
		},
	}
}

// joinOptions say how a worker joins.
type joinOptions struct {
	token, name, dir, nats string
}

func (a *app) workerJoinCommand() *cobra.Command {
	var o joinOptions
	cmd := &cobra.Command{
		Use:   "join",
		Short: "Make this machine's worker a member of a cluster",
		Long: `Join makes a key on this machine, shows the server its public half and the token that 'outbid worker token' made,
and writes what 'outbid worker --credentials' needs. The key never leaves the machine. Joining again under the same name
takes another token, and what was given before is worth nothing then.`,
		Example: `  outbid worker join --server https://tuner.example.org:7700 --ca ca.pem --join-token gpu-7.token --credentials /etc/outbid/worker
  outbid worker --credentials /etc/outbid/worker`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.join(cmd, o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.token, "join-token", "", "`FILE` with the token; - for standard input")
	f.StringVar(&o.name, "name", "", "name of this node (default: the one that the token is for)")
	f.StringVar(&o.dir, "credentials", filepath.Join(defaultData, "worker"), "`DIR` to write to")
	f.StringVar(&o.nats, "nats", "", "`URL` of NATS as this machine reaches it (default: what the server says)")
	_ = cmd.MarkFlagFilename("join-token")
	_ = cmd.MarkFlagDirname("credentials")
	return cmd
}

// join makes a key, has the server sign it, and writes the credentials.
func (a *app) join(cmd *cobra.Command, o joinOptions) error {
	token, err := a.readJoinToken(o.token)
	if err != nil {
		return err
	}
	var ca []byte
	if file := a.caFile(); file != "" {
		if ca, err = os.ReadFile(file); err != nil {
			return badInput("--ca: %w", trimOp(err))
		}
	}
	// The directory is tried before the token is used up.
	if err := os.MkdirAll(o.dir, 0o700); err != nil {
		return badInput("--credentials: %w", trimOp(err))
	}
	c, err := a.connect()
	if err != nil {
		return err
	}
	defer c.close()
	key, err := identity.NewKey()
	if err != nil {
		return err
	}
	resp, err := c.JoinWorker(cmd.Context(), &outbidv1.JoinWorkerRequest{Token: token, Node: o.name, PublicKey: key.Public()})
	if err != nil {
		return err
	}
	who, err := identity.NewCredentials(key, resp.GetCredentials())
	if err != nil {
		return fmt.Errorf("what the server at %s answered is of no use: %w", c.target.url, err)
	}
	who.OrdersKey, who.Server, who.NATS = resp.GetOrdersKey(), c.target.url, o.nats
	if who.NATS == "" {
		who.NATS = reachable(resp.GetNats(), c.target.url)
	}
	if err := who.Write(o.dir, ca); err != nil {
		return err
	}
	a.printf("worker %s has joined; NATS is at %s\n", who.Node, bus.RedactURLs(who.NATS))
	a.printf("next: outbid worker --credentials %s\n", o.dir)
	return nil
}

// readJoinToken reads a token from its file.
func (a *app) readJoinToken(file string) (string, error) {
	if file == "" {
		return "", badInput("--join-token is missing: name the file with what 'outbid worker token --name NAME' printed on the server")
	}
	var data []byte
	var err error
	if file == "-" {
		data, err = io.ReadAll(io.LimitReader(a.stdin, 1<<10))
	} else {
		data, err = os.ReadFile(file)
	}
	if err != nil {
		return "", badInput("--join-token: %w", trimOp(err))
	}
	token := strings.TrimSpace(string(data))
	if token == "" || len(strings.Fields(token)) > 1 {
		return "", badInput("--join-token %s: want the one word that 'outbid worker token' printed", file)
	}
	return token, nil
}

// reachable replaces an address in URLs that only says "this machine" by the host that the server was reached at.
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
