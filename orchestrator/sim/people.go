package sim

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/spec"
	"github.com/outbid-dev/outbid/orchestrator/spec/terms"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// people are the users of the orchestrator. They set prices, submit apps, pause and resume them, and repeat each request until it is
// answered.
type people struct {
	world *World
	// apps are indexed by sweep; all lists them in order of submission; left is the number that have not arrived yet.
	apps map[string]*App
	all  []*App
	left int
	// asked are the unanswered requests, by number. They are repeated after a crash of the orchestrator.
	asked map[int]func() control.Input
	asks  int
}

// Submit submits a sweep at once and returns its ID.
func (w *World) Submit(sweep *outbidv1.SweepSpec) (id string, err error) {
	spec.Default(sweep)
	w.submit(w.register(&App{Spec: sweep}), func(got string, failed error) { id, err = got, failed })
	w.settle()
	if err == nil {
		err = w.err
	}
	return id, err
}

// Do passes an input to the orchestrator at once. It is lost if the orchestrator crashes meanwhile.
func (w *World) Do(in control.Input) {
	w.pending = append(w.pending, in)
	w.settle()
}

// arrive schedules the submission of an app.
func (p *people) arrive(a *App) {
	p.left++
	number := p.register(a)
	p.world.at(a.Submit, func() {
		p.left--
		p.submit(number, func(id string, err error) {
			if err != nil {
				p.world.fail(fmt.Errorf("submitting app %s: %w", a.Spec.GetName(), err))
				return
			}
			p.person(id, outbidv1.SweepCommand_SWEEP_COMMAND_PAUSE)
			p.timed(id, a)
		})
	})
}

// ask passes a request to the orchestrator, again after each crash until there is an answer.
func (p *people) ask(input func(answered func()) control.Input) {
	p.asks++
	number := p.asks
	p.asked[number] = func() control.Input { return input(func() { delete(p.asked, number) }) }
	p.world.pending = append(p.world.pending, p.asked[number]())
}

// register gives an app its number.
func (p *people) register(a *App) int {
	p.all = append(p.all, a)
	return len(p.all) - 1
}

// submit submits an app. The idempotency key identifies the app in the event and in repeated submissions.
func (p *people) submit(app int, done func(id string, err error)) {
	p.ask(func(answered func()) control.Input {
		return control.Submit{Spec: p.all[app].Spec, Actor: "sim", Key: strconv.Itoa(app), Done: func(id string, err error) {
			answered()
			done(id, err)
		}}
	})
}

// command requests a command on a sweep.
func (p *people) command(sweep string, command outbidv1.SweepCommand) {
	p.ask(func(answered func()) control.Input {
		return control.Command{Sweep: sweep, Command: command, Actor: "sim", Done: func(error) { answered() }}
	})
}

// weigh requests another weight for a sweep, unless it is ending or has ended: an extension would reopen it.
func (p *people) weigh(sweep string, weight float64) {
	if s := p.world.core.State().Sweeps[sweep]; s == nil || s.Done() || s.State == outbidv1.SweepState_SWEEP_STATE_STOPPING {
		return
	}
	p.ask(func(answered func()) control.Input {
		req := &outbidv1.ExtendSweepRequest{Sweep: sweep, Weight: &weight}
		return control.Extend{Request: req, Actor: "sim", Done: func(_ []*outbidv1.TrainedAgain, err error) {
			answered()
			if err != nil {
				p.world.fail(fmt.Errorf("changing the weight of %s: %w", sweep, err))
			}
		}}
	})
}

// timed schedules the app's commands, and lets the core notice the end of the app's wall time, device-hours and cost.
func (p *people) timed(id string, a *App) {
	for _, c := range a.Commands {
		p.world.at(c.At, func() {
			if c.Weight != 0 {
				p.weigh(id, c.Weight)
				return
			}
			p.command(id, c.Command)
		})
	}
	if wall, err := terms.ParseDuration(a.Spec.GetLimits().GetWallTime()); err == nil && wall > 0 {
		p.world.at(a.Submit+wall, func() { p.world.pending = append(p.world.pending, control.CheckLimits{Sweep: id}) })
	}
	if a.Spec.GetLimits().GetDeviceHours() > 0 || a.Spec.GetLimits().GetCost() > 0 {
		p.world.at(a.Submit, func() { p.meter(id, a.Spec.GetLimits()) })
	}
}

// meter lets the core check an app's device-hours and cost whenever the app could have used them up with all devices of
// the cluster, at most once a second. limits are those before the app is submitted.
func (p *people) meter(id string, limits *outbidv1.Limits) {
	seconds, cost := 0.0, 0.0
	if s := p.world.core.State().Sweeps[id]; s != nil {
		if s.Done() {
			return
		}
		p.world.pending = append(p.world.pending, control.CheckLimits{Sweep: id})
		limits, seconds, cost = s.Spec.GetLimits(), s.DeviceSecondsAt(p.world.clock.now), state.CostAt(s, p.world.clock.now)
	}
	devices, dearest := 0, 0.0
	for _, n := range p.world.set.Nodes {
		devices += len(n.Devices)
	}
	for _, c := range p.world.set.Prices {
		dearest = max(dearest, state.DearestHour(c.Prices))
	}
	left := math.Inf(1) // in seconds of all devices
	if most := limits.GetDeviceHours(); most > 0 {
		left = most*3600 - seconds
	}
	if most := limits.GetCost(); most > 0 && dearest > 0 {
		left = min(left, (most-cost)/dearest*3600)
	}
	if !math.IsInf(left, 1) {
		wait := time.Duration(left / float64(max(1, devices)) * float64(time.Second))
		p.world.clock.after(max(time.Second, wait), func() { p.meter(id, limits) })
	}
}

// prices returns the current prices of devices, or nil.
func (p *people) prices() *outbidv1.DevicePrices {
	var now *outbidv1.DevicePrices
	for _, c := range p.world.set.Prices {
		if !p.world.start.Add(c.At).After(p.world.clock.now) {
			now = c.Prices
		}
	}
	return now
}

// person pauses and resumes an app at random times.
func (p *people) person(app string, command outbidv1.SweepCommand) {
	next, mean := outbidv1.SweepCommand_SWEEP_COMMAND_RESUME, p.world.set.Mishaps.AppPauses
	if command == next {
		next, mean = outbidv1.SweepCommand_SWEEP_COMMAND_PAUSE, max(p.world.set.Mishaps.AppGoesOn, time.Second)
	}
	if p.world.set.Mishaps.AppPauses <= 0 {
		return
	}
	p.world.clock.after(exponential(p.world.rng, mean), func() {
		if s := p.world.core.State().Sweeps[app]; s == nil || s.Done() {
			return
		}
		p.command(app, command)
		p.person(app, next)
	})
}

// forever is longer than any run.
const forever = 1 << 62

// runApps runs the setup's apps to their ends.
func (w *World) runApps(ctx context.Context) error {
	end := w.start.Add(forever)
	for steps := 0; w.err == nil && (w.left > 0 || len(w.asked) > 0 || len(w.core.State().Live) > 0); steps++ {
		if steps%256 == 0 {
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("simulating: %w", context.Cause(ctx))
			}
			w.tell()
		}
		if !w.instant(end) {
			return fmt.Errorf("simulating: no more events after %s, but %d apps have not ended: %s",
				w.clock.now.Sub(w.start), len(w.core.State().Live), w.stuck())
		}
	}
	if w.err == nil {
		w.fail(w.invariants.end())
	}
	w.tell()
	return w.err
}

// tell reports progress.
func (w *World) tell() {
	if w.set.Progress == nil {
		return
	}
	done, live := w.recorder.meter.Done()
	w.set.Progress(w.clock.now.Sub(w.start), done, done+live+w.left)
}

// stuck explains why the run does not continue.
func (w *World) stuck() string {
	text := ""
	for i, s := range w.core.State().Live {
		if i == 3 {
			return text + "…"
		}
		text += fmt.Sprintf("%s has %d queued and %d running trials (%s); ", s.ID, len(s.Queued), len(s.Running),
			cluster.Impossible(w.nodes, cluster.Demand{
				Min: int(s.Spec.GetResources().GetDevices().GetMin()), Types: s.Spec.GetResources().GetTypes(),
				MultiNode: s.Spec.GetResources().GetSpread(),
			}))
	}
	return text
}

// addTenant adds a tenant in the role of an administrator.
func (w *World) addTenant(t *outbidv1.Tenant) {
	w.pending = append(w.pending, control.SetTenant{Tenant: t, Actor: "simulation", Done: w.fail})
}
