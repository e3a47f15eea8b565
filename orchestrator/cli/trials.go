package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
	"github.com/outbid-dev/outbid/worker"
	"github.com/outbid-dev/outbid/worker/confine"
)

// trialOptions say what training code runs as and what it sees.
type trialOptions struct {
	python string
	// passEnv are patterns of names of environment variables that trials see.
	passEnv []string
	// user is who they run as: none, auto or a name; empty until it is decided.
	user   string
	groups []string
	dir    string
	// trust lets people whom the server lets in run code as the worker's user.
	trust bool
	// decided is set once it is known whether the server has tenants.
	decided bool
}

// flags are those of whatever runs trials.
func (o *trialOptions) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.python, "python", "python3", "Python interpreter for functions that name none")
	f.StringSliceVar(&o.passEnv, "pass-env", nil, "`NAMES` of environment variables that trials see beside those that they "+
		"need, or patterns such as 'WANDB_*'; may be given several times")
	f.StringVar(&o.user, "trial-user", "", "`USER` that trials run as: auto for one of its own for each, none for the "+
		"worker's own, or a name (default: auto if the server asks for tokens, else none)")
	f.StringSliceVar(&o.groups, "trial-group", nil, "`GROUPS` that trials of another user belong to, such as video,render")
	f.StringVar(&o.dir, "trial-dir", "", "`DIR` to make the directory of their files in (default: /var/tmp)")
	f.BoolVar(&o.trust, "trust-trials", false, "run what people with tokens submit as the worker's own user: they can read "+
		"all that it can, its secrets too")
	_ = cmd.MarkFlagDirname("trial-dir")
}

// check finds what is wrong whatever the server is like.
func (o *trialOptions) check() error {
	if err := worker.CheckPassEnv(o.passEnv); err != nil {
		return badInput("--pass-env %w", err)
	}
	switch o.user {
	case "", confine.None:
		for name, given := range map[string]bool{"--trial-group": len(o.groups) > 0, "--trial-dir": o.dir != ""} {
			if given && o.user == confine.None {
				return badInput("%s is for trials that run as another user: leave out --trial-user none", name)
			}
		}
		return nil
	}
	if err := confine.CanSwitch(); err != nil {
		return badInput("--trial-user %s: %w", o.user, err)
	}
	return nil
}

// decide says who trials run as, once it is known whether the server has tenants. It refuses to run their code as the
// worker's own user unless it is told to.
func (o *trialOptions) decide(tenants bool) error {
	o.decided = true
	switch {
	case o.user != "" && o.user != confine.None:
		return nil
	case !tenants || o.trust:
		o.user = confine.None
		return nil
	case o.user == confine.None || confine.CanSwitch() != nil:
		return badInput("%w", worker.ErrTenants)
	}
	o.user = confine.Auto
	return nil
}

// learn asks the server whether it has tenants, if that matters and is not known, and decides.
func (o *trialOptions) learn(ctx context.Context, bus worker.Bus, node string, log *slog.Logger) error {
	switch {
	case o.decided:
		return nil
	case o.trust || o.user != "" && o.user != confine.None:
		return o.decide(true)
	}
	orders, err := askOrders(ctx, bus, node, log)
	if err != nil {
		return err
	}
	return o.decide(orders.GetTenants())
}

// askOrders asks the orchestrator for orders, which say what every worker must know of the server. It waits for an
// orchestrator as long as it takes.
func askOrders(ctx context.Context, bus worker.Bus, node string, log *slog.Logger) (*outbidv1.Orders, error) {
	found := make(chan *outbidv1.Orders, 1)
	stop, err := bus.Subscribe(node, func(o *outbidv1.Orders) {
		select {
		case found <- o:
		default:
		}
	})
	if err != nil {
		return nil, err
	}
	defer func() { _ = stop() }()
	ask := &outbidv1.Uplink{Node: node, Boot: "asks-" + rand.Text()}
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for tries := 1; ; tries++ {
		if err := bus.Publish(ask); err != nil {
			log.Debug("could not reach the orchestrator; trying again", "error", err)
		}
		select {
		case orders := <-found:
			return orders, nil
		case <-again.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if tries == 5 {
			log.Warn("no orchestrator answers on NATS yet; waiting for one ('outbid serve')")
		}
	}
}

// guard refuses secrets that trials could read although they run as another user.
func (o *trialOptions) guard(secrets []string) error {
	if o.user == confine.None {
		return nil
	}
	var files []string
	for _, path := range secrets {
		if inside, err := os.ReadDir(path); err == nil && path != "" {
			for _, e := range inside {
				files = append(files, filepath.Join(path, e.Name()))
			}
		} else if path != "" {
			files = append(files, path)
		}
	}
	for _, file := range files {
		open, err := confine.Exposed(file)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return badInput("%s: %w", file, err)
		}
		if open {
			return badInput("%s can be read by every user of this machine, and so by trials: chmod 600 %s", file, file)
		}
	}
	return nil
}
