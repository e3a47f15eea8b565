package sim

import (
	"cmp"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/sim/measure"
	"github.com/outbid-dev/outbid/orchestrator/state"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/registry"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// recorder passes the changes of a run to a meter.
type recorder struct {
	w       *World
	meter   *measure.Meter
	apps    map[string]int
	jobs    map[trialKey]*entry
	devices int
	// there are the present nodes.
	there map[string]bool
	// offset is the number of a node's first device, by name.
	offset map[string]int
	next   int
	// ended are the leases that ended in this batch. Later events of the batch give the reason.
	ended []ending
}

type ending struct {
	key   trialKey
	lease uint64
}

// entry is a trial in the meter.
type entry struct {
	number int
	// wants is set if the trial should have devices: it is not paused, nor at its target.
	wants, atTarget bool
	// held are its leases, oldest first, including those that ended in this batch and are not recorded yet.
	held []held
	over bool
}

// held is a lease of a trial.
type held struct {
	id uint64
	// ends is set once a place of it has ended, after which the others are useless. failed is set if its process
	// failed.
	ends, failed bool
	// spread is set for a gang over several nodes, restarts if the gang has a later target, part if it is part of a
	// fork slot.
	spread, restarts, part bool
}

// lease returns the lease with an ID, if the trial holds it.
func (e *entry) lease(id uint64) *held {
	for i := range e.held {
		if e.held[i].id == id {
			return &e.held[i]
		}
	}
	return nil
}

func newRecorder(w *World, cfg measure.Config) *recorder {
	s := &recorder{
		w: w, meter: measure.New(cfg), apps: map[string]int{}, jobs: map[trialKey]*entry{}, offset: map[string]int{},
		there: map[string]bool{},
	}
	for i := range w.nodes {
		s.machine(&w.nodes[i])
	}
	return s
}

// machine numbers a node's devices.
func (s *recorder) machine(n *cluster.Node) {
	s.offset[n.Name] = s.next
	s.next += len(n.Devices)
}

func (s *recorder) see(at float64, c *state.Change) {
	if c.NodeTo() != outbidv1.NodeState_NODE_STATE_UNSPECIFIED {
		to := c.NodeTo()
		s.present(at, c.Node.Info.GetName(), to != outbidv1.NodeState_NODE_STATE_LEFT && to != outbidv1.NodeState_NODE_STATE_LOST)
	}
	if c.Trial != nil {
		s.trial(at, c)
	}
	switch {
	case c.SweepBegan():
		s.apps[c.Sweep.ID] = s.meter.Submit(at, s.appOf(c.Sweep.ID, c.Sweep.Spec))
	case c.SweepEnded():
		s.flush(at)
		s.meter.EndApp(at, s.apps[c.Sweep.ID])
	}
}

// trial handles a change of a trial.
func (s *recorder) trial(at float64, c *state.Change) {
	key := keyOf(c)
	switch {
	case c.TrialBegan():
		s.arrived(at, key)
	case c.LeaseBegan():
		s.granted(at, key, c.Lease)
	case c.LeaseEnded(), c.Did(state.PlaceEnded):
		s.leaves(key, c.Lease.ID)
	case c.Did(state.ProcessFailed):
		if l := s.jobs[key].lease(c.Lease.ID); l != nil {
			l.failed = true
		}
	case c.Did(state.TargetReached):
		s.reached(at, key, c.Lease.ID)
	case c.Did(state.Paused):
		s.paused(at, key)
	case c.Did(state.Targeted), c.Did(state.Cloned):
		s.wanted(at, key)
	case c.TrialEnded():
		s.over(at, key, c.TrialTo())
	}
}

// leaves handles the end of a lease, or of the first place of its gang to end.
func (s *recorder) leaves(key trialKey, lease uint64) {
	if l := s.jobs[key].lease(lease); l != nil && !l.ends {
		l.ends = true
		s.ended = append(s.ended, ending{key, lease})
	}
}

// present records whether a node is present. A node that restarts stays present.
func (s *recorder) present(at float64, node string, there bool) {
	if s.there[node] == there {
		return
	}
	s.there[node] = there
	n := len(s.w.workers[node].node.Devices)
	if !there {
		s.flush(at) // its leases have ended
		n = -n
	}
	s.devices += n
	s.meter.Devices(at, s.devices)
}

// appOf describes an app for the meter.
func (s *recorder) appOf(sweep string, spec *outbidv1.SweepSpec) measure.App {
	devices := spec.GetResources().GetDevices()
	accepted := cluster.Demand{Types: spec.GetResources().GetTypes(), Exclude: spec.GetResources().GetExcludeTypes()}
	usable := 0
	for i := range s.w.nodes {
		for _, d := range s.w.nodes[i].Devices {
			if accepted.Accepts(d.Type) {
				usable++
			}
		}
	}
	trials := int(spec.GetLimits().GetTrials())
	if most := int(spec.GetLimits().GetConcurrency()); most > 0 {
		trials = min(trials, most)
	}
	_, factor := registry.Growth(spec.GetTuner())
	return measure.App{
		Name: nameOf(spec), Sweep: sweep, Tenant: spec.GetTenant(), Usable: usable,
		Phased: registry.TraitsOf(tuner.NameOf(spec.GetTuner())).Rungs == tuner.Phases, Grows: factor > 0,
		Demand: trials * max(1, int(devices.GetMin()), int(devices.GetMax())),
	}
}

// nameOf returns the name of an app in its trace.
func nameOf(s *outbidv1.SweepSpec) string {
	return cmp.Or(s.GetLabels()["app"], s.GetLabels()["job"], s.GetName())
}

func (s *recorder) arrived(at float64, key trialKey) {
	app := s.w.apps[key.sweep]
	job := &app.Jobs[min(int(key.trial), len(app.Jobs)-1)]
	devices := app.Spec.GetResources().GetDevices()
	n := s.meter.Arrive(at, s.apps[key.sweep], measure.Job{
		Name: key.sweep, Tenant: app.Spec.GetTenant(), Devices: max(1, int(devices.GetMin()), int(devices.GetMax())),
		Isolated: job.Isolated, Utility: job.Utility, Target: job.Target, Decay: job.Decay,
	})
	s.jobs[key] = &entry{number: n, wants: true}
}

func (s *recorder) granted(at float64, key trialKey, lease *state.Lease) {
	s.flush(at) // it may have held other leases until now
	j := s.jobs[key]
	l := measure.Lease{ID: lease.ID}
	for _, p := range lease.Places {
		for _, d := range p.Devices {
			if s.w.set.Bars > 0 {
				l.Where = append(l.Where, s.offset[p.Node]+int(d))
			}
		}
	}
	g := s.w.leases[l.ID].gang
	l.Devices = g.Size()
	app := s.w.apps[key.sweep]
	l.Slowdown = app.Jobs[min(int(key.trial), len(app.Jobs)-1)].Speeds.Slowdown(cluster.LocalityOf(s.w.nodes, g))
	if s.w.leases[l.ID].again {
		l.Delay = s.w.set.RestartDelay.Seconds()
	}
	j.held = append(j.held, held{id: l.ID, spread: lease.Gang(), part: s.w.leases[l.ID].part})
	s.meter.Grant(at, j.number, l)
}

// paused handles a trial that should rest, at once or when its lease has ended.
func (s *recorder) paused(at float64, key trialKey) {
	s.flush(at)
	j := s.jobs[key]
	if len(j.held) == 0 && j.wants {
		s.meter.Rest(at, j.number)
	}
	j.wants = false
}

// wanted handles a trial that should have devices again, or continues on its devices.
func (s *recorder) wanted(at float64, key trialKey) {
	s.flush(at)
	j := s.jobs[key]
	if len(j.held) == 0 && !j.wants && !j.over {
		s.meter.Want(at, j.number)
	}
	for i := range j.held { // control restarts a gang over several nodes together, from its checkpoint
		j.held[i].restarts = j.held[i].spread
	}
	j.wants, j.atTarget = true, false
}

// rejected reports whether a sweep ended because its policy did not admit it. Its trials are dropped, and their ends
// are worth nothing.
func (s *recorder) rejected(sweep string) bool {
	of, err := s.w.core.State().Sweep(sweep)
	return err == nil && of.Admission.GetKind() == outbidv1.AdmissionKind_ADMISSION_KIND_REJECTED
}

// over handles the end of a trial. The rest of its lease does not count.
func (s *recorder) over(at float64, key trialKey, to outbidv1.TrialState) {
	j := s.jobs[key]
	if j == nil || j.over {
		return
	}
	done, dropped := 1.0, to != outbidv1.TrialState_TRIAL_STATE_COMPLETED && s.rejected(key.sweep)
	if to != outbidv1.TrialState_TRIAL_STATE_COMPLETED {
		done = s.done(key)
	}
	j.over = true
	s.meter.End(at, j.number, done, to != outbidv1.TrialState_TRIAL_STATE_FAILED && !dropped)
}

// done returns the fraction of a trial's work that is done.
func (s *recorder) done(key trialKey) float64 {
	app := s.w.apps[key.sweep]
	job := &app.Jobs[min(int(key.trial), len(app.Jobs)-1)]
	steps := cmp.Or(job.Steps, tuner.MaxSteps(app.Spec.GetTuner()))
	if steps <= 0 {
		return 1
	}
	return min(1, float64(s.w.core.State().Sweeps[key.sweep].Trials[key.trial].MaxStep)/float64(steps))
}

// reached handles a trial whose lead is at the target and waits for its tuner. Another fork at the target waits, or
// ends if it did its share of a fork slot.
func (s *recorder) reached(at float64, key trialKey, lease uint64) {
	j := s.jobs[key]
	if len(j.held) > 0 && (j.held[0].id != lease || j.held[0].part) {
		return
	}
	j.atTarget = true
	s.meter.Reach(at, j.number, s.done(key))
}

// flush records the leases that ended although their trials did not.
func (s *recorder) flush(at float64) {
	for _, e := range s.ended {
		j := s.jobs[e.key]
		l := *j.lease(e.lease)
		j.held = slices.DeleteFunc(j.held, func(o held) bool { return o.id == e.lease })
		why := measure.Preempted
		switch {
		case j.over:
			continue
		case !j.wants || j.atTarget:
			j.wants = j.wants && len(j.held) > 0
			why = measure.Paused
		case l.failed:
			why = measure.Failed
		case l.restarts, l.part:
			why = measure.Restarted
		}
		s.meter.Release(at, j.number, e.lease, why)
	}
	s.ended = s.ended[:0]
}
