package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Config is what a loop needs.
type Config struct {
	Settings Settings
	Policy   policy.Policy
	// PolicyOptions are all the options that it was made with; the ledger keeps them.
	PolicyOptions map[string]string
	Ledger        ledger.Ledger
	History       History
	// Send sends orders to a node. Orders that are lost are made anew when the node is heard of next.
	Send func(*outbidv1.Orders) error
	// Delete removes an object from the store; it is tried again until it succeeds.
	Delete func(ctx context.Context, key string) error
	// Now is the clock.
	Now func() time.Time
	// Uptime is a clock of this machine that nobody sets; nil for none.
	Uptime Uptime
	Logger *slog.Logger
	// Fairness is what readers, who call it side by side, are told; nil for Settings.Fairness.
	Fairness func(v *policy.View, a *policy.App, over bool) *outbidv1.Fairness
	// Info says what the server is, for the API.
	Info func() *outbidv1.GetServerInfoResponse
	// Seen is told of every batch that is in the ledger, once it is; nil for nobody.
	Seen func(seq uint64, hash []byte) error
	// Observe is told how long each step's decisions and append took, and of how many reports; nil for nobody.
	Observe func(Observation)
	// AppendPatience is how long one append is tried before the loop ends; a minute if 0. JetStream takes nothing any more
	// after a full disk until it is started again, and readers wait as long as an append does.
	AppendPatience time.Duration
	// Samplers is how many tuners may run in processes of their own at once; 16 if 0.
	Samplers int
	// SnapshotEvery is the least number of events between two snapshots; 50,000 if 0.
	SnapshotEvery int
}

// Observation is how one step went.
type Observation struct {
	Inputs, Events, Reports int
	Merges                  Merges
	Decide, Append          time.Duration
}

// History keeps every report of a sweep for reading.
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

	// core and askers, which ask the tuners in processes of their own, by sweep, are Run's alone.
	core   *Core
	askers map[string]*asker
	// samplers are the places of their processes.
	samplers *samplers
	// view is what readers see: what the ledger says after the newest append. They take no lock that Run holds.
	view atomic.Pointer[view]
	// drawn are the sweeps as readers saw them last, by id.
	drawn    sync.Map
	capacity atomic.Pointer[capacity]
	// faults are what was logged last of the nodes that new trials keep off.
	faults map[string]faultLogged
	// rates are how fast tenants report, in bytes a second.
	rates atomic.Pointer[map[string]float64]
	// heard has an arrival for each node, by name.
	heard sync.Map
	// uplinkBytes is what the uplinks in the queue take.
	uplinkBytes atomic.Int64
	// sent are the newest orders of each node, by name; busy is when the step under way began, in nanoseconds, 0 for none.
	sent sync.Map
	busy atomic.Int64
	// attended is when the loop last came round, by the monotonic clock, and took how long its last step was.
	attended time.Time
	took     Observation
	// policy decides a round beside the loop.
	policy sync.WaitGroup

	recent recent
	clock  *clock
	// table says what events are that are read from the ledger.
	table state.Table

	// blind: the log has it that Seen failed.
	blind bool
	// events since the newest snapshot.
	events   int
	snapshot sync.WaitGroup
	saving   chan struct{}
	deletes  *deleter

	// leading ends when Abandon says that this orchestrator leads no more.
	leading context.Context //nolint:containedctx // it outlives every call
	abandon context.CancelFunc
}

// inputsPerStep and inputBytesPerStep bound how much is decided in one step.
const (
	inputsPerStep     = 4096
	inputBytesPerStep = 8 << 20
	tickEvery         = 250 * time.Millisecond
)

// Open restores the state from the ledger. Run must be called next.
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
		faults: map[string]faultLogged{}, askers: map[string]*asker{}, table: state.NewTable(), saving: make(chan struct{}, 1), deletes: newDeleter(cfg.Delete, cfg.Logger),
	}
	l.samplers = newSamplers(cfg.Samplers, l.samplersOf)
	l.leading, l.abandon = context.WithCancel(context.Background())
	l.cfg.Settings.Beside = l.beside
	initial, err := cfg.Policy.Snapshot()
	for err == nil {
		if err = l.takeOver(ctx); err == nil {
			return l, nil
		}
		// Whoever led before wrote once more while this one was reading: read again, with a policy that has seen nothing yet.
		if errors.Is(err, ledger.ErrConflict) {
			if err = nil; initial != nil {
				err = cfg.Policy.Restore(initial)
			}
		}
	}
	return nil, fmt.Errorf("restoring the state: %w", err)
}

// takeOver restores the state and appends this orchestrator's first event. Once that is in the ledger, nobody who led
// before can append any more, however late they notice.
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
		l.recent.begin(core.st.Seq + 1)
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
	l.cfg.Logger.Info("the state is restored", "ledger", b.GetSeq(), "batches_after_snapshot", batches, "events", replayed,
		"took", time.Since(began).Round(time.Millisecond))
	return nil
}

// remember adds a batch to the newest rounds and to the history, which hears of every batch: so it knows that it lacks
// none. What it cannot take is made good from the ledger at the next start.
func (l *Loop) remember(b *outbidv1.Batch, events []*outbidv1.Event) {
	l.recent.add(roundsOf(l.table, b, events))
	if l.cfg.Seen != nil {
		if err := l.cfg.Seen(b.GetSeq(), b.GetHash()); err != nil && !l.blind {
			l.blind = true
			l.cfg.Logger.Warn("if the ledger loses its end, the next start cannot tell", "err", err)
		}
	}
	if err := l.cfg.History.Append(b.GetSeq(), events); err != nil {
		l.cfg.Logger.Error("reports could not be added to the history, which can be rebuilt from the ledger", "err", err)
	}
}

// Run decides until ctx ends, and then takes a last snapshot. It returns an error that wraps ledger.ErrConflict if
// another orchestrator has taken over.
func (l *Loop) Run(ctx context.Context) error {
	defer close(l.done)
	stop := l.deletes.start()
	defer stop()
	defer l.startRenewing()()
	defer l.policy.Wait()
	defer l.endAskers()
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	for {
		var inputs []Input
		select {
		case <-ctx.Done():
			l.snapshot.Wait()
			return l.finish(ctx)
		case in := <-l.in:
			inputs = l.gather(l.taken(in))
		case <-tick.C:
			l.keepTime()
			l.rates.Store(new(l.core.rates()))
			if inputs = l.gather(); len(l.in) == 0 { // nobody is judged by what was not listened to
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

// gather takes what else is waiting, so that one append serves all, up to a number of inputs and of bytes.
func (l *Loop) gather(inputs ...Input) []Input {
	bytes := 0
	for _, in := range inputs {
		bytes += sizeOf(in)
	}
	for len(inputs) < inputsPerStep && bytes < inputBytesPerStep {
		select {
		case in := <-l.in:
			inputs = append(inputs, l.taken(in))
			bytes += sizeOf(in)
		default:
			return inputs
		}
	}
	return inputs
}

// taken counts an input out of the queue.
func (l *Loop) taken(in Input) Input {
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
		if err := l.cfg.Send(o); err != nil {
			l.cfg.Logger.Warn("orders could not be sent", "node", o.GetNode(), "err", err)
		}
		l.sent.Store(o.GetNode(), o)
	}
	l.deletes.add(out.Delete)
	l.consultRemote(out.Retire, out.Ask)
	l.askAgents(out.Bids)
	return out.More, nil
}

// StepAge returns how long ago the step under way began, its append included; 0 between two steps.
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
		// An append that was begun is finished even if the loop is to end: half a step must not be acted on.
		patient, cancel := outlive(ctx, lastAppend)
		defer cancel()
		patient, giveUp := context.WithTimeout(patient, l.cfg.AppendPatience)
		defer giveUp()
		defer context.AfterFunc(l.leading, giveUp)()
		if err := l.append(patient, now, out); l.leading.Err() != nil && err != nil {
			return Outcome{}, fmt.Errorf("this orchestrator leads no more: %w", err)
		} else if errors.Is(err, context.DeadlineExceeded) && patient.Err() != nil {
			return Outcome{}, fmt.Errorf("the ledger took nothing for %s; make room on the disk of NATS, start NATS again, "+
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

// lastAppend is how long an append may still take once the loop is to end: the ledger may be out of reach, and what was
// not appended did not happen.
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

// Abandon says that this orchestrator leads no more: an append under way is given up, as whoever leads next reads what the
// ledger took of it, and readers no longer wait for it.
func (l *Loop) Abandon() { l.abandon() }

// send hands an input to the loop.
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
