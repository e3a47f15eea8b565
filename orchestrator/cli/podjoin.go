package cli

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outbid-dev/outbid/orchestrator/identity"
	"github.com/outbid-dev/outbid/orchestrator/pods"
	"github.com/outbid-dev/outbid/orchestrator/server"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// podJoinWithin is how long the worker of a pod tries to join. Then it ends, and Kubernetes starts it again.
const podJoinWithin = 2 * time.Minute

// serviceAccountFlag adds the flag for the token of this pod.
func serviceAccountFlag(cmd *cobra.Command, to *string) {
	cmd.Flags().StringVar(to, "service-account-token", "", "`FILE` with this pod's projected ServiceAccount token, to join with")
	_ = cmd.MarkFlagFilename("service-account-token")
}

// readPodToken reads the token of this pod.
func readPodToken(file string) (string, error) {
	data, err := os.ReadFile(file) //nolint:gosec // the user names it
	if err != nil {
		return "", badInput("--service-account-token: %w", trimOp(err))
	}
	token := strings.TrimSpace(string(data))
	if !pods.IsToken(token) {
		return "", badInput("--service-account-token %s: want a file with a ServiceAccount token, as a projected volume has it", file)
	}
	return token, nil
}

// joinAsPod lets the worker of this pod join, with a new key that exists only in this process. It tries again while the
// server is away, and while the predecessor is alive. Each time it reads the token, which the kubelet renews.
func (wk *workerCommands) joinAsPod(ctx context.Context, file string, cfg *server.LoneWorkerConfig) error {
	if cfg.Credentials != "" || cfg.NATS.Keys != "" {
		return badInput("--service-account-token cannot be combined with --credentials or --keys: give only one of them")
	}
	c, err := wk.connect()
	if err != nil {
		return err
	}
	defer c.close()
	cfg.NATS.CA, cfg.JoinedWith = wk.caFile(), file
	join := func() (*identity.Credentials, error) {
		token, err := readPodToken(file)
		if err != nil {
			return nil, backoff.Permanent(err)
		}
		who, err := c.join(ctx, token, cfg.Worker.Name, cfg.NATS.URL)
		if code := status.Code(err); err != nil && code != codes.Unavailable && code != codes.AlreadyExists {
			return nil, backoff.Permanent(err)
		}
		return who, err
	}
	cfg.Joined, err = backoff.Retry(ctx, join, backoff.WithBackOff(backoff.NewExponentialBackOff()), backoff.WithMaxElapsedTime(podJoinWithin),
		backoff.WithNotify(func(err error, next time.Duration) {
			cfg.Logger.Warn("the worker cannot join; trying again", "error", err, "in", next.Round(time.Millisecond))
		}))
	return err
}

// join creates a key and has the server sign it.
func (c *connection) join(ctx context.Context, token, name, nats string) (*identity.Credentials, error) {
	key, err := identity.NewKey()
	if err != nil {
		return nil, err
	}
	resp, err := c.JoinWorker(ctx, &outbidv1.JoinWorkerRequest{Token: token, Node: name, PublicKey: key.Public()})
	if err != nil {
		return nil, err
	}
	who, err := identity.NewCredentials(key, resp.GetCredentials())
	if err != nil {
		return nil, fmt.Errorf("the answer of the server at %s is invalid: %w", c.target.url, err)
	}
	who.OrdersKey, who.Server, who.NATS = resp.GetOrdersKey(), c.target.url, cmp.Or(nats, reachable(resp.GetNats(), c.target.url))
	return who, nil
}
