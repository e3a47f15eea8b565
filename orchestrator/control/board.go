package control

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/spec"
	"github.com/outbid-dev/outbid/orchestrator/state"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// board is the policy's view, kept up to date as events are folded in: what changed is looked at again before a round,
// and nothing else, so that a round costs what changed and not what there is.
type board struct {
	view  policy.View
	nodes map[string]int
	seats map[string]*seat

	// apart are the nodes that others keep off, for trials that run alone.
	apart       map[string]bool
	staleNodes  bool
	staleSweeps map[*state.Sweep]bool
	staleTrials map[*state.Trial]*state.Sweep
}

// seat is a sweep's place in the view.
type seat struct {
	sweep *state.Sweep
	app   *policy.App
	// hints of the spec about speeds, and whether some are of one trial only.
	hints   []cluster.Speed
	byTrial map[int32][]cluster.Speed
	chairs  map[int32]*chair
}

// chair is a trial's place in the view. held is the gang that the view's capacity lacks.
type chair struct {
	job  *policy.Job
	held cluster.Gang
}

func newBoard() *board {
	return &board{
		nodes: map[string]int{}, seats: map[string]*seat{}, staleNodes: true,
		staleSweeps: map[*state.Sweep]bool{}, staleTrials: map[*state.Trial]*state.Sweep{},
	}
}

// mark notes what an event changed.
func (b *board) mark(change state.Change) {
	s := change.Sweep
	switch change.Kind.View {
	case state.ViewNodes:
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
func (b *board) refresh(c *Core) *policy.View {
	b.view.Now, b.view.Round, b.view.AppSeconds = c.now, c.st.NextRound, c.st.AppSeconds(c.now)
	if apart := c.apart(); !maps.Equal(apart, b.apart) {
		b.apart, b.staleNodes = apart, true
	}
	if b.staleNodes {
		b.rebuild(c)
	}
	for s := range b.staleSweeps { // in any order: each changes its own place only
		b.refreshSweep(c, s)
	}
	stale := slices.SortedFunc(maps.Keys(b.staleTrials), func(t, o *state.Trial) int {
		return cmp.Or(b.staleTrials[t].Order-b.staleTrials[o].Order, int(t.Number-o.Number))
	})
	for _, t := range stale { // before others take what these held
		if at := b.seats[b.staleTrials[t].ID]; at != nil {
			b.vacate(at.chairs[t.Number], b.gang(t.Lease))
		}
	}
	for _, t := range stale {
		b.refreshTrial(b.staleTrials[t], t)
	}
	clear(b.staleSweeps)
	clear(b.staleTrials)
	b.view.Free.Commit()
	return &b.view
}

// vacate frees what a trial held unless it holds it still.
func (b *board) vacate(ch *chair, gang cluster.Gang) {
	if ch != nil && !gang.Equal(ch.held) {
		b.view.Free.Release(ch.held, ch.job.Demand)
		ch.held = nil
	}
}

// rebuild starts over: gangs name nodes by index, and those have changed.
func (b *board) rebuild(c *Core) {
	b.staleNodes = false
	clear(b.nodes)
	b.view.Nodes = nil
	for _, name := range c.st.NodeNames {
		if n := c.st.Nodes[name]; n.Up() {
			b.nodes[name] = len(b.view.Nodes)
			shape := n.Shape
			shape.Draining = shape.Draining || b.apart[name]
			b.view.Nodes = append(b.view.Nodes, shape)
		}
	}
	b.view.Free = cluster.NewCapacity(b.view.Nodes)
	b.view.Apps, b.seats = nil, map[string]*seat{}
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

func (b *board) refreshSweep(c *Core, s *state.Sweep) {
	at := b.seats[s.ID]
	if s.Done() {
		if at != nil {
			delete(b.seats, s.ID)
			for _, ch := range at.chairs {
				b.view.Free.Release(ch.held, ch.job.Demand)
			}
			if i := slices.Index(b.view.Apps, at.app); i >= 0 {
				b.view.Apps = slices.Delete(b.view.Apps, i, i+1)
			}
		}
		return
	}
	if at == nil || at.sweep.Spec != at.app.Spec {
		at = b.sit(c, s, at)
	}
	a := at.app
	a.DeviceSeconds, a.StepsDone = s.DeviceSeconds, s.Steps
	a.Paused = s.State != outbidv1.SweepState_SWEEP_STATE_RUNNING
	open := s.Counts[outbidv1.TrialState_TRIAL_STATE_QUEUED] + s.Counts[outbidv1.TrialState_TRIAL_STATE_RUNNING] +
		s.Counts[outbidv1.TrialState_TRIAL_STATE_PAUSED]
	a.Finished = len(s.Trials) - int(open)
	a.Speeds.Measured = merged(s.Measured, at.hints)
}

// sit gives a sweep its place, or brings it up to date after an extension.
func (b *board) sit(c *Core, s *state.Sweep, at *seat) *seat {
	if at == nil {
		at = &seat{sweep: s, app: &policy.App{}, chairs: map[int32]*chair{}}
		b.seats[s.ID] = at
		i, _ := slices.BinarySearchFunc(b.view.Apps, s.Order, func(a *policy.App, order int) int { return a.Order - order })
		b.view.Apps = slices.Insert(b.view.Apps, i, at.app)
	}
	at.readHints()
	weight := s.Spec.GetWeight()
	if weight == 0 {
		weight = 1
	}
	jobs := at.app.Jobs
	*at.app = policy.App{
		ID: s.ID, Tenant: s.Spec.GetTenant(), Weight: weight, Submitted: s.Submitted, Order: s.Order, Spec: s.Spec,
		AppSecondsBefore: s.AppSecondsBefore, Demand: demand(s), Speeds: &cluster.Speeds{}, Jobs: jobs,
		TotalSteps: spec.MaxSteps(s.Spec.GetTuner()), Tuner: spec.TunerKind(s.Spec.GetTuner()),
		Outlook: func() tuner.Outlook { o, _ := c.outlook(s.ID); return o },
	}
	return at
}

func (at *seat) readHints() {
	at.hints, at.byTrial = nil, nil
	for _, h := range at.sweep.Spec.GetThroughputs() {
		spread, _ := cluster.ParseSpread(h.GetSpread())
		m := cluster.Speed{Type: h.GetType(), Devices: max(1, int(h.GetDevices())), Spread: spread, Rate: h.GetStepsPerSecond()}
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
			return m.Type == h.Type && m.Devices == h.Devices && m.Spread == h.Spread
		}) {
			all = append(all, h)
		}
	}
	return all
}

// refreshTrial gives a trial its place, takes it away, or brings it up to date.
func (b *board) refreshTrial(s *state.Sweep, t *state.Trial) {
	at := b.seats[s.ID]
	if at == nil {
		return
	}
	ch := at.chairs[t.Number]
	leased := t.Lease != nil && t.Lease.Holder == state.Workers && !alone(t)
	if !leased && (alone(t) || t.State != outbidv1.TrialState_TRIAL_STATE_QUEUED) {
		if ch != nil {
			delete(at.chairs, t.Number)
			at.app.Jobs = slices.DeleteFunc(at.app.Jobs, func(j *policy.Job) bool { return j == ch.job })
		}
		return
	}
	if ch == nil {
		ch = &chair{job: &policy.Job{App: at.app, Trial: t.Number, Demand: at.app.Demand, Weight: 1}}
		at.chairs[t.Number] = ch
		i, _ := slices.BinarySearchFunc(at.app.Jobs, t.Number, func(j *policy.Job, n int32) int { return int(j.Trial - n) })
		at.app.Jobs = slices.Insert(at.app.Jobs, i, ch.job)
	}
	b.fill(at, ch, t)
}

func (b *board) fill(at *seat, ch *chair, t *state.Trial) {
	j := ch.job
	gang := b.gang(t.Lease)
	if !gang.Equal(ch.held) {
		b.view.Free.Take(gang, j.Demand)
		ch.held = gang
	}
	*j = policy.Job{
		App: at.app, Trial: t.Number, Demand: j.Demand, Weight: 1, Created: t.Created, Queued: t.Queued, Gang: gang,
		Step: t.Step, UntilStep: t.UntilStep, TotalSteps: at.app.TotalSteps, Reported: t.Training,
		DeviceSeconds: t.DeviceSeconds, Leases: t.Leases, Minimise: !at.sweep.Maximise(), Speeds: at.app.Speeds,
	}
	if l := t.Lease; l != nil {
		j.Granted, j.TermEnd, j.Queued = l.Granted, l.TermEnd, time.Time{}
		j.Ending = l.Revoking != outbidv1.RevokeKind_REVOKE_KIND_UNSPECIFIED
	}
	if own := at.byTrial[t.Number]; len(t.Measured) > 0 || len(own) > 0 {
		j.Speeds = &cluster.Speeds{Measured: merged(merged(t.Measured, own), at.hints)}
	}
	for _, p := range t.Curve {
		j.Curve = append(j.Curve, policy.Point{Step: p.Step, Value: p.Value})
	}
}

// gang is what a lease still holds on nodes that are up.
func (b *board) gang(l *state.Lease) cluster.Gang {
	if l == nil {
		return nil
	}
	return state.GangOf(l.Places, func(p state.Place) (int, bool) {
		i, up := b.nodes[p.Node]
		return i, up && !p.Ended
	})
}
