package control

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/state"
	"github.com/outbid-dev/outbid/orchestrator/tuner/remote"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Loop runs a core: it appends what the core decides, and only then acts.
type Loop struct {
	*Reads
	*Commands
	*Access

	cfg      Config
	queue    *queue
	arrivals *arrivals
	time     *timekeeper
	views    *views
	recent   *recent
	tuners   *tunerClients
	renewer  *renewer
	saver    *saver
	deletes  *deleter
	faults   *faultLog
	table    state.Table

	// core is used only by Run.
	core *Core
	// policy waits for the round that is being decided concurrently.
	policy sync.WaitGroup
	// attended is when the loop last ran, by the monotonic clock. took describes its last step.
	attended time.Time
	took     Observation
	// stalled is the sum of all stalls in nanoseconds.
	stalled atomic.Int64
	// blind reports that a failure of Seen has been logged.
	blind bool
	// abandon ends the queue's context leading, because this server no longer leads.
	abandon context.CancelFunc
}

// Endless is an AppendPatience without an end.
const Endless = time.Duration(math.MaxInt64)

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
	l := newLoop(cfg)
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

// newLoop makes the parts of a loop.
func newLoop(cfg Config) *Loop {
	leading, abandon := context.WithCancel(context.Background())
	l := &Loop{
		cfg: cfg, queue: newQueue(leading), time: &timekeeper{wall: cfg.Now, uptime: cfg.Uptime, logger: cfg.Logger},
		recent: &recent{}, table: state.NewTable(), deletes: newDeleter(cfg.Delete, cfg.Logger), abandon: abandon,
	}
	l.cfg.Settings.Beside = l.beside
	l.arrivals = &arrivals{queue: l.queue, time: l.time}
	l.views = &views{recent: l.recent, time: l.time, forecast: cfg.Fairness, logger: cfg.Logger}
	l.tuners = &tunerClients{
		clients: map[string]*tunerClient{}, samplers: newSamplers(cfg.Samplers, samplersOf(l.views, cfg.Settings.Limits)),
		queue: l.queue, newTuner: cfg.Settings.NewTuner, logger: cfg.Logger,
		remote: func(sweep string) *remote.Tuner { return l.core.Remote(sweep) },
	}
	l.renewer = &renewer{
		queue: l.queue, arrivals: l.arrivals, time: l.time, deliver: cfg.Send, patience: cfg.AppendPatience, logger: cfg.Logger,
	}
	l.saver = newSaver(cfg)
	l.faults = &faultLog{time: l.time, logger: cfg.Logger, told: map[string]faultLogged{}}
	l.Reads = &Reads{
		cfg: &l.cfg, views: l.views, arrivals: l.arrivals, time: l.time, samplers: l.tuners.samplers,
		rounds: &roundReader{ledger: cfg.Ledger, views: l.views, recent: l.recent, table: l.table},
	}
	l.Commands = &Commands{queue: l.queue, time: l.time, tuners: l.tuners}
	l.Access = &Access{views: l.views, limits: cfg.Settings.Limits, deletes: l.deletes}
	return l
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
	l.core = core
	l.saver.restored(core, replayed)
	if err := l.time.start(ctx, l.cfg, core.State().Time); err != nil {
		return err
	}
	now := l.time.now()
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
	l.views.publishAll(core)
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
	defer close(l.queue.done)
	stop := l.deletes.start()
	defer stop()
	defer l.renewer.start()()
	defer l.policy.Wait()
	defer l.tuners.end()
	defer l.saver.end()
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	if _, err := l.step(ctx, []Input{ReadPrices{}}); err != nil { // before the first submission, which may limit its cost
		return err
	}
	for {
		var inputs []Input
		select {
		case <-ctx.Done():
			l.saver.wait()
			return l.finish(ctx)
		case in := <-l.queue.in:
			inputs = l.gather(l.arrivals.dequeued(in))
		case <-tick.C:
			l.time.keep()
			l.rates.Store(new(l.core.tenants.Rates()))
			if inputs = l.gather(); len(l.queue.in) == 0 { // nodes are not judged by uplinks that are still in the queue
				inputs = append(inputs, l.judge()...)
			}
		}
		inputs = append(l.attend(), inputs...)
		for more := true; more; inputs = nil {
			var err error
			if more, err = l.step(ctx, inputs); err != nil {
				l.saver.wait()
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
		case in := <-l.queue.in:
			inputs = append(inputs, l.arrivals.dequeued(in))
			bytes += sizeOf(in)
		default:
			return inputs
		}
	}
	return inputs
}

// step decides and appends, and only then acts.
func (l *Loop) step(ctx context.Context, inputs []Input) (more bool, err error) {
	l.renewer.busy.Store(time.Now().UnixNano())
	defer l.renewer.busy.Store(0)
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
		l.renewer.sent.Store(o.GetNode(), o)
	}
	l.deletes.add(out.Delete)
	l.tuners.consult(out.Retire, out.Ask)
	l.askBidders(out.Bids)
	return out.More, nil
}

// StepAge returns how long ago the current step began, including its append, or 0 between two steps.
func (l *Loop) StepAge(now time.Time) time.Duration {
	began := l.renewer.busy.Load()
	if began == 0 {
		return 0
	}
	return max(0, now.Sub(time.Unix(0, began)))
}

func (l *Loop) decide(ctx context.Context, inputs []Input) (Outcome, error) {
	now := l.time.now()
	began := time.Now()
	out, err := l.core.Step(now, inputs...)
	if err != nil {
		return Outcome{}, err
	}
	decided := time.Since(began)
	if err := l.settle(ctx, now, out); err != nil {
		return Outcome{}, err
	}
	l.took = Observation{Inputs: len(inputs), Events: len(out.Events), Merges: out.Merges, Decide: decided, Append: time.Since(began) - decided}
	l.took.count(out.Changes)
	if l.cfg.Observe != nil {
		l.cfg.Observe(l.took)
	}
	if l.cfg.Changed != nil {
		l.cfg.Changed(now, out.Changes, l.took)
	}
	return out, nil
}

// settle appends what a step decided. If it decided nothing, it makes sure that its answers are not out of date.
func (l *Loop) settle(ctx context.Context, now time.Time, out Outcome) error {
	confirms := len(out.Events) == 0 && len(out.Replies) > 0 && l.cfg.Confirm != nil
	if len(out.Events) == 0 && !confirms {
		return nil
	}
	// Finish an append that has begun even if the loop is to end: half a step must not be acted on.
	patient, cancel := outlive(ctx, lastAppend)
	defer cancel()
	patient, giveUp := context.WithTimeout(patient, l.cfg.AppendPatience)
	defer giveUp()
	defer context.AfterFunc(l.queue.leading, giveUp)()
	var err error
	if confirms {
		err = l.cfg.Confirm(patient)
	} else {
		err = l.append(patient, now, out)
	}
	switch {
	case err == nil:
		return nil
	case l.queue.leading.Err() != nil:
		return fmt.Errorf("this server no longer leads: %w", err)
	case errors.Is(err, context.DeadlineExceeded) && patient.Err() != nil:
		return fmt.Errorf("the ledger accepted no append for %s; make room on the disk of NATS, restart NATS, "+
			"then this server: nothing acknowledged is lost: %w", l.cfg.AppendPatience, err)
	}
	return err
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

func (l *Loop) append(ctx context.Context, now time.Time, out Outcome) error {
	for _, events := range batches(out, ledger.MaxBatchBytes(l.cfg.Ledger)) {
		b, err := l.cfg.Ledger.Append(ctx, now, events)
		if err != nil {
			return fmt.Errorf("appending to the ledger: %w", err)
		}
		l.core.Appended(b)
		l.remember(b, events)
	}
	l.views.publish(l.core, out.Changes)
	l.faults.log(out.Changes)
	l.saver.events += len(out.Events)
	l.saver.maybe(l.core)
	return nil
}

// Abandon tells the loop that this server no longer leads. An append in progress is cancelled, because the next
// leader reads what the ledger accepted of it, and readers no longer wait for it.
func (l *Loop) Abandon() { l.abandon() }

// finish applies the round that the policy is still deciding, and then takes the last snapshot.
func (l *Loop) finish(ctx context.Context) error {
	if l.core.Deciding() {
		l.core.HoldRound()
		l.renewer.busy.Store(time.Now().UnixNano()) // renew leases meanwhile; the step below ends that
		l.policy.Wait()
		if _, err := l.step(ctx, []Input{PolicyDone{}}); err != nil {
			return err
		}
	}
	return l.saver.last(l.core)
}

// Uplink records that a node was seen, and queues its message. It never waits: a message that finds no room is
// dropped, and the worker sends it again.
func (l *Loop) Uplink(up *outbidv1.Uplink) { l.arrivals.take(up) }
