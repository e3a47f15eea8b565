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

// TrialConfig says what training code runs as and what it sees.
type TrialConfig struct {
	// Python is the interpreter for functions that name none; by default python3.
	Python string
	// PassEnv are patterns of names of environment variables that trials see beside those that they need.
	PassEnv []string
	// User is who trials run as: "auto" for one of its own for each, "none" for the worker's own, or a name. By default
	// that is auto if the server asks for tokens, else none.
	User string
	// Groups are those that trials of another user belong to.
	Groups []string
	// Dir is where the directory of the files of such trials is made; by default /var/tmp.
	Dir string
	// CheckpointBytes is how many bytes one checkpoint may have, by the length of its files; 0 means
	// program.DefaultCheckpointBytes.
	CheckpointBytes int64
	// ScratchBytes is how many bytes the files of one trial may take on the disk, and DiskMargin how many stay free there; 0 means
	// worker.DefaultScratchBytes and worker.DefaultDiskMargin, a negative number no bound.
	ScratchBytes, DiskMargin int64
	// NoDiskHold never holds up trials that write so much that others on the node wait for the disk.
	NoDiskHold bool
	// Processes is how many processes and threads one trial may have, and Files how many files each of its processes may have open; 0 means
	// confine.DefaultProcesses and confine.DefaultFiles, a negative number no bound.
	Processes, Files int64
	// Network is "host" or "none", for nothing but a loopback; by default host.
	Network string
	// Trust lets people whom the server lets in run code as the worker's user: they can read all that it can.
	Trust bool
	// decided is set once it is known whether the server has tenants.
	decided bool
}

// leastTrialLimit is what an interpreter takes of processes, threads and open files at least.
const leastTrialLimit = 64

// check finds what is wrong whatever the server is like.
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
				return badField(name, "it is for trials that run as another user, not as none")
			}
		}
		return nil
	}
	if err := confine.CanSwitch(); err != nil {
		return badValue("Trials.User", o.User, "%w", err)
	}
	return nil
}

// decide says who trials run as, once it is known whether the server has tenants. It refuses to run their code as the
// worker's own user unless it is told to.
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

// learn asks the server whether it has tenants, if that matters and is not known, and decides.
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

// askOrders asks the orchestrator for orders, which say what every worker must know of the server. It waits for an
// orchestrator as long as it takes.
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
			log.Warn("an uplink to the orchestrator could not be sent; trying again", "error", err)
		default:
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

// checkSecrets refuses secrets that trials could read although they run as another user.
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
