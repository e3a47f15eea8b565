package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/sim/measure"
	"github.com/outbid-dev/outbid/orchestrator/spec/terms"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Setup is what Run runs: apps that arrive over time on a cluster, under a policy.
type Setup struct {
	Nodes  []cluster.Node
	Apps   []App
	Policy policy.Policy
	// Options are all that the policy was made with, for whoever replays the ledger; nil leaves them out of it.
	Options map[string]string
	// Stays say when nodes are there; one that is not named always is.
	Stays []Stay
	// Tenants with their weights, for the figures; those not named weigh 1.
	Tenants []measure.Tenant
	// Control is the control loop's settings; NewTuner must be set.
	Control control.Settings
	// Seed of everything random in the run itself: faults.
	Seed uint64
	// RestartDelay is how long a job that was taken off its devices restores its checkpoint before it trains again.
	RestartDelay time.Duration
	// SaveEvery is how often a running job saves of its own accord; what it did since is lost when it fails. 0 is 30 minutes.
	SaveEvery time.Duration
	// Mishaps are what goes wrong.
	Mishaps Mishaps
	// Bars is how many leases are kept for a Gantt chart.
	Bars int
	// Ledger takes every batch; an in-memory ledger that forgets them if nil.
	Ledger ledger.Ledger
	// Progress is told now and then how far the run is; nil for nobody.
	Progress func(at time.Duration, done, jobs int)
	// Clock tells real time, for the cost of decisions; nil leaves that out of the result.
	Clock func() time.Time
}

// App is a sweep that arrives.
type App struct {
	Spec   *outbidv1.SweepSpec
	Submit time.Duration
	// Jobs says how its trials behave, by number. Trials beyond the last behave as the last.
	Jobs []Job
	// Commands of people, in order of time.
	Commands []Command
}

// Job says how a trial behaves: what a policy learns of it, it learns by reports.
type Job struct {
	// Speeds are the steps per second that it really makes.
	Speeds *cluster.Speeds
	// Steps after which its code ends by itself; 0 for never.
	Steps int64
	// Loss is what it reports at a step; nil reports nothing. Reports is how often it does on its way to Steps; Every is
	// the steps between two reports instead.
	Loss    func(step float64) float64
	Reports int
	Every   float64
	// Isolated is the seconds that it takes alone and undisturbed.
	Isolated float64
	// Utility is what its end so many seconds after its arrival is worth; nil for nothing.
	Utility func(seconds float64) float64
}

// Mishaps are mean times between things going wrong, exponentially distributed; 0 for never.
type Mishaps struct {
	// NodeFails per node, and NodeBack until it is up again.
	NodeFails, NodeBack time.Duration
	// JobFails per running job.
	JobFails time.Duration
	// AppPauses per app, by a person, and AppGoesOn until the same person lets it go on.
	AppPauses, AppGoesOn time.Duration
}

// Result is how a run went.
type Result struct {
	measure.Result
	// State at the end.
	State *state.State
}

// run is a run under way.
type run struct {
	set      Setup
	clock    clock
	start    time.Time
	rng      *rand.Rand
	core     *control.Core
	ledger   ledger.Ledger
	machines map[string]*machine
	// places is the index of a node in the setup, by name.
	places map[string]int
	// exact is how far training was when it saved a checkpoint, by its key; the checkpoint says the whole step below.
	exact   map[string]float64
	apps    map[string]*App
	pending []control.Input
	orders  []*outbidv1.Orders
	wakeAt  time.Time
	scribe  *scribe
	guard   *guard
	events  int64
	left    int
	err     error
}

type trialKey struct {
	sweep string
	trial int32
}

// Run lets the control loop itself run the apps to their ends on a virtual clock. The same setup gives the same events.
// Every event is checked against the invariants that guard names; a run that breaks one is an error.
func Run(ctx context.Context, set Setup) (Result, error) {
	began := time.Time{}
	if set.Clock != nil {
		began = set.Clock()
	}
	r := newRun(set)
	if err := r.run(ctx); err != nil {
		return Result{}, err
	}
	cost := measure.Cost{Events: int(r.events)}
	if set.Clock != nil {
		cost.Wall = set.Clock().Sub(began)
	}
	figures, err := r.scribe.meter.Result(cost)
	if err != nil {
		return Result{}, err
	}
	return Result{Result: figures, State: r.core.State()}, nil
}

func newRun(set Setup) *run {
	if set.SaveEvery == 0 {
		set.SaveEvery = 30 * time.Minute
	}
	if set.Ledger == nil {
		set.Ledger = &forgetful{}
	}
	set.Control.Term, set.Control.GangsInPlace, set.Control.MayReportNothing = 1, true, true
	set.Control.Trust = func(string) bool { return true }
	r := &run{
		set: set, start: epoch(), clock: clock{now: epoch()}, rng: rand.New(rand.NewPCG(set.Seed, 2)), ledger: set.Ledger,
		machines: map[string]*machine{}, places: map[string]int{}, exact: map[string]float64{},
		apps: map[string]*App{}, left: len(set.Apps),
	}
	timed := set.Policy
	if set.Clock != nil {
		timed = &stopwatch{Policy: set.Policy, r: r}
	}
	r.core = control.NewCore(set.Control, timed, state.New())
	r.scribe = newScribe(r, measure.Config{Policy: set.Policy.Name(), Tenants: set.Tenants, Bars: set.Bars})
	r.guard = newGuard(r)
	return r
}

func (r *run) run(ctx context.Context) error {
	if r.set.Options != nil {
		started, err := r.core.Begin(r.clock.now, "", r.set.Options)
		if err != nil {
			return fmt.Errorf("simulating: %w", err)
		}
		if !r.append([]*outbidv1.Event{started}) {
			return r.err
		}
	}
	for i := range r.set.Nodes {
		r.places[r.set.Nodes[i].Name] = i
		r.addMachine(&r.set.Nodes[i])
	}
	for _, s := range r.set.Stays {
		if m := r.machines[s.Node]; m != nil {
			r.at(s.From, m.boot)
			if s.To > 0 {
				r.at(s.To, m.leave)
			}
		}
	}
	for i := range r.set.Apps {
		r.at(r.set.Apps[i].Submit, func() { r.submit(i) })
	}
	for steps := 0; r.err == nil && (r.left > 0 || len(r.core.State().Live) > 0); steps++ {
		if steps%256 == 0 {
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("simulating: %w", context.Cause(ctx))
			}
			r.tell()
		}
		if !r.instant() {
			return fmt.Errorf("simulating: nothing happens any more at %s, and %d apps have not ended: %s",
				r.clock.now.Sub(r.start), len(r.core.State().Live), r.stuck())
		}
	}
	if r.err == nil {
		r.err = r.guard.end()
	}
	r.tell()
	return r.err
}

// instant lets everything happen that is due at the next moment at which something is.
func (r *run) instant() bool {
	if len(r.clock.timers) == 0 {
		return false
	}
	now := r.clock.timers[0].at
	for len(r.clock.timers) > 0 && r.clock.timers[0].at.Equal(now) {
		r.clock.next(now)
	}
	r.settle()
	return true
}

// mostTalk bounds how often core and machines answer each other at one moment: more is a circle.
const mostTalk = 10_000

// settle steps the core until it and the machines have nothing to say to each other.
func (r *run) settle() {
	talk := 0
	for again := true; r.err == nil && (again || len(r.pending) > 0 || len(r.orders) > 0); {
		if talk++; talk > mostTalk {
			r.fail(fmt.Errorf("nothing settles at %s: policy %s gives and takes the same devices again and again",
				r.clock.now.Sub(r.start), r.set.Policy.Name()))
			return
		}
		for _, o := range r.orders {
			r.machines[o.GetNode()].obey(o)
		}
		r.orders = r.orders[:0]
		if len(r.pending) == 0 && !again {
			break
		}
		inputs := r.pending
		r.pending = nil
		out, err := r.core.Step(r.clock.now, inputs...)
		if err != nil {
			r.fail(err)
			return
		}
		if len(out.Events) > 0 && !r.append(out.Events) {
			return
		}
		for _, reply := range out.Replies {
			reply()
		}
		r.orders = append(r.orders, out.Orders...)
		for _, key := range out.Delete {
			delete(r.exact, key)
		}
		again = out.More
	}
	r.wake()
}

func (r *run) append(events []*outbidv1.Event) bool {
	b, err := r.ledger.Append(context.Background(), r.clock.now, events)
	if err != nil {
		r.fail(err)
		return false
	}
	r.core.Appended(b)
	r.events += int64(len(events))
	at := r.clock.now.Sub(r.start).Seconds()
	for _, e := range events {
		if in := e.GetSweepSubmitted(); in != nil {
			if i, err := strconv.Atoi(in.GetIdempotencyKey()); err == nil {
				r.apps[in.GetSweep()] = &r.set.Apps[i]
			}
		}
		if err := r.guard.see(e); err != nil {
			r.fail(fmt.Errorf("invariant broken at %g s in batch %d: %w", at, b.GetSeq(), err))
			return false
		}
		r.scribe.see(at, e)
	}
	r.scribe.flush(at)
	if err := r.guard.batch(); err != nil {
		r.fail(fmt.Errorf("invariant broken at %g s after batch %d: %w", at, b.GetSeq(), err))
		return false
	}
	return true
}

// wake sets a timer for when the policy wants to be asked again.
func (r *run) wake() {
	next := r.core.Next()
	if next.IsZero() || !next.After(r.clock.now) || next.Equal(r.wakeAt) {
		return
	}
	r.wakeAt = next
	r.clock.after(next.Sub(r.clock.now), func() {
		if r.wakeAt.Equal(r.clock.now) {
			r.wakeAt = time.Time{} // the step that follows has no news, but the time
		}
	})
}

// submit hands an app in. The key of the submission says in the event which app it was.
func (r *run) submit(i int) {
	r.left--
	a := &r.set.Apps[i]
	r.pending = append(r.pending, control.Submit{Spec: a.Spec, Actor: "sim", Key: strconv.Itoa(i), Done: func(id string, err error) {
		if err != nil {
			r.fail(fmt.Errorf("submitting app %s: %w", a.Spec.GetName(), err))
		}
		r.person(id, outbidv1.SweepCommand_SWEEP_COMMAND_PAUSE)
		r.timed(id, a)
	}})
}

// timed asks for what people ask for at set times, and lets the core notice that the app's wall time is over.
func (r *run) timed(id string, a *App) {
	for _, c := range a.Commands {
		r.at(c.At, func() {
			r.pending = append(r.pending, control.Command{Sweep: id, Command: c.Command, Actor: "sim", Done: func(error) {}})
		})
	}
	if wall, err := terms.ParseDuration(a.Spec.GetLimits().GetWallTime()); err == nil && wall > 0 {
		r.at(a.Submit+wall, func() { r.pending = append(r.pending, control.Look{Sweep: id}) })
	}
}

// person lets somebody pause an app, and let it go on, now and then.
func (r *run) person(app string, command outbidv1.SweepCommand) {
	next, mean := outbidv1.SweepCommand_SWEEP_COMMAND_RESUME, r.set.Mishaps.AppPauses
	if command == next {
		next, mean = outbidv1.SweepCommand_SWEEP_COMMAND_PAUSE, max(r.set.Mishaps.AppGoesOn, time.Second)
	}
	if r.set.Mishaps.AppPauses <= 0 {
		return
	}
	r.clock.after(r.draw(mean), func() {
		if s := r.core.State().Sweeps[app]; s == nil || s.Done() {
			return
		}
		r.pending = append(r.pending, control.Command{Sweep: app, Command: command, Actor: "sim", Done: func(error) {}})
		r.person(app, next)
	})
}

func (r *run) at(after time.Duration, do func()) {
	r.clock.after(r.start.Add(after).Sub(r.clock.now), do)
}

func (r *run) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *run) tell() {
	if r.set.Progress == nil {
		return
	}
	done, live := r.scribe.meter.Done()
	r.set.Progress(r.clock.now.Sub(r.start), done, done+live+r.left)
}

func (r *run) stuck() string {
	text := ""
	for i, s := range r.core.State().Live {
		if i == 3 {
			return text + "…"
		}
		text += fmt.Sprintf("%s has %d queued and %d running trials (%s); ", s.ID, len(s.Queued), len(s.Running),
			cluster.Impossible(r.set.Nodes, cluster.Demand{
				Min: int(s.Spec.GetResources().GetDevices().GetMin()), Types: s.Spec.GetResources().GetTypes(),
				Spread: s.Spec.GetResources().GetSpread(),
			}))
	}
	return text
}

// stopwatch times a policy's decisions.
type stopwatch struct {
	policy.Policy
	r *run
}

// Decide implements policy.Policy.
func (s *stopwatch) Decide(v *policy.View) policy.Plan {
	began := s.r.set.Clock()
	plan := s.Policy.Decide(v)
	s.r.scribe.meter.Decided(s.r.set.Clock().Sub(began))
	return plan
}

// Preempts implements policy.Preemptive.
func (s *stopwatch) Preempts() bool {
	p, ok := s.Policy.(policy.Preemptive)
	return ok && p.Preempts()
}

// errRead is what a forgetful ledger says.
var errRead = errors.New("this run's ledger was not kept")

// forgetful is a ledger that counts batches, and keeps, encodes and chains none.
type forgetful struct{ seq uint64 }

// Append implements ledger.Ledger.
func (f *forgetful) Append(_ context.Context, at time.Time, _ []*outbidv1.Event) (*outbidv1.Batch, error) {
	f.seq++
	return &outbidv1.Batch{Seq: f.seq, Time: timestamppb.New(at)}, nil
}

func (f *forgetful) Read(context.Context, uint64, func(*outbidv1.Batch) error) error { return errRead }
func (f *forgetful) Resume(uint64, []byte)                                           {}
func (f *forgetful) SaveSnapshot(context.Context, uint64, []byte) error              { return errRead }

func (f *forgetful) Last(context.Context) (uint64, error) { return f.seq, nil }

func (f *forgetful) LoadSnapshot(context.Context) (uint64, []byte, error) { return 0, nil, errRead }
