package state

import (
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/spec/terms"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func (f *foldContext) submitted(e *outbidv1.SweepSubmitted) error {
	st, at := f.st, f.at
	name := e.GetSpec().GetName()
	if e.GetSweep() != st.NextID(name) {
		return broken("sweep %q is not the next of name %q", e.GetSweep(), name)
	}
	st.names[name]++
	s := &Sweep{
		ID: e.GetSweep(), Spec: e.GetSpec(), State: sweepRunning, Actor: e.GetActor(),
		IdempotencyKey: e.GetIdempotencyKey(), Submitted: at, Best: -1, changeLog: changeLog{Version: 1}, refs: map[string]int{}, Order: st.nextOrder,
		Memory: e.GetMemory(),
	}
	s.compile()
	st.addSweep(s)
	st.countSubmitted(s)
	st.shares(at, s, 1)
	s.AppSecondsBefore = st.AppSeconds(at)
	f.sweep = s
	return nil
}

// compile compiles the spec, which was checked on submission. Fields that cannot be read are ignored.
func (s *Sweep) compile() {
	s.Terms, _ = terms.Of(s.Spec)
	s.SpecBytes = int64(proto.Size(s.Spec) + proto.Size(s.Memory))
}

func (f *foldContext) sweepChanged(e *outbidv1.SweepChanged) error {
	st, s, at := f.st, f.sweep, f.at
	if s.Done() && e.GetState() == sweepRunning {
		st.reopen(at, s)
		s.Admission = nil // the policy answers again
	}
	if (s.State == sweepPaused) != (e.GetState() == sweepPaused) {
		for _, n := range s.Queued { // their visible state changes
			s.touch(s.Trials[n])
		}
	}
	s.State, s.Reason = e.GetState(), e.GetReason()
	if s.State == sweepStopping {
		s.StopActor = e.GetActor()
	}
	if s.Done() {
		s.Ended, s.Fairness = at, e.GetFairness()
		st.count(s.countedAs, func(t *Totals) { t.SweepsEnded = plus(t.SweepsEnded, s.State, 1) })
		st.shares(at, s, -1)
		st.endSweep(s)
	}
	return nil
}

// reopen continues a sweep that has ended, with the trials that a person's stop cancelled.
func (st *State) reopen(at time.Time, s *Sweep) {
	s.State, s.Reason, s.Ended, s.Fairness = sweepRunning, "", time.Time{}, nil
	st.shares(at, s, 1)
	st.continueSweep(s)
	for _, t := range s.Trials {
		if t.ResumesAs == trialNone {
			continue
		}
		to := t.ResumesAs
		t.ResumesAs, t.Ended, t.Reason = trialNone, time.Time{}, "goes on, as its sweep does"
		t.Resumes++
		s.touch(t)
		if to == trialPaused {
			s.setState(t, trialPaused)
		} else {
			s.enqueue(at, t)
		}
		st.watch(s, t)
	}
}

func (f *foldContext) sweepExtended(e *outbidv1.SweepExtended) error {
	st, s, at := f.st, f.sweep, f.at
	if !s.Done() {
		st.weigh(s, -1)
	}
	if !sameSpace(s.Spec, e.GetSpec()) {
		s.Memory = summary(s.Memory) // the points are those of the old space
	}
	s.Spec = e.GetSpec()
	s.compile()
	if !s.Done() {
		st.weigh(s, 1)
	}
	s.Exhausted, s.Waiting = false, false
	if s.Done() {
		st.reopen(at, s)
		s.Admission = nil
	}
	return nil
}

// annotated records the description and the tags of a sweep.
func (s *Sweep) annotated(_ time.Time, e *outbidv1.SweepAnnotated) error {
	s.Annotation = e.GetAnnotation()
	return nil
}

// tunerStatus is the last status of a sweep's tuner.
type tunerStatus struct{ Waiting, Exhausted bool }

// asked records the status of a tuner that was asked for trials.
func (s *tunerStatus) asked(e *outbidv1.TunerAsked) error {
	s.Waiting, s.Exhausted = e.GetWaiting(), e.GetExhausted()
	return nil
}

// answered records the status of a remote tuner that has answered.
func (s *tunerStatus) answered(e *outbidv1.TunerAnswered) error {
	if e.GetError() == "" {
		s.Waiting, s.Exhausted = e.GetStatus().GetWaiting(), e.GetStatus().GetExhausted()
	}
	return nil
}

// roundBegun marks the state on which the policy decides; its decision comes later.
func (f *foldContext) roundBegun(*outbidv1.RoundBegun) error { return nil }

func (f *foldContext) roundDecided(e *outbidv1.RoundDecided) error {
	f.st.NextRound = e.GetRound() + 1
	if e.GetPrices() != nil {
		f.st.prices = e.GetPrices()
	}
	return nil
}

func (f *foldContext) note(e *outbidv1.Note) error {
	s, ok := f.st.Sweeps[e.GetSweep()]
	if !ok {
		return nil // a note about a node is only for the log
	}
	f.sweep = s
	s.Version++
	s.addNote(newNote(f.at, e))
	return nil
}
