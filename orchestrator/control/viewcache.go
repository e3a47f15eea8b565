package control

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/spec/terms"
	"github.com/outbid-dev/outbid/orchestrator/state"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// viewCache maintains the policy's view as events are applied. Before a round only what has changed is updated, so
// the cost of a round depends on the changes and not on the size of the cluster.
type viewCache struct {
	view  policy.View
	nodes map[string]int
	// estimates of the speeds of device types, for jobs that may be forked.
	estimates map[string]float64
	apps      map[string]*appEntry
	live      *live

	// apart are the nodes reserved for trials that run alone.
	apart map[string]bool
	// off are the nodes that new trials avoid. avoiding is set while some trials avoid some node.
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
	// hints are the spec's throughputs; byTrial are those of single trials.
	hints   []cluster.Speed
	byTrial map[int32][]cluster.Speed
	jobs    map[int32]*jobEntry
}

// jobEntry is a trial in the view. held is the gang that has been taken from the view's capacity.
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

// mark records what an event has changed.
func (vc *viewCache) mark(change state.Change) {
	s := change.Sweep
	switch change.Kind.View {
	case state.ViewNodes, state.ViewTenants:
		vc.staleNodes = true
	case state.ViewSweep, state.ViewWaiting, state.ViewTrial:
		if s.Spec.GetExternal() != nil {
			return
		}
		vc.staleSweeps[s] = true
		if change.Trial != nil {
			vc.staleTrials[change.Trial] = s
		}
	}
	if change.Kind.View == state.ViewWaiting { // the event may have continued ended trials
		for _, n := range s.Queued {
			vc.staleTrials[s.Trials[n]] = s
		}
	}
}

// refresh brings the view up to date and returns it.
func (vc *viewCache) refresh(c *Core) *policy.View {
	vc.view.Now, vc.view.Round, vc.view.AppSeconds = c.now, c.st.NextRound, c.st.AppSeconds(c.now)
	if vc.live == nil {
		vc.live = &live{core: c}
		vc.view.MeanWeight = vc.live.meanWeight
	}
	if apart := c.apart(); !maps.Equal(apart, vc.apart) {
		vc.apart, vc.staleNodes = apart, true
	}
	if off := c.keptOff(); !maps.Equal(off, vc.off) {
		vc.off, vc.staleNodes = off, true
	}
	if spent, _ := c.meter(); !maps.Equal(spent, vc.spent) {
		vc.spent, vc.staleNodes = spent, true
	}
	if vc.staleNodes {
		vc.rebuild(c)
	}
	vc.markAvoiding(c)
	for s := range vc.staleSweeps { // in any order: each changes only its own entry
		vc.refreshSweep(s)
	}
	stale := slices.SortedFunc(maps.Keys(vc.staleTrials), func(t, o *state.Trial) int {
		return cmp.Or(vc.staleTrials[t].Order-vc.staleTrials[o].Order, int(t.Number-o.Number))
	})
	for _, t := range stale { // free these devices before other trials take them
		if at := vc.apps[vc.staleTrials[t].ID]; at != nil {
			vc.vacate(at.jobs[t.Number], held(t, vc.nodes))
		}
	}
	for _, t := range stale {
		vc.refreshTrial(c, vc.staleTrials[t], t)
	}
	clear(vc.staleSweeps)
	clear(vc.staleTrials)
	vc.view.Free.Commit()
	return &vc.view
}

// vacate frees the devices that a trial no longer holds.
func (vc *viewCache) vacate(ch *jobEntry, gang cluster.Gang) {
	if ch != nil && !gang.Equal(ch.held) {
		vc.view.Free.Release(ch.held, ch.job.Demand)
		ch.held = nil
	}
}

// rebuild recreates the view, because gangs refer to nodes by index and the indices have changed.
func (vc *viewCache) rebuild(c *Core) {
	vc.staleNodes = false
	clear(vc.nodes)
	vc.view.Nodes = nil
	for _, name := range c.st.NodeNames {
		if n := c.st.Nodes[name]; n.Up() {
			vc.nodes[name] = len(vc.view.Nodes)
			shape := n.Shape
			shape.Draining = shape.Draining || vc.apart[name] || vc.off[name]
			vc.view.Nodes = append(vc.view.Nodes, shape)
		}
	}
	vc.view.Free, vc.estimates = cluster.NewCapacity(vc.view.Nodes), cluster.Estimates(vc.view.Nodes)
	vc.view.Tenants = tenantsInView(c.st.Tenants(), vc.spent)
	vc.view.Bound()
	vc.view.Apps, vc.apps = nil, map[string]*appEntry{}
	for _, s := range c.st.Live {
		if s.Spec.GetExternal() != nil {
			continue
		}
		vc.staleSweeps[s] = true
		for _, n := range s.Running {
			vc.staleTrials[s.Trials[n]] = s
		}
		for _, n := range s.Queued {
			vc.staleTrials[s.Trials[n]] = s
		}
	}
}

func (vc *viewCache) refreshSweep(s *state.Sweep) {
	at := vc.apps[s.ID]
	if s.Done() {
		if at != nil {
			delete(vc.apps, s.ID)
			for _, ch := range at.jobs {
				vc.view.Free.Release(ch.held, ch.job.Demand)
			}
			if i := slices.Index(vc.view.Apps, at.app); i >= 0 {
				vc.view.Apps = slices.Delete(vc.view.Apps, i, i+1)
			}
		}
		return
	}
	if at == nil || at.sweep.Spec != at.app.Spec {
		at = vc.describe(s, at)
		for n := range at.jobs { // the number of steps left has changed, also for running trials
			vc.staleTrials[s.Trials[n]] = s
		}
	}
	at.update(s, len(s.Trials))
	if at.forkable() {
		at.app.Speeds.Estimated = vc.estimates
	}
}

// update sets the progress of a sweep.
func (e *appEntry) update(s *state.Sweep, trials int) {
	a := e.app
	a.DeviceSeconds, a.StepsDone = s.DeviceSeconds, s.Steps
	a.Paused = s.State != outbidv1.SweepState_SWEEP_STATE_RUNNING
	open := s.Counts[outbidv1.TrialState_TRIAL_STATE_QUEUED] + s.Counts[outbidv1.TrialState_TRIAL_STATE_RUNNING] +
		s.Counts[outbidv1.TrialState_TRIAL_STATE_PAUSED]
	a.Finished = trials - int(open)
	a.Speeds.Measured = merged(s.Measured, e.hints)
}

// describe adds a sweep to the view, or updates it after an extension.
func (vc *viewCache) describe(s *state.Sweep, at *appEntry) *appEntry {
	if at == nil {
		at = &appEntry{sweep: s, app: &policy.App{}, jobs: map[int32]*jobEntry{}}
		vc.apps[s.ID] = at
		i, _ := slices.BinarySearchFunc(vc.view.Apps, s.Order, func(a *policy.App, order int) int { return a.Order - order })
		vc.view.Apps = slices.Insert(vc.view.Apps, i, at.app)
	}
	of := vc.live
	at.describe(func() tuner.Outlook { return of.outlook(s.ID) })
	at.app.Demand.Quota = vc.view.QuotaOf(state.TenantOf(s.Spec))
	return at
}

// describe sets what only an extension of the sweep changes.
func (e *appEntry) describe(outlook func() tuner.Outlook) {
	s := e.sweep
	e.readHints()
	weight := s.Spec.GetWeight()
	if weight == 0 {
		weight = 1
	}
	jobs := e.app.Jobs
	*e.app = policy.App{
		ID: s.ID, Tenant: s.Spec.GetTenant(), Weight: weight, Submitted: s.Submitted, Order: s.Order, Spec: s.Spec,
		AppSecondsBefore: s.AppSecondsBefore, Demand: s.Terms.Demand, Speeds: &cluster.Speeds{}, Jobs: jobs,
		TotalSteps: tuner.MaxSteps(s.Spec.GetTuner()), Tuner: tuner.NameOf(s.Spec.GetTuner()),
		Utility: s.Terms.Utility, Deadline: s.Terms.Deadline(s.Submitted), Outlook: outlook, Forks: s.Terms.MostForks, LeastForks: s.Terms.LeastForks,
	}
}

func (e *appEntry) readHints() {
	e.hints, e.byTrial = nil, nil
	for _, h := range e.sweep.Spec.GetThroughputs() {
		m, _ := terms.SpeedOf(h)
		if h.Trial == nil {
			e.hints = append(e.hints, m)
			continue
		}
		if e.byTrial == nil {
			e.byTrial = map[int32][]cluster.Speed{}
		}
		e.byTrial[h.GetTrial()] = append(e.byTrial[h.GetTrial()], m)
	}
}

// merged returns the measurements, and the hints that no measurement replaces.
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

// refreshTrial adds a trial to the view, removes it, or updates it.
func (vc *viewCache) refreshTrial(c *Core, s *state.Sweep, t *state.Trial) {
	at := vc.apps[s.ID]
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
	gang := held(t, vc.nodes)
	if !gang.Equal(ch.held) {
		vc.view.Free.Take(gang, ch.job.Demand)
		ch.held = gang
	}
	at.fill(ch.job, t, vc.nodes)
	if ch.job.Demand.Avoid = nil; vc.avoiding {
		ch.job.Demand.Avoid = c.avoids(s, t)
	}
}

// markAvoiding marks the trials as stale whose avoided nodes have changed.
func (vc *viewCache) markAvoiding(c *Core) {
	before := vc.avoiding
	if vc.avoiding = len(c.st.Faulty()) > 0 || len(c.st.Avoiding()) > 0; !vc.avoiding && !before {
		return
	}
	for _, at := range vc.apps { // in any order: each changes only its own jobs
		of := c.avoids(at.sweep, nil)
		for _, ch := range at.jobs {
			t, avoid := at.sweep.Trials[ch.job.Trial], of
			if len(t.Avoided) > 0 {
				avoid = c.avoids(at.sweep, t)
			}
			if !slices.Equal(avoid, ch.job.Demand.Avoid) {
				vc.staleTrials[t] = at.sweep
			}
		}
	}
}

// shown reports whether a trial is in the view: it holds devices of workers or waits for some, and control does not
// place it alone on a node.
func shown(t *state.Trial) bool {
	leased := len(t.Leases) > 0 && t.Lead().Holder == state.Workers
	return !alone(t) && (leased || t.State == outbidv1.TrialState_TRIAL_STATE_QUEUED)
}

// fill describes a trial as a job. Only the maximum of its demand changes.
func (e *appEntry) fill(j *policy.Job, t *state.Trial, nodes map[string]int) {
	demand := j.Demand
	demand.Max = e.sweep.Terms.DemandUntil(t.UntilStep).Max
	*j = policy.Job{
		App: e.app, Trial: t.Number, Demand: demand, Weight: 1, Created: t.Created, Queued: t.Queued,
		Step: t.Step, UntilStep: t.UntilStep, TotalSteps: e.app.TotalSteps,
		DeviceSeconds: t.DeviceSeconds, Leases: t.LeaseCount, Minimise: !e.sweep.Maximise(), Speeds: e.app.Speeds,
	}
	for _, l := range t.Leases {
		j.Gangs = append(j.Gangs, gangOf(l, nodes))
	}
	if l := t.Lead(); l != nil {
		j.Reported, j.Granted, j.TermEnd, j.Queued = l.Training, l.Granted, l.TermEnd, time.Time{}
		j.Ending = l.Revoking != outbidv1.RevokeKind_REVOKE_KIND_UNSPECIFIED
	}
	e.fillForks(j, t)
	if own := e.byTrial[t.Number]; len(t.Measured) > 0 || len(own) > 0 {
		shared := e.hints
		if e.forkable() {
			shared = e.app.Speeds.Measured // use the sweep's measurements: its other trials may have run where the forks will
		}
		j.Speeds = &cluster.Speeds{Measured: merged(merged(t.Measured, own), shared), Estimated: e.app.Speeds.Estimated}
	}
	for _, p := range t.Curve {
		j.Curve = append(j.Curve, policy.Point{Step: p.Step, Value: p.Value})
	}
}

// held returns everything that a trial's leases still hold.
func held(t *state.Trial, nodes map[string]int) cluster.Gang {
	var all cluster.Gang
	for _, l := range t.Leases {
		all = append(all, gangOf(l, nodes)...)
	}
	return all
}

// gangOf returns what a lease still holds on nodes that are up, which have an index.
func gangOf(l *state.Lease, nodes map[string]int) cluster.Gang {
	return state.GangOf(l.Places, func(p state.Place) (int, bool) {
		i, up := nodes[p.Node]
		return i, up && !p.Ended
	})
}
