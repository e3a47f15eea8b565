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

// Causes for which forks are ended without an order.
var (
	errExpired  = errors.New("no orders from the orchestrator for the duration of the lease")
	errUnknown  = errors.New("the orchestrator does not know this worker any more")
	errStopping = errors.New("the worker is stopping")
	errUnwanted = errors.New("ended by order")
	errRival    = errors.New("another worker uses the node name")
)

// ErrTenants is returned by Run if the server has several tenants and this worker cannot isolate their trials.
var ErrTenants = errors.New("this server takes sweeps from several people, and trials here would run as the worker's own " +
	"user: they could read its secrets and each other's files. Run the worker as root (or with CAP_SETUID, CAP_SETGID, " +
	"CAP_CHOWN and CAP_KILL), so that each gets a user of its own, or give --trust-trials if you trust all of them")

// workerLoop is the worker's main loop. Fields that are not marked as shared belong to its goroutine.
type workerLoop struct {
	cfg Config
	// train starts training code; tests replace it.
	train func(ctx context.Context, f *fork) (training, error)
	out   *outbox // shared
	// seal decrypts the secrets of trials. It lives as long as this process; nil if the worker has no key.
	seal  *identity.SealKey
	forks map[uint64]*fork
	// averages maps the name of each average that is being computed to its cancel function.
	averages map[string]context.CancelFunc
	// idleGroup is the idle control group for the computation of averages, or "" if it does not exist.
	idleGroup string
	run       sync.WaitGroup
	// disk enforces the limits on disk usage; shared.
	disk  *diskWatch
	boot  string
	boots int

	// inbox holds the newest orders that were not handled yet; shared.
	inbox inbox
	// ended receives a value whenever a fork has ended. If changed is set, statuses is stale. Both are shared.
	ended       chan struct{}
	changed     atomic.Bool
	reconnected chan struct{}

	statuses   statusList
	wanted     map[uint64]bool
	generation uint64
	term       uint64
	// uplinkCount counts the uplinks of this boot.
	uplinkCount uint64
	introduce   bool
	// beat is the time between two heartbeats if nothing has changed, and sent when the last uplink was sent.
	beat time.Duration
	sent time.Time
	// complained holds the causes, other than a lost connection, for which a failed uplink was logged already.
	complained map[string]bool
	leaseEnd   time.Time
	draining   bool
	checks     checks
	// noticed receives new spot notices. ending is why the node ends soon, or "", and pauseAt when its trials are paused
	// without orders, or zero.
	noticed chan string
	ending  string
	pauseAt time.Time
	// killed is the boot ID of the previous worker, if that was killed by something other than its trials.
	killed string
	// refused is set if the worker must not serve this server.
	refused error
	// bites returns how often the watchdog has ended the trials, and bitten is its last value that checkLease has seen.
	bites  func() int64
	bitten int64
}

// WatchdogMain must be called first in the main function of a program that calls Run. If a worker started this process as
// its watchdog, it does that work and then returns true.
func WatchdogMain() bool { return process.WatchdogMain() }

// Run runs a worker. It returns once ctx has ended and everything has been shut down, or if the worker cannot start.
// When ctx ends, trials are asked to save and end, their messages are delivered, and the orchestrator is notified
// that the node leaves.
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
		Dir: cfg.Dir, Worker: host.Token(), User: cfg.TrialUser, Groups: cfg.TrialGroups, TrialDir: cfg.TrialDir, Logger: cfg.Logger,
		Network: cfg.TrialNetwork, Processes: max(0, cfg.TrialProcesses), Files: max(0, cfg.TrialFiles),
	})
	if err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	defer func() { err = errors.Join(err, confiner.Close()) }()
	for _, name := range []string{"scratch", "blobs"} { // left by an earlier worker whose processes are gone
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
		cfg.Logger.Log(ctx, level, "some resources of trials cannot be limited on this machine", "missing", strings.Join(cfg.warnings, "; "))
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
	a := newWorkerLoop(cfg)
	a.killed = killed
	a.watch(host)
	machine := &health.Machine{Dirs: dirsOf(cfg), FreeBytes: cfg.DiskMargin, Groups: confiner.Check, Python: cfg.Python}
	a.cfg.warnings = append(a.cfg.warnings, machine.Warnings()...)
	a.checks.check, a.disk.changed = withNote(machine.Check, before), func() { poke(a.checks.again) }
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
	a.train, a.idleGroup = a.checks.checkAfter(starter.start), confiner.IdleGroup()
	return a.serve(ctx)
}

// watch lets the host's watchdog end the trials if this worker cannot.
func (l *workerLoop) watch(host *process.Host) {
	l.bites = host.Bites
	if !l.cfg.LoneServer {
		l.inbox.renew = host.Renew
	}
}

// withNote returns a check that also refreshes the note for the next worker. If the note cannot be written, trials
// cannot save either.
func withNote(check func(context.Context) []string, n *predecessor.Note) func(context.Context) []string {
	return func(ctx context.Context) []string {
		why := check(ctx)
		if err := n.Refresh(); err != nil {
			why = append(why, sanitize.Line(err.Error(), limits.Detail))
		}
		return why
	}
}

// dirsOf returns the directories that a worker and its trials write to.
func dirsOf(cfg Config) []string {
	if cfg.closed {
		return []string{cfg.Dir, cfg.files}
	}
	return []string{cfg.Dir}
}

func newWorkerLoop(cfg Config) *workerLoop {
	return &workerLoop{
		disk: newDiskWatch(&cfg), cfg: cfg, out: newOutbox(), forks: make(map[uint64]*fork), averages: map[string]context.CancelFunc{}, boot: cfg.Boot, ended: make(chan struct{}, 1),
		reconnected: make(chan struct{}, 1), inbox: inbox{boot: cfg.Boot, wake: make(chan struct{}, 1)}, introduce: true,
		wanted: make(map[uint64]bool), complained: make(map[string]bool), checks: newChecks(),
		noticed: make(chan string), bites: func() int64 { return 0 },
	}
}

// serve subscribes to orders and runs the loop until the worker has drained.
func (l *workerLoop) serve(ctx context.Context) (err error) {
	stop, err := l.cfg.Bus.Subscribe(l.cfg.Node, l.inbox.put)
	if err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	defer func() { err = errors.Join(err, stop()) }()
	defer l.cfg.Bus.Reconnected(func() { poke(l.reconnected) })()
	defer l.run.Wait()
	looking, stopLooking := context.WithCancel(ctx)
	defer stopLooking()
	l.watchSpot(looking)
	if l.checks.check != nil { // before the worker offers its devices
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		unfit := l.recordHealth(l.checks.check(ctx))
		l.run.Go(func() { l.checks.watch(ctx, unfit) })
	}
	watching, stopWatching := context.WithCancel(context.WithoutCancel(ctx)) // not canceled with ctx, because trials that are stopping still write
	var watch sync.WaitGroup
	defer watch.Wait()
	defer stopWatching()
	watch.Go(func() { l.disk.run(watching) })
	if !l.cfg.NoDiskHold {
		watch.Go(func() { newDiskPace(&l.cfg, l.disk.running).run(watching) })
	}
	return l.loop(ctx)
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// loop handles one event at a time until ctx has ended and the worker has drained, or until another worker has taken
// its name.
func (l *workerLoop) loop(ctx context.Context) error {
	beat := time.NewTicker(beatEvery)
	defer beat.Stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var deadline, flushed <-chan time.Time
	stopping := ctx.Done()
	l.send(true)
	for {
		select {
		case <-l.inbox.wake:
			l.applyOrders(l.inbox.get())
			if l.refused != nil {
				l.cancelAll(l.refused)
				return l.refused
			}
		case <-l.out.wake:
		case <-l.ended:
			l.startWaiting()
		case <-l.reconnected:
			l.out.resend()
			l.send(true)
		case <-beat.C:
			if err := l.onBeat(); err != nil {
				return err
			}
		case why := <-l.noticed:
			l.recordEnding(why)
			l.send(true)
		case unfit := <-l.checks.found:
			if l.recordHealth(unfit) {
				l.send(true)
			}
		case <-timer.C:
		case <-stopping:
			stopping = nil
			l.drain()
			l.send(true) // so that no trial waits here for devices that become free
			deadline = time.After(l.cfg.DrainTimeout)
		case <-deadline:
			l.cancelAll(errStopping)
		case <-flushed:
			l.leave()
			return nil
		}
		l.checkLease()
		l.send(false)
		if l.draining && l.isIdle() {
			if l.out.empty() {
				l.leave()
				return nil
			}
			if flushed == nil {
				flushed = time.After(l.cfg.FlushTimeout)
			}
		}
		l.arm(timer)
	}
}

// onBeat does what is due every beatEvery. It returns an error once another worker has taken the name.
func (l *workerLoop) onBeat() error {
	if l.inbox.isOutranked() {
		l.cancelAll(errRival)
		return fmt.Errorf("%w %q: give each worker its own with --name", errRival, l.cfg.Node)
	}
	l.pauseUnordered()
	if l.isBeatDue() {
		l.send(true)
	}
	return nil
}

// isBeatDue reports whether the worker sends a heartbeat now, which it considers every beatEvery. A large cluster asks
// for fewer heartbeats of nodes on which nothing changes.
func (l *workerLoop) isBeatDue() bool {
	return l.beat <= beatEvery || l.introduce || l.changed.Load() || time.Since(l.sent) > l.beat-beatEvery/2
}

// arm sets the timer to the next deadline other than the heartbeat: a resend, or the end of the lease.
func (l *workerLoop) arm(timer *time.Timer) {
	now := time.Now()
	next := time.Hour
	if d := l.out.resendIn(now); d >= 0 {
		next = min(next, d)
	}
	if !l.leaseEnd.IsZero() {
		next = min(next, max(0, l.leaseEnd.Sub(now)))
	}
	timer.Reset(next)
}

// checkLease ends every fork once the lease has expired.
func (l *workerLoop) checkLease() {
	if bites := l.bites(); bites != l.bitten {
		l.bitten = bites
		if !l.isIdle() {
			l.cfg.Logger.Warn("the worker stood still for the duration of its lease, so that its watchdog has ended all trials here")
		}
		l.cancelAll(errExpired)
	}
	if l.leaseEnd.IsZero() || time.Now().Before(l.leaseEnd) {
		return
	}
	l.leaseEnd = time.Time{}
	if !l.isIdle() {
		l.cfg.Logger.Warn("no orders from the orchestrator for the duration of the lease; ending all trials here")
	}
	l.cancelAll(errExpired)
}

func (l *workerLoop) cancelAll(cause error) {
	l.stopAverages()
	for _, f := range l.forks {
		l.cancel(f, cause)
	}
}

// cancel ends a fork at once, including one that was never started.
func (l *workerLoop) cancel(f *fork, cause error) {
	f.cancel(cause)
	if !f.started {
		l.runFork(f) // finds that the fork is canceled
	}
}

// drain asks every trial to save and end.
func (l *workerLoop) drain() {
	if l.ending == "" {
		l.ending = errStopping.Error()
	}
	l.draining = true
	l.stopAverages()
	for _, f := range l.forks {
		f.orders.drain(errStopping.Error())
		if !f.started {
			l.runFork(f)
		}
	}
}

// isIdle reports whether no fork runs.
func (l *workerLoop) isIdle() bool {
	for _, f := range l.forks {
		if !f.hasEnded() {
			return false
		}
	}
	return true
}
