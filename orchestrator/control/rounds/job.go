package rounds

import (
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/control/trials"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/spec/terms"
	"github.com/outbid-dev/outbid/orchestrator/state"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

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

// App returns a sweep as policies see it, for readers: with a number of trials, those that are active, and the indices
// of nodes.
func App(s *state.Sweep, trials int, active []*state.Trial, nodes map[string]int, outlook func() tuner.Outlook) *policy.App {
	at := &appEntry{sweep: s, app: &policy.App{}}
	at.describe(outlook)
	at.update(s, trials)
	for _, t := range active {
		if shown(t) {
			j := &policy.Job{Demand: at.app.Demand}
			at.fill(j, t, nodes)
			at.app.Jobs = append(at.app.Jobs, j)
		}
	}
	return at.app
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

// shown reports whether a trial is in the view: it holds devices of workers or waits for some, and control does not
// place it alone on a node.
func shown(t *state.Trial) bool {
	leased := len(t.Leases) > 0 && t.Lead().Holder == state.Workers
	return !trials.Alone(t) && (leased || t.State == outbidv1.TrialState_TRIAL_STATE_QUEUED)
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

// forkable reports whether a sweep's jobs may be forked.
func (e *appEntry) forkable() bool { return e.sweep.Terms.MostForks > 1 }

// fillForks sets how a job may be forked.
func (e *appEntry) fillForks(j *policy.Job, t *state.Trial) {
	j.Forked, j.Consolidating = t.Slot != nil && len(t.Leases) > 0, t.Consolidating()
	if t.ForkAgain == outbidv1.ForkAgain_FORK_AGAIN_UNSPECIFIED && t.UntilStep > 0 {
		j.LeastForks, j.Forks = e.sweep.Terms.LeastForks, e.sweep.Terms.MostForks
		if len(t.Leases) == 0 {
			j.StartStep = t.From().GetStep()
		}
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
