package state

import (
	"maps"
	"math"
	"slices"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func (f *foldContext) created(e *outbidv1.TrialCreated) error {
	s, at := f.sweep, f.at
	if int(e.GetTrial()) != len(s.Trials) {
		return broken("trial %d created, want trial %d", e.GetTrial(), len(s.Trials))
	}
	t := &Trial{
		Number: e.GetTrial(), Config: e.GetConfigJson(), Bracket: e.GetBracket(), Seed: e.GetSeed(),
		UntilStep: e.GetUntilStep(), Reason: e.GetReason(), Created: at,
		Metric: math.NaN(), Best: math.NaN(),
	}
	s.Trials = append(s.Trials, t)
	s.touch(t)
	s.enqueue(at, t)
	f.trial = t
	return nil
}

// trialStates holds the trials of a sweep by state.
type trialStates struct {
	// Queued are the trials that wait for devices, first come first. Running are those with a lease, by lease ID.
	Queued  []int32
	Running []int32
	Counts  [8]int32
}

// setState keeps the counts and the queue consistent.
func (s *trialStates) setState(t *Trial, to trialState) {
	if t.State == trialQueued {
		s.Queued = remove(s.Queued, t.Number)
	}
	if t.State != trialNone {
		s.Counts[t.State]--
	}
	t.State = to
	s.Counts[to]++
}

func (s *trialStates) enqueue(at time.Time, t *Trial) {
	s.setState(t, trialQueued)
	s.Queued = append(s.Queued, t.Number)
	t.Queued = at
}

func remove(list []int32, n int32) []int32 {
	if i := slices.Index(list, n); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}

func (f *foldContext) reported(e *outbidv1.TrialReported) error {
	s, t, l := f.sweep, f.trial, f.lease
	r := e.GetReport()
	l.Step, l.LastReportSeq, l.Training = r.GetStep(), r.GetSeq(), f.at
	s.ReportBytes += ReportSize(r)
	if t.Part(l) != nil {
		l.Step = r.GetForkStep()
	}
	t.outlived(f.at, l)
	if !l.trainedWell && f.at.Sub(l.Granted) >= TrainedWell {
		f.st.trainedOn(s, l)
	}
	if rate := s.measure(t, l, r); rate > 0 && t.Part(l) != nil {
		f.st.setSlot(s, t, t.Slot.Measured(l.ID, rate))
	}
	f.st.countForkSteps(s, t, l)
	if l != t.Lead() {
		return nil
	}
	if len(r.GetAttributes()) > 0 {
		t.annotate(r.GetAttributes())
		if len(r.GetMetrics()) == 0 {
			return nil
		}
	}
	t.Last = r
	if t.Part(l) == nil {
		s.advance(t, r.GetStep())
	}
	if v, ok := r.GetMetrics()[s.Spec.GetMetric()]; ok {
		t.Metric = v
		t.MetricStep = max(t.MetricStep, r.GetStep())
		t.NaNNoted = t.NaNNoted || !Finite(v)
		s.improve(t, v, r.GetStep())
		t.plot(r.GetStep(), v)
	} else if s.Best < 0 {
		s.LackNoted = true
	}
	return nil
}

// annotate merges attributes from the training code into those of the trial. It replaces the map, because readers may
// have the old one.
func (t *Trial) annotate(noted map[string]string) {
	all := make(map[string]string, len(t.Attributes)+len(noted))
	maps.Copy(all, t.Attributes)
	maps.Copy(all, noted)
	t.Attributes = all
}

// reportIsNews reports whether the tuner gets a report. It does not get repeated reports of a restarted fork, reports
// of forks that do not lead, or the report at the target, which has its own event.
func (f *foldContext) reportIsNews(e *outbidv1.TrialReported) bool {
	t, r := f.trial, e.GetReport()
	_, has := r.GetMetrics()[f.sweep.Spec.GetMetric()]
	return has && f.lease == t.Lead() && !t.Done() && t.Retries == 0 && r.GetStep() > t.MetricStep && (t.UntilStep == 0 || r.GetStep() < t.UntilStep)
}

// targetIsNews reports whether the tuner learns that a fork reached its target: the leading fork, unless it only
// trained its share of a fork slot.
func (f *foldContext) targetIsNews(*outbidv1.TrialReached) bool {
	return f.lease != nil && f.lease == f.trial.Lead() && f.trial.Part(f.lease) == nil && f.trial.Retries == 0
}

// exitIsNews reports whether the tuner learns of a trial's end: not if the tuner ended it, if the trial may be resumed,
// or if the tuner learned of an earlier end.
func exitIsNews(f *foldContext, e *outbidv1.TrialEnded) bool {
	return !e.GetByTuner() && !e.GetResumable() && f.trial.Retries == 0
}

// advance sets a trial's step, and counts each step once however often it is trained.
func (s *Sweep) advance(t *Trial, step int64) {
	t.Step = step
	if step > t.MaxStep {
		s.Steps += step - t.MaxStep
		t.MaxStep = step
	}
}

func (s *Sweep) improve(t *Trial, v float64, step int64) {
	if !better(v, t.Best, s.Maximise()) {
		return
	}
	t.Best, t.BestStep = v, step
	if s.Best < 0 || better(v, s.Trials[s.Best].Best, s.Maximise()) ||
		v == s.Trials[s.Best].Best && t.Number < s.Best { // the lowest number of equals, as after a restart
		s.Best = t.Number
	}
}

func (f *foldContext) reached(e *outbidv1.TrialReached) error {
	s, t, l := f.sweep, f.trial, f.lease
	l.Step, l.AtTarget, l.Training = e.GetStep(), true, time.Time{}
	t.gotFurther(f.at, l, e.GetStep(), 0)
	f.st.trainedOn(s, l)
	if t.Part(l) != nil {
		f.st.countForkSteps(s, t, l)
		return nil
	}
	if l == t.Lead() {
		s.advance(t, e.GetStep())
		t.AtTarget = true
	}
	return nil
}

func (f *foldContext) targeted(e *outbidv1.TrialTargeted) error {
	s, t, at := f.sweep, f.trial, f.at
	if t.UntilStep != 0 && e.GetUntilStep() <= t.UntilStep {
		return broken("target %d is not beyond %d", e.GetUntilStep(), t.UntilStep)
	}
	t.UntilStep, t.Reason = e.GetUntilStep(), e.GetReason()
	t.AtTarget, t.Pausing = false, false
	if e.GetReopens() && t.State == trialCompleted && len(t.Leases) > 0 {
		t.Resumes++
		t.Ended = time.Time{}
		s.setState(t, trialRunning)
	}
	for _, l := range t.Leases {
		if t.Part(l) != nil {
			continue // its share of the fork slot is unchanged
		}
		if l.AtTarget = false; l.Training.IsZero() && l.Started {
			l.Training = at
		}
		l.Version++
	}
	if len(t.Leases) > 0 {
		return nil
	}
	if t.State == trialPaused || t.State == trialCompleted {
		t.Resumes++
		t.Ended = time.Time{}
		s.enqueue(at, t)
	}
	return nil
}

func (f *foldContext) paused(e *outbidv1.TrialPaused) error {
	s, t := f.sweep, f.trial
	t.Reason = e.GetReason()
	if len(t.Leases) > 0 {
		t.Pausing = true
		return nil
	}
	s.setState(t, trialPaused)
	return nil
}

func (f *foldContext) ended(e *outbidv1.TrialEnded) error {
	s, t, at := f.sweep, f.trial, f.at
	if e.GetState() < trialCompleted || e.GetState() > trialCancelled {
		return broken("a trial cannot end as %s", TrialWord(e.GetState()))
	}
	if e.GetResumable() {
		t.ResumesAs = trialQueued
		if t.State == trialPaused || t.Pausing || t.AtTarget {
			t.ResumesAs = trialPaused
		}
	}
	s.setState(t, e.GetState())
	f.st.count(s.countedAs, func(t *Totals) { t.TrialsEnded = plus(t.TrialsEnded, e.GetState(), 1) })
	t.Reason, t.Ended, t.Pausing = e.GetReason(), at, false
	for _, l := range t.Leases {
		l.Training = time.Time{}
	}
	t.FailedOtherwise = t.State == trialFailed && !t.forkFailed
	if !e.GetResumable() {
		t.Curve = nil
		s.setStart(t, nil)
	}
	return nil
}

func (f *foldContext) cloned(e *outbidv1.TrialCloned) error {
	s, t, at := f.sweep, f.trial, f.at
	source, err := s.Trial(e.GetSource())
	if err != nil {
		return broken("cloned: %v", err)
	}
	t.Config, t.Reason, t.AtTarget, t.Pausing = e.GetConfigJson(), e.GetReason(), false, false
	t.UntilStep = e.GetUntilStep()
	if from := source.Number; from != t.Number {
		t.CopiedFrom = &from
	}
	if t.Slot != nil {
		f.st.setSlot(s, t, t.Slot.Voided())
	}
	t.Probation = nil
	s.setStart(t, source.Newest())
	if len(t.Leases) == 0 && t.State == trialPaused {
		t.Resumes++
		s.enqueue(at, t)
	}
	return nil
}

// retried queues a failed trial as if it had not failed. The sweep continues if it has ended.
func (f *foldContext) retried(e *outbidv1.TrialRetried) error {
	st, s, t, at := f.st, f.sweep, f.trial, f.at
	if len(t.Leases) > 0 || t.Slot != nil {
		return broken("retried trial %d, whose processes have not all ended", t.Number)
	}
	if s.Done() {
		st.reopen(at, s)
		s.Admission = nil
	}
	t.Retries++
	t.Restarts, t.LastFailure, t.forkFailed, t.FailedOtherwise = 0, nil, false, false
	t.NodeLosses, t.LostStep, t.Suspected, t.Avoided = 0, 0, false, nil
	t.Reason, t.Ended, t.AtTarget, t.Pausing = e.GetReason(), time.Time{}, false, false
	s.enqueue(at, t)
	s.FailedBefore = s.Counts[trialFailed]
	return nil
}
