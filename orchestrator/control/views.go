package control

import (
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/benbjohnson/immutable"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/control/rounds"
	"github.com/outbid-dev/outbid/orchestrator/control/tenants"
	"github.com/outbid-dev/outbid/orchestrator/control/trials"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/state"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// view is an immutable state for readers. After each append a new view replaces it, which shares the unchanged parts.
// It contains only the state in the ledger and the outlooks of tuners.
type view struct {
	*state.Published
	outlooks *immutable.Map[string, tuner.Outlook]
}

// publishAll publishes the whole state to readers.
func (l *Loop) publishAll() {
	v := &view{l.core.State().Publish(), immutable.NewMap[string, tuner.Outlook](nil)}
	for _, id := range v.SweepIDs {
		v.ask(l.core, id)
	}
	l.view.Store(v)
}

// publish publishes changes to readers, and wakes those who wait for them.
func (l *Loop) publish(changes []state.Change) {
	before := l.view.Load()
	now, tell := before.After(l.core.State(), changes)
	v := &view{now, before.outlooks}
	asked := map[string]bool{}
	for i := range changes {
		c := &changes[i]
		if c.Kind.Outlook && !asked[c.Sweep.ID] {
			asked[c.Sweep.ID] = true
			v.ask(l.core, c.Sweep.ID)
		}
		if c.SweepGone() {
			l.drawn.Delete(c.Sweep.ID)
		}
		if c.SweepGone() || c.SweepEnded() {
			l.recent.forget(c.Sweep.ID)
		}
	}
	l.view.Store(v)
	tell()
}

// ask updates the total work that a sweep's tuner expects.
func (v *view) ask(c *Core, id string) {
	if o, known := c.tuning.Outlook(id); known {
		v.outlooks = v.outlooks.Set(id, o)
	} else {
		v.outlooks = v.outlooks.Delete(id)
	}
}

// each calls f with every sweep, without its trials, in order of submission.
func (v *view) each(f func(*state.Sweep)) {
	for _, id := range v.SweepIDs {
		if s, err := v.Sweep(id); err == nil {
			f(s.Sweep())
		}
	}
}

// app returns a sweep as policies see it.
func (v *view) app(s *state.PublishedSweep) *policy.App {
	of := s.Sweep()
	numbers := slices.Concat(of.Running, of.Queued)
	slices.Sort(numbers)
	var active []*state.Trial
	for _, n := range slices.Compact(numbers) {
		active = append(active, s.At(n))
	}
	return rounds.App(of, s.Len(), active, v.Inventory.Index, func() tuner.Outlook { o, _ := v.outlooks.Get(of.ID); return o })
}

// whyWaiting returns why a sweep's trials wait for devices at a time of the ledger.
func (v *view) whyWaiting(s *state.PublishedSweep, now time.Time) string {
	if s.Sweep().Spec.GetExternal() != nil {
		return ""
	}
	if why := cluster.Impossible(v.Inventory.Nodes, s.Sweep().Terms.Demand); why != "" {
		return why
	}
	if why := v.keptOff(s, now); why != "" {
		return why
	}
	if why := v.TenantFull(state.TenantOf(s.Sweep().Spec), s.Sweep().Terms.Demand, now); why != "" {
		return why
	}
	queued := s.Sweep().Queued
	if len(queued) > 0 && trials.Alone(s.At(queued[0])) {
		return fmt.Sprintf("trial %d waits for a node without other trials, because it lost nodes before", queued[0])
	}
	if len(queued) > 0 {
		return "waits for devices that other trials hold"
	}
	return fmt.Sprintf("waits for devices; %d of the cluster's devices are held", v.Held())
}

// keptOff returns why no node that could run a sweep's trials accepts them now, or "" if one does.
func (v *view) keptOff(s *state.PublishedSweep, now time.Time) string {
	open, reasons := slices.Clone(v.Inventory.Nodes), []string{}
	v.Nodes(func(name string, n *state.PublishedNode) {
		i, up := v.Inventory.Index[name]
		if !up || len(n.View.GetFaults()) == 0 {
			return
		}
		for _, o := range n.View.GetFaults() {
			if (o.GetSweep() == "" || o.GetSweep() == s.Sweep().ID) && state.FaultActive(o, now) && !open[i].Draining {
				open[i].Draining = true
				reasons = append(reasons, fmt.Sprintf("%s (%s): %s", name, state.FaultWord(o, now), o.GetReason()))
			}
		}
	})
	if len(reasons) == 0 || cluster.Impossible(open, s.Sweep().Terms.Demand) == "" {
		return ""
	}
	if more := len(reasons) - 3; more > 0 {
		reasons = append(reasons[:3], fmt.Sprintf("and %d more", more))
	}
	return "waits for a node that can start its trials; " + strings.Join(reasons, "; ")
}

// drawing caches a sweep as readers last saw it.
type drawing struct {
	mu sync.Mutex
	// view was made from of and in inventory at the given time.
	of        *state.PublishedSweep
	inventory *state.Inventory
	view      *outbidv1.Sweep
	at        time.Time
	// fairness as of fairAt.
	fairness *outbidv1.Fairness
	fairAt   time.Time
	// best are the trials of ranked, the best first.
	ranked *state.PublishedSweep
	best   []*state.Trial
	// failed are the parts that could not be shown; each is logged once.
	failed map[string]bool
}

// drawnFor is how long the view of a running sweep is reused although time passes. A forecast, which costs the most,
// is reused for as long.
const drawnFor = time.Second

// sweep returns a sweep as readers see it.
func (l *Loop) sweep(v *view, s *state.PublishedSweep) *outbidv1.Sweep {
	d := l.drawing(s)
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	over := s.Sweep().Done() && len(s.Sweep().Running) == 0
	if d.of == s && (over || d.inventory == v.Inventory && now.Sub(d.at) < drawnFor) {
		return d.view
	}
	drawn := l.draw(d, v, s)
	if d.of == nil || d.of.Sweep().Version <= s.Sweep().Version { // another reader may have stored a newer one
		d.of, d.inventory, d.view, d.at = s, v.Inventory, drawn, now
	}
	return drawn
}

func (l *Loop) drawing(s *state.PublishedSweep) *drawing {
	kept, known := l.drawn.Load(s.Sweep().ID)
	if !known {
		kept, _ = l.drawn.LoadOrStore(s.Sweep().ID, &drawing{})
	}
	d, _ := kept.(*drawing)
	return d
}

func (l *Loop) draw(d *drawing, v *view, of *state.PublishedSweep) *outbidv1.Sweep {
	s := of.Sweep()
	drawn := &outbidv1.Sweep{Id: s.ID, Spec: s.Spec, State: s.State, Actor: s.Actor}
	l.part(d, s, "state", func() { drawn = of.View(v.Time) })
	if s.State == outbidv1.SweepState_SWEEP_STATE_RUNNING && (len(s.Queued) > 0 || len(s.Running) == 0) {
		l.part(d, s, "waiting", func() { drawn.Waiting = v.whyWaiting(of, l.clock.now()) })
	}
	l.part(d, s, "outlook", func() {
		if o, known := v.outlooks.Get(s.ID); known {
			drawn.Outlook = o.Message()
		}
	})
	if !s.Done() {
		l.part(d, s, "fairness", func() { drawn.Fairness = l.fairness(d, v, of) })
	}
	return drawn
}

// fairness forecasts how a sweep fares, or returns a recent forecast.
func (l *Loop) fairness(d *drawing, v *view, of *state.PublishedSweep) *outbidv1.Fairness {
	if l.cfg.Fairness == nil || of.Sweep().Spec.GetExternal() != nil {
		return nil
	}
	if d.fairness != nil && d.inventory == v.Inventory && time.Since(d.fairAt) < drawnFor {
		return d.fairness
	}
	now := l.clock.now()
	d.fairness = l.cfg.Fairness(&policy.View{
		Now: now, AppSeconds: v.AppSeconds(now), MeanWeight: v.MeanWeight, Nodes: v.Inventory.Nodes, Free: l.idle(v.Inventory),
		Tenants: tenants.InView(v.Tenants(), nil),
	}, v.app(of), false)
	if d.fairness != nil {
		d.fairness.Auction = l.recent.lastFared(of.Sweep().ID)
	}
	d.fairAt = time.Now()
	return d.fairness
}

// capacity caches the capacity of an idle cluster.
type capacity struct {
	of   *state.Inventory
	free *cluster.Capacity
}

// idle returns the capacity of the cluster as if it were idle. The result must not be changed.
func (l *Loop) idle(of *state.Inventory) *cluster.Capacity {
	known := l.capacity.Load()
	if known == nil || known.of != of {
		known = &capacity{of, cluster.NewCapacity(of.Nodes)}
		l.capacity.Store(known)
	}
	return known.free
}

// best lists a sweep's trials, the best first. The list must not be changed.
func (l *Loop) best(s *state.PublishedSweep) []*state.Trial {
	d := l.drawing(s)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ranked != s {
		d.ranked, d.best = s, s.Best()
	}
	return d.best
}

// part computes one part of a sweep's view. After a panic the view lacks only this part, so that readers still see
// the other parts and sweeps. Only the first panic of a part is logged, because readers come many times a second.
func (l *Loop) part(d *drawing, s *state.Sweep, name string, compute func()) {
	defer func() {
		p := recover()
		if p == nil || d.failed[name] {
			return
		}
		if d.failed == nil {
			d.failed = map[string]bool{}
		}
		d.failed[name] = true
		l.cfg.Logger.Error("could not compute a part of a sweep's view; it is left out", "sweep", s.ID, "part", name,
			"err", fmt.Sprint(p), "stack", string(debug.Stack()))
	}()
	compute()
}
