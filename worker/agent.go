package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/identity"
	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/sanitize"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
	"github.com/outbid-dev/outbid/worker/confine"
	"github.com/outbid-dev/outbid/worker/health"
	"github.com/outbid-dev/outbid/worker/predecessor"
	"github.com/outbid-dev/outbid/worker/process"
	"github.com/outbid-dev/outbid/worker/session"
	"github.com/outbid-dev/outbid/worker/trialfile"
)

// Why forks are ended without an order.
var (
	errExpired  = errors.New("no word from the orchestrator for the time of the lease")
	errUnknown  = errors.New("the orchestrator does not know this worker any more")
	errStopping = errors.New("the worker is stopping")
	errUnwanted = errors.New("ended by order")
	errRival    = errors.New("another worker runs under the name")
)

// ErrTenants says that the worker does not run what the server would send.
var ErrTenants = errors.New("this server takes sweeps from several people, and trials here would run as the worker's own " +
	"user: they could read its secrets and each other's files. Run the worker as root (or with CAP_SETUID, CAP_SETGID, " +
	"CAP_CHOWN and CAP_KILL), so that each gets a user of its own, or give --trust-trials if you trust all of them")

// agent is the loop. What is not said to be shared belongs to its goroutine.
type agent struct {
	cfg Config
	// train starts training code; tests replace it.
	train func(ctx context.Context, f *fork) (training, error)
	out   *outbox // shared
	// seal opens the secrets of trials; it lives as long as this process. nil for none.
	seal  *identity.SealKey
	forks map[uint64]*fork
	// averages end the averages that it makes, by name.
	averages map[string]context.CancelFunc
	// behind is the control group in which it makes them; "" for none.
	behind string
	run    sync.WaitGroup
	// disk looks after the disk; shared.
	disk  *diskWatch
	boot  string
	boots int

	// inbox holds the newest orders that were not handled yet; shared.
	inbox inbox
	// ended gets a value whenever a fork has ended; statuses are stale when changed is set. Both shared.
	ended   chan struct{}
	changed atomic.Bool
	again   chan struct{}

	statuses   statusList
	wanted     map[uint64]bool
	generation uint64
	term       uint64
	// said counts the uplinks of this boot.
	said      uint64
	introduce bool
	// complained are the causes, other than a lost connection, for which an uplink could not be sent.
	complained map[string]bool
	leaseEnd   time.Time
	draining   bool
	checks     checks
	// killed is the boot of the worker before it, if that was killed by something else than its trials.
	killed string
	// refused is set when the worker may not serve this server.
	refused error
}

// Run is the worker: it returns when ctx has ended and everything was ended, or when it cannot start. At the end of ctx
// trials are asked to save and end, what they said is delivered, and the orchestrator is told that the node leaves.
func Run(ctx context.Context, cfg Config) (err error) {
	if err := cfg.check(); err != nil {
		return err
	}
	host, err := process.Open(cfg.Dir, cfg.Logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, host.Close()) }()
	confiner, err := confine.Open(ctx, confine.Config{
		Dir: cfg.Dir, User: cfg.TrialUser, Groups: cfg.TrialGroups, TrialDir: cfg.TrialDir, Logger: cfg.Logger,
		Network: cfg.TrialNetwork, Processes: max(0, cfg.TrialProcesses), Files: max(0, cfg.TrialFiles),
	})
	if err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	defer func() { err = errors.Join(err, confiner.Close()) }()
	for _, name := range []string{"scratch", "blobs"} { // of an earlier worker, whose processes are gone
		if err := trialfile.Remove(filepath.Join(cfg.Dir, name)); err != nil {
			return fmt.Errorf("worker: clear its directory: %w", err)
		}
	}
	if err := confiner.LimitSelf(); err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	if cfg.warnings = confiner.Warnings(); len(cfg.warnings) > 0 {
		level := slog.LevelInfo
		if cfg.Warn || confiner.Switches() {
			level = slog.LevelWarn
		}
		cfg.Logger.Log(ctx, level, "not everything that trials use is limited on this machine", "missing", strings.Join(cfg.warnings, "; "))
	}
	owners := &owners{}
	sockets := cfg.Dir
	if confiner.Switches() {
		cfg.files, cfg.closed, sockets = confiner.Root(), true, confiner.Root()
	}
	sessions, err := session.Listen(ctx, session.Config{
		Dir: sockets, Host: host, Logger: cfg.Logger, IdleAfter: cfg.IdleAfter, Confine: confiner.New, Others: cfg.closed,
		Output: func(fork *outbidv1.ForkRef, stream process.Stream, line []byte) { log(cfg, owners, fork, stream, line) },
	})
	if err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	defer func() { err = errors.Join(err, sessions.Close()) }()
	before, killed, err := predecessor.Begin(cfg.Dir, cfg.Boot, confiner.Switches())
	if err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	defer func() { err = errors.Join(err, before.End()) }()
	a := newAgent(cfg)
	a.killed = killed
	machine := &health.Machine{Dirs: dirsOf(cfg), FreeBytes: cfg.DiskMargin, Groups: confiner.Check, Python: cfg.Python}
	a.cfg.warnings = append(a.cfg.warnings, machine.Warnings()...)
	a.checks.check, a.disk.changed = noting(machine.Check, before), func() { poke(a.checks.again) }
	if a.seal, err = identity.NewSealKey(); err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	starter := &starter{
		cfg: cfg, owners: owners, host: host, confiner: confiner, sessions: sessions,
		blobs: blobs{dir: filepath.Join(cfg.Dir, "blobs")},
	}
	if cfg.Share != nil {
		cfg.Share.OnRelease(func(ctx context.Context, device int32) error { return sessions.Free(ctx, []int32{device}) })
	}
	a.train, a.behind = a.checks.after(starter.start), confiner.IdleGroup()
	return a.serve(ctx)
}

// noting is a check that refreshes the note for the next worker as well. Where that cannot be written, trials could not save either.
func noting(check func(context.Context) []string, n *predecessor.Note) func(context.Context) []string {
	return func(ctx context.Context) []string {
		why := check(ctx)
		if err := n.Refresh(); err != nil {
			why = append(why, sanitize.Line(err.Error(), limits.Detail))
		}
		return why
	}
}

// dirsOf returns the directories in which a worker and its trials write.
func dirsOf(cfg Config) []string {
	if cfg.closed {
		return []string{cfg.Dir, cfg.files}
	}
	return []string{cfg.Dir}
}

func newAgent(cfg Config) *agent {
	return &agent{
		disk: newDiskWatch(&cfg), cfg: cfg, out: newOutbox(), forks: make(map[uint64]*fork), averages: map[string]context.CancelFunc{}, boot: cfg.Boot, ended: make(chan struct{}, 1),
		again: make(chan struct{}, 1), inbox: inbox{boot: cfg.Boot, wake: make(chan struct{}, 1)}, introduce: true,
		wanted: make(map[uint64]bool), complained: make(map[string]bool), checks: newChecks(),
	}
}

// serve subscribes and runs the loop until the worker has drained.
func (a *agent) serve(ctx context.Context) (err error) {
	stop, err := a.cfg.Bus.Subscribe(a.cfg.Node, a.inbox.put)
	if err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	defer func() { err = errors.Join(err, stop()) }()
	defer a.cfg.Bus.Reconnected(func() { poke(a.again) })()
	defer a.run.Wait()
	if a.checks.check != nil { // before it offers its devices
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		unfit := a.checked(a.checks.check(ctx))
		a.run.Go(func() { a.checks.watch(ctx, unfit) })
	}
	watching, stopWatching := context.WithCancel(context.WithoutCancel(ctx)) // trials that are stopping still write
	var watch sync.WaitGroup
	defer watch.Wait()
	defer stopWatching()
	watch.Go(func() { a.disk.run(watching) })
	if !a.cfg.NoDiskHold {
		watch.Go(func() { newDiskPace(&a.cfg, a.disk.running).run(watching) })
	}
	return a.loop(ctx)
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// loop handles one thing at a time until ctx has ended and the worker has drained, or another worker has its name.
func (a *agent) loop(ctx context.Context) error {
	beat := time.NewTicker(beatEvery)
	defer beat.Stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var deadline, flushed <-chan time.Time
	stopping := ctx.Done()
	a.send(true)
	for {
		select {
		case <-a.inbox.wake:
			a.take(a.inbox.get())
			if a.refused != nil {
				a.cancelAll(a.refused)
				return a.refused
			}
		case <-a.out.wake:
		case <-a.ended:
			a.startWaiting()
		case <-a.again:
			a.out.again()
			a.send(true)
		case <-beat.C:
			if a.inbox.outranked() {
				a.cancelAll(errRival)
				return fmt.Errorf("%w %q: give each worker its own with --name", errRival, a.cfg.Node)
			}
			a.send(true)
		case unfit := <-a.checks.found:
			if a.checked(unfit) {
				a.send(true)
			}
		case <-timer.C:
		case <-stopping:
			stopping = nil
			a.drain()
			deadline = time.After(a.cfg.DrainTimeout)
		case <-deadline:
			a.cancelAll(errStopping)
		case <-flushed:
			a.leave()
			return nil
		}
		a.checkLease()
		a.send(false)
		if a.draining && a.quiet() {
			if a.out.empty() {
				a.leave()
				return nil
			}
			if flushed == nil {
				flushed = time.After(a.cfg.FlushTimeout)
			}
		}
		a.arm(timer)
	}
}

// arm sets the timer to what is due next beside the heartbeat: sending again, or the end of the lease.
func (a *agent) arm(timer *time.Timer) {
	now := time.Now()
	next := time.Hour
	if d := a.out.resendIn(now); d >= 0 {
		next = min(next, d)
	}
	if !a.leaseEnd.IsZero() {
		next = min(next, max(0, a.leaseEnd.Sub(now)))
	}
	timer.Reset(next)
}

// checkLease ends every fork when the time of the orders has run out.
func (a *agent) checkLease() {
	if a.leaseEnd.IsZero() || time.Now().Before(a.leaseEnd) {
		return
	}
	a.leaseEnd = time.Time{}
	if !a.quiet() {
		a.cfg.Logger.Warn("no word from the orchestrator within the lease; ending all trials here")
	}
	a.cancelAll(errExpired)
}

func (a *agent) cancelAll(cause error) {
	a.stopAverages()
	for _, f := range a.forks {
		a.cancel(f, cause)
	}
}

// cancel ends a fork at once. One that was never started ends here.
func (a *agent) cancel(f *fork, cause error) {
	f.cancel(cause)
	if !f.started {
		a.begin(f) // finds that it is cancelled
	}
}

// drain asks every trial to save and end.
func (a *agent) drain() {
	a.draining = true
	a.stopAverages()
	for _, f := range a.forks {
		f.drain()
		if !f.started {
			a.begin(f)
		}
	}
}

// quiet says whether no fork runs.
func (a *agent) quiet() bool {
	for _, f := range a.forks {
		if !f.over() {
			return false
		}
	}
	return true
}
