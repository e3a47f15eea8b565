package control

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/spec"
	"github.com/outbid-dev/outbid/orchestrator/spec/terms"
	"github.com/outbid-dev/outbid/orchestrator/state"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// viewCache is the policy's view, kept up to date as events are folded in: what changed is looked at again before a
// round, and nothing else, so that a round costs what changed and not what there is.
type viewCache struct {
	view  policy.View
	nodes map[string]int
	// estimates of how fast types of devices are, for jobs that may be forked.
	estimates map[string]float64
	apps      map[string]*appEntry
	live      *live

	// apart are the nodes that others keep off, for trials that run alone.
	apart map[string]bool
	// off are the nodes that new trials keep off; avoiding is set while some trials keep off some node.
	off      map[string]bool
	avoiding bool
	// spent are the tenants whose device-hours are used up.
	spent       map[string]bool
	staleNodes  bool
	staleSweeps map[*state.Sweep]bool
	staleTrials map[*state.Trial]*state.Sweep
}

// appEntry is a sweep in the view.
type appEntry struct {
	sweep *state.Sweep
	app   *policy.App
	// hints of the spec about speeds, and whether some are of one trial only.
	hints   []cluster.Speed
	byTrial map[int32][]cluster.Speed
	jobs    map[int32]*jobEntry
}

// jobEntry is a trial in the view. held is the gang that the view's capacity lacks.
type jobEntry struct {
	job  *policy.Job
	held cluster.Gang
}

func newViewCache() *viewCache {
	return &viewCache{
		nodes: map[string]int{}, apps: map[string]*appEntry{}, staleNodes: true,
		staleSweeps: map[*state.Sweep]bool{}, staleTrials: map[*state.Trial]*state.Sweep{},
	}
}

// mark notes what an event changed.
func (b *viewCache) mark(change state.Change) {
	s := change.Sweep
	switch change.Kind.View {
	case state.ViewNodes, state.ViewTenants:
		b.staleNodes = true
	case state.ViewSweep, state.ViewWaiting, state.ViewTrial:
		if s.Spec.GetExternal() != nil {
			return
		}
		b.staleSweeps[s] = true
		if change.Trial != nil {
			b.staleTrials[change.Trial] = s
		}
	}
	if change.Kind.View == state.ViewWaiting { // it may have brought trials back
		for _, n := range s.Queued {
			b.staleTrials[s.Trials[n]] = s
		}
	}
}

// refresh brings the view up to date and returns it.
func (b *viewCache) refresh(c *Core) *policy.View {
	b.view.Now, b.view.Round, b.view.AppSeconds = c.now, c.st.NextRound, c.st.AppSeconds(c.now)
	if b.live == nil {
		b.live = &live{core: c}
		b.view.MeanWeight = b.live.meanWeight
	}
	if apart := c.apart(); !maps.Equal(apart, b.apart) {
		b.apart, b.staleNodes = apart, true
	}
	if off := c.keptOff(); !maps.Equal(off, b.off) {
		b.off, b.staleNodes = off, true
	}
	if spent, _ := c.meter(); !maps.Equal(spent, b.spent) {
		b.spent, b.staleNodes = spent, true
	}
	if b.staleNodes {
		b.rebuild(c)
	}
	b.markAvoiding(c)
	for s := range b.staleSweeps { // in any order: each changes its own place only
		b.refreshSweep(s)
	}
	stale := slices.SortedFunc(maps.Keys(b.staleTrials), func(t, o *state.Trial) int {
		return cmp.Or(b.staleTrials[t].Order-b.staleTrials[o].Order, int(t.Number-o.Number))
	})
	for _, t := range stale { // before others take what these held
		if at := b.apps[b.staleTrials[t].ID]; at != nil {
			b.vacate(at.jobs[t.Number], held(t, b.nodes))
		}
	}
	for _, t := range stale {
		b.refreshTrial(c, b.staleTrials[t], t)
	}
	clear(b.staleSweeps)
	clear(b.staleTrials)
	b.view.Free.Commit()
	return &b.view
}

// vacate frees what a trial held unless it holds it still.
func (b *viewCache) vacate(ch *jobEntry, gang cluster.Gang) {
	if ch != nil && !gang.Equal(ch.held) {
		b.view.Free.Release(ch.held, ch.job.Demand)
		ch.held = nil
	}
}

// rebuild starts over: gangs name nodes by index, and those have changed.
func (b *viewCache) rebuild(c *Core) {
	b.staleNodes = false
	clear(b.nodes)
	b.view.Nodes = nil
	for _, name := range c.st.NodeNames {
		if n := c.st.Nodes[name]; n.Up() {
			b.nodes[name] = len(b.view.Nodes)
			shape := n.Shape
			shape.Draining = shape.Draining || b.apart[name] || b.off[name]
			b.view.Nodes = append(b.view.Nodes, shape)
		}
	}
	b.view.Free, b.estimates = cluster.NewCapacity(b.view.Nodes), cluster.Estimates(b.view.Nodes)
	b.view.Tenants = tenantsInView(c.st.Tenants(), b.spent)
	b.view.Bound()
	b.view.Apps, b.apps = nil, map[string]*appEntry{}
	for _, s := range c.st.Live {
		if s.Spec.GetExternal() != nil {
			continue
		}
		b.staleSweeps[s] = true
		for _, n := range s.Running {
			b.staleTrials[s.Trials[n]] = s
		}
		for _, n := range s.Queued {
			b.staleTrials[s.Trials[n]] = s
		}
	}
}

func (b *viewCache) refreshSweep(s *state.Sweep) {
	at := b.apps[s.ID]
	if s.Done() {
		if at != nil {
			delete(b.apps, s.ID)
			for _, ch := range at.jobs {
				b.view.Free.Release(ch.held, ch.job.Demand)
			}
			if i := slices.Index(b.view.Apps, at.app); i >= 0 {
				b.view.Apps = slices.Delete(b.view.Apps, i, i+1)
			}
		}
		return
	}
	if at == nil || at.sweep.Spec != at.app.Spec {
		at = b.describe(s, at)
		for n := range at.jobs { // how far they are to be trained at most has changed, those that run too
			b.staleTrials[s.Trials[n]] = s
		}
	}
	at.update(s, len(s.Trials))
	if at.forkable() {
		at.app.Speeds.Estimated = b.estimates
	}
}

// update takes in how far a sweep is.
func (at *appEntry) update(s *state.Sweep, trials int) {
	a := at.app
	a.DeviceSeconds, a.StepsDone = s.DeviceSeconds, s.Steps
	a.Paused = s.State != outbidv1.SweepState_SWEEP_STATE_RUNNING
	open := s.Counts[outbidv1.TrialState_TRIAL_STATE_QUEUED] + s.Counts[outbidv1.TrialState_TRIAL_STATE_RUNNING] +
		s.Counts[outbidv1.TrialState_TRIAL_STATE_PAUSED]
	a.Finished = trials - int(open)
	a.Speeds.Measured = merged(s.Measured, at.hints)
}

// describe adds a sweep to the view, or brings it up to date after an extension.
func (b *viewCache) describe(s *state.Sweep, at *appEntry) *appEntry {
	if at == nil {
		at = &appEntry{sweep: s, app: &policy.App{}, jobs: map[int32]*jobEntry{}}
		b.apps[s.ID] = at
		i, _ := slices.BinarySearchFunc(b.view.Apps, s.Order, func(a *policy.App, order int) int { return a.Order - order })
		b.view.Apps = slices.Insert(b.view.Apps, i, at.app)
	}
	of := b.live
	at.describe(func() tuner.Outlook { return of.outlook(s.ID) })
	at.app.Demand.Quota = b.view.QuotaOf(state.TenantOf(s.Spec))
	return at
}

// describe fills in what only an extension of the sweep changes.
func (at *appEntry) describe(outlook func() tuner.Outlook) {
	s := at.sweep
	at.readHints()
	weight := s.Spec.GetWeight()
	if weight == 0 {
		weight = 1
	}
	jobs := at.app.Jobs
	*at.app = policy.App{
		ID: s.ID, Tenant: s.Spec.GetTenant(), Weight: weight, Submitted: s.Submitted, Order: s.Order, Spec: s.Spec,
		AppSecondsBefore: s.AppSecondsBefore, Demand: s.Terms.Demand, Speeds: &cluster.Speeds{}, Jobs: jobs,
		TotalSteps: spec.MaxSteps(s.Spec.GetTuner()), Tuner: spec.TunerKind(s.Spec.GetTuner()),
		Utility: s.Terms.Utility, Deadline: s.Terms.Deadline(s.Submitted), Outlook: outlook, Forks: s.Terms.MostForks, LeastForks: s.Terms.LeastForks,
	}
}

func (at *appEntry) readHints() {
	at.hints, at.byTrial = nil, nil
	for _, h := range at.sweep.Spec.GetThroughputs() {
		m, _ := terms.SpeedOf(h)
		if h.Trial == nil {
			at.hints = append(at.hints, m)
			continue
		}
		if at.byTrial == nil {
			at.byTrial = map[int32][]cluster.Speed{}
		}
		at.byTrial[h.GetTrial()] = append(at.byTrial[h.GetTrial()], m)
	}
}

// merged is what was measured, and of the hints what was not.
func merged(measured, hints []cluster.Speed) []cluster.Speed {
	if len(measured) == 0 {
		return hints
	}
	all := slices.Clone(measured)
	for _, h := range hints {
		if !slices.ContainsFunc(all, func(m cluster.Speed) bool {
			return m.Type == h.Type && m.Devices == h.Devices && m.Locality == h.Locality
		}) {
			all = append(all, h)
		}
	}
	return all
}

// refreshTrial gives a trial its place, takes it away, or brings it up to date.
func (b *viewCache) refreshTrial(c *Core, s *state.Sweep, t *state.Trial) {
	at := b.apps[s.ID]
	if at == nil {
		return
	}
	ch := at.jobs[t.Number]
	if !shown(t) {
		if ch != nil {
			delete(at.jobs, t.Number)
			at.app.Jobs = slices.DeleteFunc(at.app.Jobs, func(j *policy.Job) bool { return j == ch.job })
		}
		return
	}
	if ch == nil {
		ch = &jobEntry{job: &policy.Job{Demand: at.app.Demand}}
		at.jobs[t.Number] = ch
		i, _ := slices.BinarySearchFunc(at.app.Jobs, t.Number, func(j *policy.Job, n int32) int { return int(j.Trial - n) })
		at.app.Jobs = slices.Insert(at.app.Jobs, i, ch.job)
	}
	gang := held(t, b.nodes)
	if !gang.Equal(ch.held) {
		b.view.Free.Take(gang, ch.job.Demand)
		ch.held = gang
	}
	at.fill(ch.job, t, b.nodes)
	if ch.job.Demand.Avoid = nil; b.avoiding {
		ch.job.Demand.Avoid = c.avoids(s, t)
	}
}

// markAvoiding has the trials looked at again that keep off other nodes than they did.
func (b *viewCache) markAvoiding(c *Core) {
	before := b.avoiding
	if b.avoiding = len(c.st.Faulty()) > 0 || len(c.st.Avoiding()) > 0; !b.avoiding && !before {
		return
	}
	for _, at := range b.apps { // in any order: each changes its own jobs only
		of := c.avoids(at.sweep, nil)
		for _, ch := range at.jobs {
			t, avoid := at.sweep.Trials[ch.job.Trial], of
			if len(t.Avoided) > 0 {
				avoid = c.avoids(at.sweep, t)
			}
			if !slices.Equal(avoid, ch.job.Demand.Avoid) {
				b.staleTrials[t] = at.sweep
			}
		}
	}
}

// shown says whether a trial is in the view: it holds devices of workers or waits for some, and is none that control itself
// places alone on a node.
func shown(t *state.Trial) bool {
	leased := len(t.Leases) > 0 && t.Lead().Holder == state.Workers
	return !alone(t) && (leased || t.State == outbidv1.TrialState_TRIAL_STATE_QUEUED)
}

// fill makes a job of a trial. Of its demand only the most devices change.
func (at *appEntry) fill(j *policy.Job, t *state.Trial, nodes map[string]int) {
	demand := j.Demand
	demand.Max = at.sweep.Terms.DemandUntil(t.UntilStep).Max
	*j = policy.Job{
		App: at.app, Trial: t.Number, Demand: demand, Weight: 1, Created: t.Created, Queued: t.Queued,
		Step: t.Step, UntilStep: t.UntilStep, TotalSteps: at.app.TotalSteps,
		DeviceSeconds: t.DeviceSeconds, Leases: t.LeaseCount, Minimise: !at.sweep.Maximise(), Speeds: at.app.Speeds,
	}
	for _, l := range t.Leases {
		j.Gangs = append(j.Gangs, gangOf(l, nodes))
	}
	if l := t.Lead(); l != nil {
		j.Reported, j.Granted, j.TermEnd, j.Queued = l.Training, l.Granted, l.TermEnd, time.Time{}
		j.Ending = l.Revoking != outbidv1.RevokeKind_REVOKE_KIND_UNSPECIFIED
	}
	at.fillForks(j, t)
	if own := at.byTrial[t.Number]; len(t.Measured) > 0 || len(own) > 0 {
		shared := at.hints
		if at.forkable() {
			shared = at.app.Speeds.Measured // where its forks are to go others of the sweep may have been
		}
		j.Speeds = &cluster.Speeds{Measured: merged(merged(t.Measured, own), shared), Estimated: at.app.Speeds.Estimated}
	}
	for _, p := range t.Curve {
		j.Curve = append(j.Curve, policy.Point{Step: p.Step, Value: p.Value})
	}
}

// held is all that a trial's leases still hold.
func held(t *state.Trial, nodes map[string]int) cluster.Gang {
	var all cluster.Gang
	for _, l := range t.Leases {
		all = append(all, gangOf(l, nodes)...)
	}
	return all
}

// gangOf is what a lease still holds on nodes that are up, which have an index.
func gangOf(l *state.Lease, nodes map[string]int) cluster.Gang {
	return state.GangOf(l.Places, func(p state.Place) (int, bool) {
		i, up := nodes[p.Node]
		return i, up && !p.Ended
	})
}
