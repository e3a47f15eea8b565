package rounds

import (
	"cmp"
	"maps"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/control/tenants"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/state"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
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
func (vc *viewCache) refresh(rs *Rounds) *policy.View {
	vc.view.Now, vc.view.Round, vc.view.AppSeconds = rs.core.Now(), rs.st.NextRound, rs.st.AppSeconds(rs.core.Now())
	if vc.live == nil {
		vc.live = &live{rounds: rs}
		vc.view.MeanWeight = vc.live.meanWeight
	}
	if apart := rs.suspects.apart(); !maps.Equal(apart, vc.apart) {
		vc.apart, vc.staleNodes = apart, true
	}
	if off := rs.faults.KeptOff(); !maps.Equal(off, vc.off) {
		vc.off, vc.staleNodes = off, true
	}
	if spent, _ := rs.tenants.Spent(); !maps.Equal(spent, vc.spent) {
		vc.spent, vc.staleNodes = spent, true
	}
	if vc.staleNodes {
		vc.rebuild(rs)
	}
	vc.markAvoiding(rs)
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
		vc.refreshTrial(rs, vc.staleTrials[t], t)
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
func (vc *viewCache) rebuild(rs *Rounds) {
	vc.staleNodes = false
	clear(vc.nodes)
	vc.view.Nodes = nil
	for _, name := range rs.st.NodeNames {
		if n := rs.st.Nodes[name]; n.Up() {
			vc.nodes[name] = len(vc.view.Nodes)
			shape := n.Shape
			shape.Draining = shape.Draining || vc.apart[name] || vc.off[name]
			vc.view.Nodes = append(vc.view.Nodes, shape)
		}
	}
	vc.view.Free, vc.estimates = cluster.NewCapacity(vc.view.Nodes), cluster.Estimates(vc.view.Nodes)
	vc.view.Tenants = tenants.InView(rs.st.Tenants(), vc.spent)
	vc.view.Bound()
	vc.view.Apps, vc.apps = nil, map[string]*appEntry{}
	for _, s := range rs.st.Live {
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

// refreshTrial adds a trial to the view, removes it, or updates it.
func (vc *viewCache) refreshTrial(rs *Rounds, s *state.Sweep, t *state.Trial) {
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
		ch.job.Demand.Avoid = rs.faults.Avoids(s, t)
	}
}

// markAvoiding marks the trials as stale whose avoided nodes have changed.
func (vc *viewCache) markAvoiding(rs *Rounds) {
	before := vc.avoiding
	if vc.avoiding = len(rs.st.Faulty()) > 0 || len(rs.st.Avoiding()) > 0; !vc.avoiding && !before {
		return
	}
	for _, at := range vc.apps { // in any order: each changes only its own jobs
		of := rs.faults.Avoids(at.sweep, nil)
		for _, ch := range at.jobs {
			t, avoid := at.sweep.Trials[ch.job.Trial], of
			if len(t.Avoided) > 0 {
				avoid = rs.faults.Avoids(at.sweep, t)
			}
			if !slices.Equal(avoid, ch.job.Demand.Avoid) {
				vc.staleTrials[t] = at.sweep
			}
		}
	}
}
