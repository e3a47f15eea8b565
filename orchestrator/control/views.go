package control

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/benbjohnson/immutable"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/control/tenants"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/state"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// views hold what readers see: the state after the last append. Readers take no lock that Run holds.
type views struct {
	current atomic.Pointer[view]
	// drawn holds the latest version of each sweep for readers, by ID.
	drawn    sync.Map
	capacity atomic.Pointer[capacity]
	recent   *recent
	time     *timekeeper
	// forecast is called concurrently for readers. It may be nil.
	forecast func(v *policy.View, a *policy.App, over bool) *outbidv1.Fairness
	logger   *slog.Logger
}

// load returns the current view, which is nil until the first was published.
func (w *views) load() *view { return w.current.Load() }

// publishAll publishes the whole state to readers.
func (w *views) publishAll(core *Core) {
	v := &view{core.State().Publish(), immutable.NewMap[string, tuner.Outlook](nil)}
	for _, id := range v.SweepIDs {
		v.ask(core, id)
	}
	w.current.Store(v)
}

// publish publishes changes to readers, and wakes those who wait for them.
func (w *views) publish(core *Core, changes []state.Change) {
	before := w.load()
	now, tell := before.After(core.State(), changes)
	v := &view{now, before.outlooks}
	asked := map[string]bool{}
	for i := range changes {
		c := &changes[i]
		if c.Kind.Outlook && !asked[c.Sweep.ID] {
			asked[c.Sweep.ID] = true
			v.ask(core, c.Sweep.ID)
		}
		if c.SweepGone() {
			w.drawn.Delete(c.Sweep.ID)
		}
		if c.SweepGone() || c.SweepEnded() {
			w.recent.forget(c.Sweep.ID)
		}
	}
	w.current.Store(v)
	tell()
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
func (w *views) sweep(v *view, s *state.PublishedSweep) *outbidv1.Sweep {
	d := w.drawing(s)
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	over := s.Sweep().Done() && len(s.Sweep().Running) == 0
	if d.of == s && (over || d.inventory == v.Inventory && now.Sub(d.at) < drawnFor) {
		return d.view
	}
	drawn := w.draw(d, v, s)
	if d.of == nil || d.of.Sweep().Version <= s.Sweep().Version { // another reader may have stored a newer one
		d.of, d.inventory, d.view, d.at = s, v.Inventory, drawn, now
	}
	return drawn
}

func (w *views) drawing(s *state.PublishedSweep) *drawing {
	kept, known := w.drawn.Load(s.Sweep().ID)
	if !known {
		kept, _ = w.drawn.LoadOrStore(s.Sweep().ID, &drawing{})
	}
	d, _ := kept.(*drawing)
	return d
}

func (w *views) draw(d *drawing, v *view, of *state.PublishedSweep) *outbidv1.Sweep {
	s := of.Sweep()
	drawn := &outbidv1.Sweep{Id: s.ID, Spec: s.Spec, State: s.State, Actor: s.Actor}
	w.part(d, s, "state", func() { drawn = of.View(v.Time) })
	w.part(d, s, "cost", func() { v.AddCost(drawn, of) })
	if s.State == outbidv1.SweepState_SWEEP_STATE_RUNNING && (len(s.Queued) > 0 || len(s.Running) == 0) {
		w.part(d, s, "waiting", func() { drawn.Waiting = v.whyWaiting(of, w.time.now()) })
	}
	w.part(d, s, "outlook", func() {
		if o, known := v.outlooks.Get(s.ID); known {
			drawn.Outlook = o.Message()
		}
	})
	if !s.Done() {
		w.part(d, s, "fairness", func() { drawn.Fairness = w.fairness(d, v, of) })
	}
	return drawn
}

// fairness forecasts how a sweep fares, or returns a recent forecast.
func (w *views) fairness(d *drawing, v *view, of *state.PublishedSweep) *outbidv1.Fairness {
	if w.forecast == nil || of.Sweep().Spec.GetExternal() != nil {
		return nil
	}
	if d.fairness != nil && d.inventory == v.Inventory && time.Since(d.fairAt) < drawnFor {
		return d.fairness
	}
	now := w.time.now()
	d.fairness = w.forecast(&policy.View{
		Now: now, AppSeconds: v.AppSeconds(now), MeanWeight: v.MeanWeight, Nodes: v.Inventory.Nodes, Free: w.idle(v.Inventory),
		Tenants: tenants.InView(v.Tenants(), nil),
	}, v.app(of), false)
	if d.fairness != nil {
		d.fairness.Auction = w.recent.lastFared(of.Sweep().ID)
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
func (w *views) idle(of *state.Inventory) *cluster.Capacity {
	known := w.capacity.Load()
	if known == nil || known.of != of {
		known = &capacity{of, cluster.NewCapacity(of.Nodes)}
		w.capacity.Store(known)
	}
	return known.free
}

// best lists a sweep's trials, the best first. The list must not be changed.
func (w *views) best(s *state.PublishedSweep) []*state.Trial {
	d := w.drawing(s)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ranked != s {
		d.ranked, d.best = s, s.Best()
	}
	return d.best
}

// part computes one part of a sweep's view. After a panic the view lacks only this part, so that readers still see
// the other parts and sweeps. Only the first panic of a part is logged, because readers come many times a second.
func (w *views) part(d *drawing, s *state.Sweep, name string, compute func()) {
	defer func() {
		p := recover()
		if p == nil || d.failed[name] {
			return
		}
		if d.failed == nil {
			d.failed = map[string]bool{}
		}
		d.failed[name] = true
		w.logger.Error("could not compute a part of a sweep's view; it is left out", "sweep", s.ID, "part", name,
			"err", fmt.Sprint(p), "stack", string(debug.Stack()))
	}()
	compute()
}
