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
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/state"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// view is what readers see. It never changes: after each append there is another one, which shares with it what is as it
// was. It holds only what is in the ledger, and what tuners said of it.
type view struct {
	*state.Published
	outlooks *immutable.Map[string, tuner.Outlook]
}

// publishAll lets readers see the whole state.
func (l *Loop) publishAll() {
	v := &view{l.core.st.Publish(), immutable.NewMap[string, tuner.Outlook](nil)}
	for _, id := range v.SweepIDs {
		v.ask(l.core, id)
	}
	l.view.Store(v)
}

// publish lets readers see what has changed, and wakes those who wait for that.
func (l *Loop) publish(changes []state.Change) {
	before := l.view.Load()
	now, tell := before.After(l.core.st, changes)
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

// ask takes in what a sweep's tuner will do in all.
func (v *view) ask(c *Core, id string) {
	if o, known := c.outlook(id); known {
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

// app is a sweep as policies see it.
func (v *view) app(s *state.PublishedSweep) *policy.App {
	at := &appEntry{sweep: s.Sweep(), app: &policy.App{}}
	at.describe(func() tuner.Outlook { o, _ := v.outlooks.Get(at.sweep.ID); return o })
	at.update(at.sweep, s.Len())
	active := slices.Concat(at.sweep.Running, at.sweep.Queued)
	slices.Sort(active)
	for _, n := range slices.Compact(active) {
		if t := s.At(n); shown(t) {
			j := &policy.Job{Demand: at.app.Demand}
			at.fill(j, t, v.Inventory.Index)
			at.app.Jobs = append(at.app.Jobs, j)
		}
	}
	return at.app
}

// whyWaiting says why a sweep's trials wait for devices.
func (v *view) whyWaiting(s *state.PublishedSweep) string {
	if s.Sweep().Spec.GetExternal() != nil {
		return ""
	}
	if why := cluster.Impossible(v.Inventory.Nodes, s.Sweep().Terms.Demand); why != "" {
		return why
	}
	if why := v.keptOff(s); why != "" {
		return why
	}
	if why := v.TenantFull(state.TenantOf(s.Sweep().Spec), s.Sweep().Terms.Demand, v.Time); why != "" {
		return why
	}
	queued := s.Sweep().Queued
	if len(queued) > 0 && alone(s.At(queued[0])) {
		return fmt.Sprintf("trial %d waits for a node of its own, as nodes were lost under it", queued[0])
	}
	if len(queued) > 0 {
		return "waits for devices that others hold"
	}
	return fmt.Sprintf("waits for devices; %d of this cluster's are held", v.Held())
}

// keptOff says why no node that could run a sweep's trials takes them now; "" if one does.
func (v *view) keptOff(s *state.PublishedSweep) string {
	open, reasons, now := slices.Clone(v.Inventory.Nodes), []string{}, time.Now()
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

// drawing is a sweep as readers saw it last. What has not changed is not worked out again.
type drawing struct {
	mu sync.Mutex
	// of, in is what view shows, made At.
	of        *state.PublishedSweep
	inventory *state.Inventory
	view      *outbidv1.Sweep
	at        time.Time
	// fairness as it was fairAt.
	fairness *outbidv1.Fairness
	fairAt   time.Time
	// best are the trials of ranked, the best first.
	ranked *state.PublishedSweep
	best   []*state.Trial
	// failed are the parts that could not be shown; each is logged once.
	failed map[string]bool
}

// drawnFor is how long a sweep that goes on is shown as it was though time passed; and how long what a forecast says of it
// holds, as that costs the most.
const drawnFor = time.Second

// sweep is a sweep as readers see it.
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
	if d.of == nil || d.of.Sweep().Version <= s.Sweep().Version { // another reader may have seen a newer one
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
		l.part(d, s, "waiting", func() { drawn.Waiting = v.whyWaiting(of) })
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

// fairness forecasts how a sweep fares, unless that was done just now.
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
		Tenants: tenantsInView(v.Tenants(), nil),
	}, v.app(of), false)
	if d.fairness != nil {
		d.fairness.Auction = l.recent.lastFared(of.Sweep().ID)
	}
	d.fairAt = time.Now()
	return d.fairness
}

// capacity is that of a cluster on which nothing runs.
type capacity struct {
	of   *state.Inventory
	free *cluster.Capacity
}

// idle is the capacity of a cluster on which nothing runs. It is not changed.
func (l *Loop) idle(of *state.Inventory) *cluster.Capacity {
	known := l.capacity.Load()
	if known == nil || known.of != of {
		known = &capacity{of, cluster.NewCapacity(of.Nodes)}
		l.capacity.Store(known)
	}
	return known.free
}

// best lists a sweep's trials, the best first. The list is not changed.
func (l *Loop) best(s *state.PublishedSweep) []*state.Trial {
	d := l.drawing(s)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ranked != s {
		d.ranked, d.best = s, s.Best()
	}
	return d.best
}

// part computes one part of a sweep's view. If that panics, the view does without it, so that the other parts and the
// other sweeps of a list are shown all the same. A sweep's part is logged the first time only: readers come many times a
// second.
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
		l.cfg.Logger.Error("a part of a sweep cannot be shown; it is left out from now on", "sweep", s.ID, "part", name,
			"err", fmt.Sprint(p), "stack", string(debug.Stack()))
	}()
	compute()
}
