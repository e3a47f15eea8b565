// Package load simulates many workers in one process, to measure how many a server carries. The workers speak the real
// protocol over NATS, each with its own connection, keys and signatures, but a stub takes the place of training: it
// reports at a given rate.
package load

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/identity"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Config configures the simulated workers.
type Config struct {
	// NATS is the URL of the server's NATS, or several separated by commas, and TLS its settings, or nil.
	NATS string
	TLS  *tls.Config
	// Keys is the directory of the cluster's keys. The workers register with them, and their credentials are kept there
	// for later runs.
	Keys string
	// Name starts the names of the nodes; a number follows.
	Name string
	// Workers is how many workers there are, Devices how many devices they have together, and Type the devices' type.
	Workers, Devices int
	Type             string
	// Reports is how many reports all trials together send a second.
	Reports float64
	// Steps is after how many steps a trial finishes whose tuner sets no step; 0 means never.
	Steps int64
	// Verify makes workers verify the signatures of orders. Otherwise the processor time is left to a server on this
	// machine.
	Verify bool
	// Report is called every Every with a sample of the time since the last call. It may be nil.
	Report func(Sample)
	Every  time.Duration
	// Version is the version of this build.
	Version string
	// Logger receives warnings; nil discards them.
	Logger *slog.Logger
}

// Check returns an error if a setting is invalid.
func (c *Config) Check() error {
	switch {
	case c.Keys == "":
		return errors.New("keys: missing: want the directory of the cluster's keys, DATA/keys on the server's machine")
	case c.Workers < 1:
		return fmt.Errorf("workers: must be at least 1, got %d", c.Workers)
	case c.Devices < c.Workers:
		return fmt.Errorf("devices: must be at least 1 for each of %d workers, got %d", c.Workers, c.Devices)
	case c.Devices > maxDevices*c.Workers:
		return fmt.Errorf("devices: must be at most %d for each of %d workers, got %d", maxDevices, c.Workers, c.Devices)
	case c.Reports < 0:
		return fmt.Errorf("reports-per-second: must be at least 0, got %g", c.Reports)
	case c.Steps < 0:
		return fmt.Errorf("steps: must be at least 0, got %d", c.Steps)
	}
	return bus.CheckToken("name", c.Name)
}

// maxDevices is how many devices a node may have.
const maxDevices = 4096

// Load is a number of simulated workers.
type Load struct {
	cfg     Config
	keys    *identity.Keys
	workers []*worker
	running *ring
	meter   *meter
	log     *slog.Logger
}

// connecting is how many workers connect at a time, and registering how many entries are written at a time. mostTries is
// how often a worker tries to connect.
const (
	connecting  = 16
	registering = 64
	mostTries   = 30
)

// Run registers and connects the workers, and runs them until ctx ends. Then the nodes leave.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.Check(); err != nil {
		return err
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	keys, err := identity.OpenKeys(cfg.Keys)
	if err != nil {
		return fmt.Errorf("keys %s: %w", cfg.Keys, err)
	}
	l := &Load{cfg: cfg, keys: keys, running: new(ring), meter: newMeter(), log: cfg.Logger}
	if err := l.register(ctx); err != nil {
		return err
	}
	var wg sync.WaitGroup
	defer l.leave()
	defer wg.Wait()
	life, stop := context.WithCancel(ctx)
	defer stop()
	wg.Go(func() { l.visit(life) })
	wg.Go(func() { l.pace(life) })
	wg.Go(func() { l.observe(life) })
	if err := l.connect(ctx); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// each calls f for every number below n, several at a time, until one fails or ctx ends.
func each(ctx context.Context, n, together int, f func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	next := make(chan int)
	for range min(together, n) {
		wg.Go(func() {
			for i := range next {
				if err := f(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := 0; i < n && ctx.Err() == nil; i++ {
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	wg.Wait()
	return context.Cause(ctx)
}

// register makes the workers members of the cluster.
func (l *Load) register(ctx context.Context) error {
	admin, err := l.keys.Orchestrator()
	if err != nil {
		return err
	}
	nc, err := bus.Connect(ctx, bus.ConnConfig{URL: l.cfg.NATS, User: admin, TLS: l.cfg.TLS, Name: "load", Logger: l.log})
	if err != nil {
		return err
	}
	defer nc.Close()
	list, err := bus.OpenWorkers(ctx, nc, bus.WorkersConfig{Logger: l.log})
	if err != nil {
		return err
	}
	l.workers = make([]*worker, l.cfg.Workers)
	err = each(ctx, l.cfg.Workers, registering, func(ctx context.Context, i int) error {
		node := fmt.Sprintf("%s-%05d", l.cfg.Name, i)
		who, err := l.credentials(node, time.Now())
		if err == nil && list.Key(node) != who.Public() {
			err = list.Add(ctx, node, who.Public(), time.Now())
		}
		if err == nil {
			l.workers[i], err = l.newWorker(who, l.info(node, i))
		}
		return err
	})
	return errors.Join(err, list.Close())
}

// credentials returns the credentials of a node's worker from an earlier run, or new ones.
func (l *Load) credentials(node string, now time.Time) (*identity.Credentials, error) {
	dir := filepath.Join(l.keys.Dir(), "workers", node)
	who, err := identity.ReadCredentials(dir)
	if err == nil && who.Node == node && who.OrdersKey == l.keys.Orders().Public() {
		token, err := l.keys.IssueWorker(node, who.Public(), now)
		if err != nil {
			return nil, err
		}
		return who, who.Renew(token)
	}
	if who, err = l.keys.Worker(node, now); err != nil {
		return nil, err
	}
	return who, who.Write(dir, nil)
}

// info describes a node, which has its share of the devices.
func (l *Load) info(node string, i int) *outbidv1.NodeInfo {
	devices := l.cfg.Devices / l.cfg.Workers
	if i < l.cfg.Devices%l.cfg.Workers {
		devices++
	}
	info := &outbidv1.NodeInfo{
		Name: node, Boot: rand.Text(), Cpus: float64(8 * devices), MemoryBytes: int64(devices) << 36, Hostname: node, Version: l.cfg.Version,
		ReportsShards: true,
	}
	for k := range devices {
		info.Devices = append(info.Devices, &outbidv1.Device{Index: int32(k), Type: l.cfg.Type})
	}
	return info
}

// newWorker makes a worker, which is not connected yet.
func (l *Load) newWorker(who *identity.Credentials, info *outbidv1.NodeInfo) (*worker, error) {
	orders, err := who.Orders()
	if err != nil {
		return nil, err
	}
	var check bus.Check
	if l.cfg.Verify {
		check = orders.Message
	}
	return &worker{
		who: who, info: info, base: info.GetBoot(), boot: info.GetBoot(), check: check, steps: l.cfg.Steps, first: 1, introduce: true, beat: beatEvery,
		forks: map[uint64]*fork{}, running: l.running, meter: l.meter,
	}, nil
}

// connect connects the workers.
func (l *Load) connect(ctx context.Context) error {
	err := each(ctx, len(l.workers), connecting, func(ctx context.Context, i int) error {
		again := time.NewTicker(time.Second)
		defer again.Stop()
		for tries := 1; ; tries++ {
			err := l.connectWorker(ctx, l.workers[i])
			if err == nil {
				return nil
			}
			if tries == mostTries {
				return fmt.Errorf("worker %d of %d: %w", i+1, len(l.workers), err)
			}
			select {
			case <-again.C: // NATS is busy with the others, perhaps
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	if ctx.Err() != nil {
		return nil //nolint:nilerr // stopped by the user
	}
	return err
}

func (l *Load) connectWorker(ctx context.Context, w *worker) error {
	nc, err := bus.Connect(ctx, bus.ConnConfig{URL: l.cfg.NATS, User: w.who, TLS: l.cfg.TLS, Name: "worker " + w.info.GetName(), Logger: l.log})
	if err != nil {
		return err
	}
	if _, err := bus.SubscribeOrders(nc, w.info.GetName(), w.check, w.take); err != nil {
		nc.Close()
		return err
	}
	w.start(nc)
	return nil
}

// leave ends the workers.
func (l *Load) leave() {
	var conns []*nats.Conn
	for _, w := range l.workers {
		if nc := w.leave(); nc != nil {
			conns = append(conns, nc)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	for _, nc := range conns {
		if nc.IsConnected() {
			_ = nc.FlushWithContext(ctx)
		}
		nc.Close()
	}
}

// leaveTimeout limits how long the workers take to leave together.
const leaveTimeout = 10 * time.Second

// visitEvery is how often each worker is visited, in visits that are spread over that time.
const (
	visitEvery = time.Second
	visits     = 100
)

// visit lets each worker do what is due without a message: heartbeats, repetitions, and the end of its lease.
func (l *Load) visit(ctx context.Context) {
	tick := time.NewTicker(visitEvery / visits)
	defer tick.Stop()
	for part := 0; ; part = (part + 1) % visits {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			for i := part; i < len(l.workers); i += visits {
				l.workers[i].visit(now)
			}
		}
	}
}

// paceEvery is how often reports are sent, and paceDebt the most that is made up for after a delay.
const (
	paceEvery = 2 * time.Millisecond
	paceDebt  = 50 * time.Millisecond
)

// pace lets the running trials report in turn, at the configured rate.
func (l *Load) pace(ctx context.Context) {
	if l.cfg.Reports == 0 {
		return
	}
	tick := time.NewTicker(paceEvery)
	defer tick.Stop()
	last, due := time.Now(), 0.0
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := time.Now()
		due += l.cfg.Reports * min(now.Sub(last), paceDebt).Seconds()
		for last = now; due >= 1; due-- {
			f := l.running.next()
			if f == nil {
				due = 0
				break
			}
			f.worker.report(f, time.Now())
		}
	}
}

// observe reports samples until ctx ends, and then the last one.
func (l *Load) observe(ctx context.Context) {
	if l.cfg.Report == nil {
		return
	}
	tick := time.NewTicker(max(l.cfg.Every, time.Millisecond))
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
		now := time.Now()
		s := l.meter.take(now)
		for _, w := range l.workers {
			w.count(&s, now)
		}
		l.cfg.Report(s)
	}
}
