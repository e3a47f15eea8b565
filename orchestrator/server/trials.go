package server

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
	"github.com/outbid-dev/outbid/worker"
	"github.com/outbid-dev/outbid/worker/confine"
)

// TrialConfig configures the user and environment of training code.
type TrialConfig struct {
	// Python is the interpreter for functions that do not name one; by default python3.
	Python string
	// PassEnv are patterns for the names of environment variables that trials see in addition to those that they need.
	PassEnv []string
	// User is the user of trials: "auto" for a separate user for each, "none" for the worker's user, or a name. The
	// default is auto if the server requires tokens, else none.
	User string
	// Groups are the groups of trials that run as another user.
	Groups []string
	// Dir is where the directory of such trials' files is created; by default /var/tmp.
	Dir string
	// CheckpointBytes is the maximum size of a checkpoint in bytes, by the length of its files; 0 means
	// program.DefaultCheckpointBytes.
	CheckpointBytes int64
	// ScratchBytes is the maximum size of one trial's files on the disk, and DiskMargin the bytes that must stay free
	// there. 0 means worker.DefaultScratchBytes and worker.DefaultDiskMargin, a negative number no limit.
	ScratchBytes, DiskMargin int64
	// NoDiskHold never slows down trials whose writes make others on the node wait for the disk.
	NoDiskHold bool
	// Processes is the maximum number of processes and threads of a trial, and Files that of open files in each
	// process. 0 means confine.DefaultProcesses and confine.DefaultFiles, a negative number no limit.
	Processes, Files int64
	// Network is "host", or "none" for loopback only; by default host.
	Network string
	// Trust lets users of a server with tokens run code as the worker's user: they can read everything that the worker
	// can.
	Trust bool
	// decided is set once it is known whether the server has tenants.
	decided bool
}

// leastTrialLimit is what an interpreter needs at least of processes, threads and open files.
const leastTrialLimit = 64

// check checks everything that does not depend on the server.
func (o *TrialConfig) check() error {
	if err := worker.CheckPassEnv(o.PassEnv); err != nil {
		return badField("Trials.PassEnv", "%w", err)
	}
	if o.CheckpointBytes < 0 {
		return badField("Trials.CheckpointBytes", "%d: want at least 1 byte, or 0 for the default", o.CheckpointBytes)
	}
	for name, n := range map[string]int64{"Trials.Processes": o.Processes, "Trials.Files": o.Files} {
		if n > 0 && n < leastTrialLimit {
			return badField(name, "%d: want at least %d, a negative number for no bound, or 0 for the default", n, leastTrialLimit)
		}
	}
	switch o.Network {
	case "", confine.NetworkHost, confine.NetworkNone:
	default:
		return badValue("Trials.Network", o.Network, "want %s or %s", confine.NetworkHost, confine.NetworkNone)
	}
	switch o.User {
	case "", confine.None:
		for name, given := range map[string]bool{"Trials.Groups": len(o.Groups) > 0, "Trials.Dir": o.Dir != ""} {
			if given && o.User == confine.None {
				return badField(name, "applies only to trials that run as another user, but Trials.User is none")
			}
		}
		return nil
	}
	if err := confine.CanSwitch(); err != nil {
		return badValue("Trials.User", o.User, "%w", err)
	}
	return nil
}

// decide sets the user of trials once it is known whether the server has tenants. It refuses to run tenants' code as
// the worker's user unless Trust is set.
func (o *TrialConfig) decide(tenants bool) error {
	o.decided = true
	switch {
	case o.User != "" && o.User != confine.None:
		return nil
	case !tenants || o.Trust:
		o.User = confine.None
		return nil
	case o.User == confine.None || confine.CanSwitch() != nil:
		return badField("Trials.User", "%w", worker.ErrTenants)
	}
	o.User = confine.Auto
	return nil
}

// learn asks the server whether it has tenants, if necessary, and decides.
func (o *TrialConfig) learn(ctx context.Context, link worker.Bus, node string, log *slog.Logger) error {
	switch {
	case o.decided:
		return nil
	case o.Trust || o.User != "" && o.User != confine.None:
		return o.decide(true)
	}
	orders, err := askOrders(ctx, link, node, log)
	if err != nil {
		return err
	}
	return o.decide(orders.GetTenants())
}

// askOrders asks the server for orders, which contain what every worker must know about the server. It waits for a
// server without a limit.
func askOrders(ctx context.Context, link worker.Bus, node string, log *slog.Logger) (*outbidv1.Orders, error) {
	found := make(chan *outbidv1.Orders, 1)
	stop, err := link.Subscribe(node, func(o *outbidv1.Orders) {
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
		err := link.Publish(ask)
		switch {
		case err == nil:
		case tries == 1 && !errors.Is(err, bus.ErrNotConnected):
			log.Warn("an uplink to the server could not be sent; retrying", "error", err)
		default:
			log.Debug("could not reach the server; retrying", "error", err)
		}
		select {
		case orders := <-found:
			return orders, nil
		case <-again.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if tries == 5 {
			log.Warn("no server answers on NATS yet; waiting for one ('outbid serve')")
		}
	}
}

// checkSecrets rejects secrets that trials could read although they run as another user.
func (o *TrialConfig) checkSecrets(secrets []string) error {
	if o.User == confine.None {
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
			return badValue("Trials.User", o.User, "%w", err)
		}
		if open {
			return badValue("Trials.User", o.User, "%s can be read by every user of this machine, and so by trials: chmod 600 %s", file,
				file)
		}
	}
	return nil
}
