package state

import (
	"fmt"
	"slices"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Apply folds one event, decided at the given time, into the state. An error wraps ErrBroken and means that the event
// cannot have been decided in this state.
func (st *State) Apply(at time.Time, event *outbidv1.Event) error {
	st.Time = at
	switch e := event.GetKind().(type) {
	case *outbidv1.Event_SweepSubmitted:
		return st.submitted(at, e.SweepSubmitted)
	case *outbidv1.Event_SweepDeleted:
		return st.sweepDeleted(at, e.SweepDeleted)
	case nil:
		return errUnknown(event)
	case *outbidv1.Event_NodeJoined:
		return st.nodeJoined(at, e.NodeJoined)
	case *outbidv1.Event_NodeChanged:
		return st.nodeChanged(at, e.NodeChanged)
	case *outbidv1.Event_UplinkSeen:
		return st.uplinkSeen(e.UplinkSeen)
	case *outbidv1.Event_OrchestratorStarted:
		return st.started(e.OrchestratorStarted)
	case *outbidv1.Event_RoundDecided:
		st.NextRound = e.RoundDecided.GetRound() + 1
		return nil
	case *outbidv1.Event_Note:
		return st.note(at, e.Note)
	default:
		return st.applyToSweep(at, event)
	}
}

// SweepOf names the sweep that an event is about; "" for none.
func SweepOf(event *outbidv1.Event) string {
	type named interface{ GetSweep() string }
	switch e := event.GetKind().(type) {
	case *outbidv1.Event_SweepChanged:
		return e.SweepChanged.GetSweep()
	case *outbidv1.Event_SweepExtended:
		return e.SweepExtended.GetSweep()
	case *outbidv1.Event_SweepDeleted:
		return e.SweepDeleted.GetSweep()
	case *outbidv1.Event_TunerAsked:
		return e.TunerAsked.GetSweep()
	default:
		if t, ok := TrialOf(event).(named); ok {
			return t.GetSweep()
		}
		return ""
	}
}

// TrialRef is what every event about a trial has.
type TrialRef interface {
	GetSweep() string
	GetTrial() int32
}

// TrialOf is the body of an event about a trial, nil for others.
func TrialOf(event *outbidv1.Event) TrialRef {
	switch e := event.GetKind().(type) {
	case *outbidv1.Event_TrialReported:
		return e.TrialReported
	case *outbidv1.Event_TrialCreated:
		return e.TrialCreated
	case *outbidv1.Event_TrialTargeted:
		return e.TrialTargeted
	case *outbidv1.Event_TrialPaused:
		return e.TrialPaused
	case *outbidv1.Event_TrialEnded:
		return e.TrialEnded
	case *outbidv1.Event_TrialCloned:
		return e.TrialCloned
	case *outbidv1.Event_TrialReached:
		return e.TrialReached
	case *outbidv1.Event_CheckpointSaved:
		return e.CheckpointSaved
	case *outbidv1.Event_CheckpointDropped:
		return e.CheckpointDropped
	case *outbidv1.Event_LeaseGranted:
		return e.LeaseGranted
	case *outbidv1.Event_LeaseRevoked:
		return e.LeaseRevoked
	case *outbidv1.Event_LeaseEnded:
		return e.LeaseEnded
	case *outbidv1.Event_LeaseRenewed:
		return e.LeaseRenewed
	case *outbidv1.Event_PlaceEnded:
		return e.PlaceEnded
	case *outbidv1.Event_ForkStarted:
		return e.ForkStarted
	case *outbidv1.Event_ForkFailed:
		return e.ForkFailed
	case *outbidv1.Event_TrialAsked:
		return e.TrialAsked
	default:
		return nil
	}
}

func (st *State) applyToSweep(at time.Time, event *outbidv1.Event) error {
	id := SweepOf(event)
	s, ok := st.Sweeps[id]
	if !ok {
		return broken("%T names sweep %q, which does not exist", event.GetKind(), id)
	}
	s.Version++
	switch e := event.GetKind().(type) {
	case *outbidv1.Event_SweepChanged:
		return st.sweepChanged(at, s, e.SweepChanged)
	case *outbidv1.Event_SweepExtended:
		return st.sweepExtended(at, s, e.SweepExtended)
	case *outbidv1.Event_TunerAsked:
		s.Waiting, s.Exhausted = e.TunerAsked.GetWaiting(), e.TunerAsked.GetExhausted()
		return nil
	case *outbidv1.Event_TrialCreated:
		return s.created(at, e.TrialCreated)
	}
	ref := TrialOf(event)
	t, err := s.Trial(ref.GetTrial())
	if err != nil {
		return broken("%T: %v", event.GetKind(), err)
	}
	s.touch(t)
	if err := st.applyToTrial(at, s, t, event); err != nil {
		return fmt.Errorf("%s: %w", trialName(s.ID, t.Number), err)
	}
	st.watch(s, t)
	return nil
}

func (st *State) applyToTrial(at time.Time, s *Sweep, t *Trial, event *outbidv1.Event) error {
	switch e := event.GetKind().(type) {
	case *outbidv1.Event_TrialReported:
		return s.reported(at, t, e.TrialReported)
	case *outbidv1.Event_TrialReached:
		return s.reached(at, t, e.TrialReached)
	case *outbidv1.Event_TrialTargeted:
		return s.targeted(at, t, e.TrialTargeted)
	case *outbidv1.Event_TrialPaused:
		return s.paused(t, e.TrialPaused)
	case *outbidv1.Event_TrialEnded:
		return s.ended(at, t, e.TrialEnded)
	case *outbidv1.Event_TrialCloned:
		return s.cloned(at, t, e.TrialCloned)
	case *outbidv1.Event_CheckpointSaved:
		return s.checkpointSaved(at, t, e.CheckpointSaved.GetCheckpoint())
	case *outbidv1.Event_CheckpointDropped:
		return s.checkpointDropped(t, e.CheckpointDropped.GetKey())
	case *outbidv1.Event_LeaseGranted:
		return st.leaseGranted(at, s, t, e.LeaseGranted)
	case *outbidv1.Event_TrialAsked:
		return st.trialAsked(at, s, t, e.TrialAsked)
	case *outbidv1.Event_LeaseRevoked:
		return s.leaseRevoked(t, e.LeaseRevoked)
	case *outbidv1.Event_LeaseRenewed:
		return leaseRenewed(t, e.LeaseRenewed)
	case *outbidv1.Event_PlaceEnded:
		return st.placeEnded(t, e.PlaceEnded)
	case *outbidv1.Event_LeaseEnded:
		return st.leaseEnded(at, s, t, e.LeaseEnded)
	case *outbidv1.Event_ForkStarted:
		return s.forkStarted(at, t, e.ForkStarted)
	case *outbidv1.Event_ForkFailed:
		return s.forkFailed(t, e.ForkFailed)
	default:
		return broken("unknown event %T", event.GetKind())
	}
}

func (st *State) submitted(at time.Time, e *outbidv1.SweepSubmitted) error {
	name := e.GetSpec().GetName()
	if e.GetSweep() != st.NextID(name) {
		return broken("sweep %q is not the next of name %q", e.GetSweep(), name)
	}
	st.names[name]++
	s := &Sweep{
		ID: e.GetSweep(), Spec: e.GetSpec(), State: sweepRunning, Actor: e.GetActor(),
		IdempotencyKey: e.GetIdempotencyKey(), Submitted: at, Best: -1, Version: 1, refs: map[string]int{}, Order: st.nextOrder,
	}
	st.addSweep(s)
	st.shares(at, s, 1)
	s.AppSecondsBefore = st.appSeconds
	return nil
}

func (st *State) addSweep(s *Sweep) {
	st.nextOrder = max(st.nextOrder, s.Order+1)
	st.Sweeps[s.ID] = s
	st.SweepIDs = append(st.SweepIDs, s.ID)
	if s.IdempotencyKey != "" {
		st.keys[s.IdempotencyKey] = s.ID
	}
	if !s.Done() {
		st.Live = append(st.Live, s)
	}
}

func (st *State) sweepChanged(at time.Time, s *Sweep, e *outbidv1.SweepChanged) error {
	if err := checkSweep(s.State, e.GetState()); err != nil {
		return broken("%v", err)
	}
	if s.Done() && e.GetState() == sweepRunning {
		st.reopen(at, s)
	}
	s.State, s.Reason = e.GetState(), e.GetReason()
	if s.State == sweepStopping {
		s.StopActor = e.GetActor()
	}
	if s.Done() {
		s.Ended, s.Fairness = at, e.GetFairness()
		st.shares(at, s, -1)
		if i := slices.Index(st.Live, s); i >= 0 {
			st.Live = slices.Delete(st.Live, i, i+1)
		}
	}
	return nil
}

func (st *State) sweepExtended(at time.Time, s *Sweep, e *outbidv1.SweepExtended) error {
	if err := checkSweep(s.State, sweepRunning); err != nil && s.State != sweepRunning {
		return broken("%v", err)
	}
	s.Spec = e.GetSpec()
	s.Exhausted, s.Waiting = false, false
	if s.Done() {
		st.reopen(at, s)
	}
	return nil
}

func (st *State) note(at time.Time, e *outbidv1.Note) error {
	s, ok := st.Sweeps[e.GetSweep()]
	if !ok {
		return nil // a note about a node is for the log
	}
	s.Version++
	s.Notes = append(s.Notes, newNote(at, e))
	if len(s.Notes) > maxNotes {
		s.Notes = slices.Delete(s.Notes, 0, len(s.Notes)-maxNotes)
	}
	return nil
}
