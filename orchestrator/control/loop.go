package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/control/merging"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Config configures a Loop.
type Config struct {
	Settings Settings
	Policy   policy.Policy
	// PolicyOptions are all the options that Policy was made with; the ledger records them.
	PolicyOptions map[string]string
	Ledger        ledger.Ledger
	History       History
	// Send sends orders to a node. Lost orders are sent again when the node is next seen.
	Send func(*outbidv1.Orders) error
	// Delete removes an object from the store. It is retried until it succeeds.
	Delete func(ctx context.Context, key string) error
	Now    func() time.Time
	// Uptime is a monotonic clock of this machine, or nil.
	Uptime Uptime
	Logger *slog.Logger
	// Fairness is called concurrently for readers. It defaults to Settings.Fairness.
	Fairness func(v *policy.View, a *policy.App, over bool) *outbidv1.Fairness
	// Info describes the server for the API.
	Info func() *outbidv1.GetServerInfoResponse
	// Seen is called after each batch has been appended to the ledger. It may be nil.
	Seen func(seq uint64, hash []byte) error
	// Observe is called with the durations of each step's decisions and append, and its number of reports. It may be
	// nil.
	Observe func(Observation)
	// AppendPatience is how long one append is retried before the loop ends; 0 means a minute. After a full disk,
	// JetStream accepts nothing until it is restarted, and readers wait as long as an append does.
	AppendPatience time.Duration
	// Samplers is the maximum number of tuners that run in processes at the same time; 0 means 16.
	Samplers int
	// SnapshotEvery is the minimum number of events between two snapshots; 0 means 50,000.
	SnapshotEvery int
}

// Observation holds the measurements of one step.
type Observation struct {
	Inputs, Events, Reports int
	Merges                  merging.Counts
	Decide, Append          time.Duration
}

// History stores every report of a sweep.
type History interface {
	Append(seq uint64, events []*outbidv1.Event) error
	Flush() error
	Read(ctx context.Context, sweep string, trial *int32, f func(trial int32, r *outbidv1.Report) error) error
	// ReadAfter calls f for the reports of a sweep after the first n.
	ReadAfter(ctx context.Context, sweep string, n int64, f func(trial int32, r *outbidv1.Report) error) error
}

// Loop runs a core: it appends what the core decides, and only then acts.
type Loop struct {
	cfg  Config
	in   chan Input
	done chan struct{}

	// core and tunerClients, the clients of remote tuners by sweep, are used only by Run.
	core         *Core
	tunerClients map[string]*tunerClient
	// samplers limits the processes of remote tuners.
	samplers *samplers
	// view is what readers see: the state after the last append. Readers take no lock that Run holds.
	view atomic.Pointer[view]
	// drawn holds the latest version of each sweep for readers, by ID.
	drawn    sync.Map
	capacity atomic.Pointer[capacity]
	// faults holds the last logged faults of avoided nodes.
	faults map[string]faultLogged
	// rates are the tenants' report rates in bytes per second.
	rates atomic.Pointer[map[string]float64]
	// heard has an arrival for each node, by name.
	heard sync.Map
	// uplinkBytes is the size of the uplinks in the queue.
	uplinkBytes atomic.Int64
	// sent holds the latest orders of each node, by name. busy is when the current step began in nanoseconds, or 0
	// between steps.
	sent sync.Map
	busy atomic.Int64
	// attended is when the loop last ran, by the monotonic clock. took describes its last step.
	attended time.Time
	took     Observation
	// policy waits for the round that is being decided concurrently.
	policy sync.WaitGroup

	recent recent
	clock  *clock
	// table describes the kinds of events that are read from the ledger.
	table state.Table

	// blind reports that a failure of Seen has been logged.
	blind bool
	// events since the latest snapshot.
	events   int
	snapshot sync.WaitGroup
	saving   chan struct{}
	deletes  *deleter

	// leading ends when Abandon is called because this server no longer leads.
	leading context.Context //nolint:containedctx // it outlives every call
	abandon context.CancelFunc
}

// inputsPerStep and inputBytesPerStep limit the inputs of one step.
const (
	inputsPerStep     = 4096
	inputBytesPerStep = 8 << 20
	tickEvery         = 250 * time.Millisecond
)

// Open restores the state from the ledger. The caller must call Run next.
func Open(ctx context.Context, cfg Config) (*Loop, error) {
	if cfg.SnapshotEvery == 0 {
		cfg.SnapshotEvery = 50_000
	}
	if cfg.Fairness == nil {
		cfg.Fairness = cfg.Settings.Fairness
	}
	if cfg.AppendPatience == 0 {
		cfg.AppendPatience = time.Minute
	}
	l := &Loop{
		cfg: cfg, in: make(chan Input, inputsPerStep), done: make(chan struct{}),
		faults: map[string]faultLogged{}, tunerClients: map[string]*tunerClient{}, table: state.NewTable(), saving: make(chan struct{}, 1), deletes: newDeleter(cfg.Delete, cfg.Logger),
	}
	l.samplers = newSamplers(cfg.Samplers, l.samplersOf)
	l.leading, l.abandon = context.WithCancel(context.Background())
	l.cfg.Settings.Beside = l.beside
	initial, err := cfg.Policy.Snapshot()
	for err == nil {
		if err = l.takeOver(ctx); err == nil {
			return l, nil
		}
		// The previous leader appended during the restore: restore again, with a policy in its initial state.
		if errors.Is(err, ledger.ErrConflict) {
			if err = nil; initial != nil {
				err = cfg.Policy.Restore(initial)
			}
		}
	}
	return nil, fmt.Errorf("restoring the state: %w", err)
}

// takeOver restores the state and appends this server's first event. Once that is in the ledger, a previous leader
// can no longer append, however late it notices.
func (l *Loop) takeOver(ctx context.Context) error {
	began, batches, replayed := time.Now(), 0, 0
	core, err := Restore(ctx, l.cfg.Settings, l.cfg.Policy, l.cfg.Ledger, func(b *outbidv1.Batch, events []*outbidv1.Event) error {
		if batches == 0 {
			l.recent.begin(b.GetSeq())
		}
		batches, replayed = batches+1, replayed+len(events)
		l.remember(b, events)
		return nil
	})
	if err != nil {
		return err
	}
	if batches == 0 {
		l.recent.begin(core.State().Seq + 1)
	}
	l.core, l.events = core, replayed
	if err := l.startClock(ctx); err != nil {
		return err
	}
	now := l.clock.now()
	started, err := core.Begin(now, l.cfg.Info().GetVersion(), l.cfg.PolicyOptions)
	if err != nil {
		return err
	}
	b, err := l.cfg.Ledger.Append(ctx, now, []*outbidv1.Event{started})
	if err != nil {
		return err
	}
	core.Appended(b)
	l.remember(b, []*outbidv1.Event{started})
	l.publishAll()
	l.cfg.Logger.Info("state restored", "ledger", b.GetSeq(), "batches_after_snapshot", batches, "events", replayed,
		"took", time.Since(began).Round(time.Millisecond))
	return nil
}

// remember adds a batch to the recent rounds and to the history. The history receives every batch, so that it can
// detect gaps. Reports that it fails to store are restored from the ledger at the next start.
func (l *Loop) remember(b *outbidv1.Batch, events []*outbidv1.Event) {
	l.recent.add(roundsOf(l.table, b, events))
	if l.cfg.Seen != nil {
		if err := l.cfg.Seen(b.GetSeq(), b.GetHash()); err != nil && !l.blind {
			l.blind = true
			l.cfg.Logger.Warn("could not save the position in the ledger: a later loss of its end would not be detected", "err", err)
		}
	}
	if err := l.cfg.History.Append(b.GetSeq(), events); err != nil {
		l.cfg.Logger.Error("could not add reports to the history; it can be rebuilt from the ledger", "err", err)
	}
}

// Run decides until ctx ends, and then takes a last snapshot. It returns an error that wraps ledger.ErrConflict if
// another server has taken over.
func (l *Loop) Run(ctx context.Context) error {
	defer close(l.done)
	stop := l.deletes.start()
	defer stop()
	defer l.startRenewing()()
	defer l.policy.Wait()
	defer l.endTunerClients()
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	for {
		var inputs []Input
		select {
		case <-ctx.Done():
			l.snapshot.Wait()
			return l.finish(ctx)
		case in := <-l.in:
			inputs = l.gather(l.dequeued(in))
		case <-tick.C:
			l.keepTime()
			l.rates.Store(new(l.core.tenants.Rates()))
			if inputs = l.gather(); len(l.in) == 0 { // nodes are not judged by uplinks that are still in the queue
				inputs = append(inputs, l.judge()...)
			}
		}
		inputs = append(l.attend(), inputs...)
		for more := true; more; inputs = nil {
			var err error
			if more, err = l.step(ctx, inputs); err != nil {
				l.snapshot.Wait()
				return err
			}
		}
	}
}

// gather takes the waiting inputs, up to a number of inputs and of bytes, so that they share one append.
func (l *Loop) gather(inputs ...Input) []Input {
	bytes := 0
	for _, in := range inputs {
		bytes += sizeOf(in)
	}
	for len(inputs) < inputsPerStep && bytes < inputBytesPerStep {
		select {
		case in := <-l.in:
			inputs = append(inputs, l.dequeued(in))
			bytes += sizeOf(in)
		default:
			return inputs
		}
	}
	return inputs
}

// dequeued accounts for an input that has left the queue.
func (l *Loop) dequeued(in Input) Input {
	if up, ok := in.(arrived); ok {
		l.leftQueue(up)
	}
	return in
}

// step decides and appends, and only then acts.
func (l *Loop) step(ctx context.Context, inputs []Input) (more bool, err error) {
	l.busy.Store(time.Now().UnixNano())
	defer l.busy.Store(0)
	out, err := l.decide(ctx, inputs)
	if err != nil {
		return false, err
	}
	for _, reply := range out.Replies {
		reply()
	}
	for _, o := range out.Orders {
		if o.GetRefused() != "" {
			l.cfg.Logger.Warn("refused a worker", "node", o.GetNode(), "reason", o.GetRefused())
		}
		if err := l.cfg.Send(o); err != nil {
			l.cfg.Logger.Warn("could not send orders", "node", o.GetNode(), "err", err)
		}
		l.sent.Store(o.GetNode(), o)
	}
	l.deletes.add(out.Delete)
	l.consultRemote(out.Retire, out.Ask)
	l.askAgents(out.Bids)
	return out.More, nil
}

// StepAge returns how long ago the current step began, including its append, or 0 between two steps.
func (l *Loop) StepAge(now time.Time) time.Duration {
	began := l.busy.Load()
	if began == 0 {
		return 0
	}
	return max(0, now.Sub(time.Unix(0, began)))
}

func (l *Loop) decide(ctx context.Context, inputs []Input) (Outcome, error) {
	now := l.clock.now()
	began := time.Now()
	out, err := l.core.Step(now, inputs...)
	if err != nil {
		return Outcome{}, err
	}
	decided := time.Since(began)
	if len(out.Events) > 0 {
		// Finish an append that has begun even if the loop is to end: half a step must not be acted on.
		patient, cancel := outlive(ctx, lastAppend)
		defer cancel()
		patient, giveUp := context.WithTimeout(patient, l.cfg.AppendPatience)
		defer giveUp()
		defer context.AfterFunc(l.leading, giveUp)()
		if err := l.append(patient, now, out); l.leading.Err() != nil && err != nil {
			return Outcome{}, fmt.Errorf("this server no longer leads: %w", err)
		} else if errors.Is(err, context.DeadlineExceeded) && patient.Err() != nil {
			return Outcome{}, fmt.Errorf("the ledger accepted no append for %s; make room on the disk of NATS, restart NATS, "+
				"then this server: nothing acknowledged is lost: %w", l.cfg.AppendPatience, err)
		} else if err != nil {
			return Outcome{}, err
		}
	}
	l.took = Observation{
		Inputs: len(inputs), Events: len(out.Events), Reports: countReports(out.Changes), Merges: out.Merges,
		Decide: decided, Append: time.Since(began) - decided,
	}
	if l.cfg.Observe != nil {
		l.cfg.Observe(l.took)
	}
	return out, nil
}

// lastAppend is how long an append may still take once the loop is to end. The ledger may be unreachable, and
// decisions that were not appended did not happen.
const lastAppend = 3 * time.Second

// outlive returns a context that ends some time after ctx.
func outlive(ctx context.Context, by time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(by)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel()
		case <-longer.Done():
		}
	})
	return longer, func() { stop(); cancel() }
}

func countReports(changes []state.Change) int {
	n := 0
	for i := range changes {
		if changes[i].Kind.Readers == state.ReadersReport {
			n++
		}
	}
	return n
}

func (l *Loop) append(ctx context.Context, now time.Time, out Outcome) error {
	for _, events := range batches(out, ledger.MaxBatchBytes(l.cfg.Ledger)) {
		b, err := l.cfg.Ledger.Append(ctx, now, events)
		if err != nil {
			return fmt.Errorf("appending to the ledger: %w", err)
		}
		l.core.Appended(b)
		l.remember(b, events)
	}
	l.publish(out.Changes)
	l.logFaults(out.Changes)
	l.events += len(out.Events)
	l.maybeSnapshot()
	return nil
}

// Abandon tells the loop that this server no longer leads. An append in progress is cancelled, because the next
// leader reads what the ledger accepted of it, and readers no longer wait for it.
func (l *Loop) Abandon() { l.abandon() }

// send puts an input into the loop's queue.
func (l *Loop) send(ctx context.Context, in Input) error {
	select {
	case l.in <- in:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-l.done:
		return state.ErrStopping
	}
}
