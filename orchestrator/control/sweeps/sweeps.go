// Package sweeps decides about sweeps as a whole: commands of users, limits, and ends. It serves the clients of external
// sweeps.
package sweeps

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outbid-dev/outbid/orchestrator/control/faults"
	"github.com/outbid-dev/outbid/orchestrator/control/merging"
	"github.com/outbid-dev/outbid/orchestrator/control/rounds"
	"github.com/outbid-dev/outbid/orchestrator/control/tenants"
	"github.com/outbid-dev/outbid/orchestrator/control/trials"
	"github.com/outbid-dev/outbid/orchestrator/control/tuning"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Core is the part of the core that this package needs.
type Core interface {
	// Now returns the time of the current step.
	Now() time.Time
	// Failed reports whether an event could not be applied.
	Failed() bool
	// Emit decides an event.
	Emit(e *outbidv1.Event)
	// Events returns the number of events in the current step.
	Events() int
	// Note adds a line for the user to the log of a sweep or a trial.
	Note(sweep string, trial *int32, level, format string, args ...any)
	// Touch makes the core advance a sweep before the step ends.
	Touch(sweep string)
	// TouchLater makes the core advance a sweep in the next step.
	TouchLater(sweep string)
	// Reply calls f once the step's events are in the ledger.
	Reply(f func())
	// Delete deletes objects once the step's events are in the ledger.
	Delete(keys ...string)
	// MarkBatchEnd records that a batch may end here.
	MarkBatchEnd()
	// Full reports whether work that can wait should be left to the next step.
	Full() bool
}

// Sweeps decides about sweeps. All that it knows is in the state, except the clients that wait for a reply.
type Sweeps struct {
	core    Core
	st      *state.State
	trials  *trials.Trials
	merging *merging.Merging
	faults  *faults.Faults
	tenants *tenants.Tenants
	tuning  *tuning.Tuning
	rounds  *rounds.Rounds
	// maxPayload returns the maximum size of a NATS message in bytes. If nil, the size is not limited.
	maxPayload func() int
	// pending holds the commands that wait for the answers of remote tuners; each reports whether it has replied.
	pending []func() bool
}

// New returns the Sweeps of a core that decides on a state.
func New(
	core Core, st *state.State, t *trials.Trials, m *merging.Merging, f *faults.Faults, tn *tenants.Tenants, tu *tuning.Tuning, r *rounds.Rounds,
	maxPayload func() int,
) *Sweeps {
	return &Sweeps{core: core, st: st, trials: t, merging: m, faults: f, tenants: tn, tuning: tu, rounds: r, maxPayload: maxPayload}
}

// Change records a new state of a sweep.
func (sw *Sweeps) Change(s *state.Sweep, to outbidv1.SweepState, reason, actor string) {
	if to == outbidv1.SweepState_SWEEP_STATE_STOPPING {
		sw.tuning.Retire(s.ID)
	}
	changed := &outbidv1.SweepChanged{Sweep: s.ID, State: to, Reason: reason, Actor: actor}
	if to != outbidv1.SweepState_SWEEP_STATE_STOPPING && to != outbidv1.SweepState_SWEEP_STATE_RUNNING &&
		to != outbidv1.SweepState_SWEEP_STATE_PAUSED {
		changed.Fairness = sw.rounds.Fared(s)
	}
	sw.core.Emit(&outbidv1.Event{Kind: &outbidv1.Event_SweepChanged{SweepChanged: changed}})
	if s.Done() {
		sw.faults.Forget(s)
	}
}

// Command pauses, resumes or stops a sweep.
func (sw *Sweeps) Command(id string, command outbidv1.SweepCommand, actor string) error {
	s, err := sw.st.Sweep(id)
	if err != nil {
		return err
	}
	by := "asked for by " + actor
	switch command {
	case outbidv1.SweepCommand_SWEEP_COMMAND_PAUSE:
		return sw.pauseSweep(s, by, actor)
	case outbidv1.SweepCommand_SWEEP_COMMAND_RESUME:
		if s.State == outbidv1.SweepState_SWEEP_STATE_RUNNING {
			return nil
		}
		return sw.resumeSweep(s, by, actor)
	case outbidv1.SweepCommand_SWEEP_COMMAND_STOP:
		if s.Done() || s.State == outbidv1.SweepState_SWEEP_STATE_STOPPING {
			return nil
		}
		sw.Change(s, outbidv1.SweepState_SWEEP_STATE_STOPPING, by, actor)
	default:
		return fmt.Errorf("%w: command: must be pause, resume or stop, got %s", state.ErrInvalid, command)
	}
	return nil
}

func (sw *Sweeps) pauseSweep(s *state.Sweep, by, actor string) error {
	if s.State == outbidv1.SweepState_SWEEP_STATE_PAUSED {
		return nil
	}
	if s.State != outbidv1.SweepState_SWEEP_STATE_RUNNING {
		return s.Conflict("paused", "only a running sweep can be paused")
	}
	sw.Change(s, outbidv1.SweepState_SWEEP_STATE_PAUSED, by, actor)
	for _, n := range slices.Clone(s.Running) {
		sw.trials.Revoke(s, s.Trials[n], outbidv1.RevokeKind_REVOKE_KIND_PAUSE, "the sweep is paused, "+by)
	}
	return nil
}

// resumeSweep continues a paused sweep, or a stopped one with the trials that the stop cancelled.
func (sw *Sweeps) resumeSweep(s *state.Sweep, by, actor string) error {
	switch s.State {
	case outbidv1.SweepState_SWEEP_STATE_PAUSED:
	case outbidv1.SweepState_SWEEP_STATE_STOPPING:
		return s.Conflict("resumed", "wait until its trials have saved and it has stopped")
	case outbidv1.SweepState_SWEEP_STATE_STOPPED:
		if reached := sw.limitReached(s); reached != "" {
			return s.Conflict("resumed", reached+"; extend it with a higher limit, which also resumes it")
		}
		if err := sw.tenants.MayBegin(s.Spec); err != nil {
			return err
		}
		if err := sw.tuning.Wake(s, "resumed"); err != nil {
			return err
		}
	default:
		return s.Conflict("resumed", "only a sweep that was paused or stopped can be resumed; extend it by more trials or steps")
	}
	sw.Change(s, outbidv1.SweepState_SWEEP_STATE_RUNNING, by, actor)
	return nil
}

// Delete removes a sweep that has ended, and returns who deleted it and when. It succeeds for one that was deleted before.
func (sw *Sweeps) Delete(id, actor string) (state.Deleted, error) {
	s, err := sw.st.Sweep(id)
	if gone, ok := errors.AsType[*state.DeletedError](err); ok {
		return gone.Deleted, nil
	}
	if err != nil {
		return state.Deleted{}, err
	}
	if err := s.CanDelete(); err != nil {
		return state.Deleted{}, err
	}
	sw.core.Emit(&outbidv1.Event{Kind: &outbidv1.Event_SweepDeleted{SweepDeleted: &outbidv1.SweepDeleted{
		Sweep: s.ID, Actor: actor,
	}}})
	_, err = sw.st.Sweep(id)
	if gone, ok := errors.AsType[*state.DeletedError](err); ok {
		return gone.Deleted, nil
	}
	return state.Deleted{}, err
}

// PublishSoup adds a stored soup to a sweep, and returns it with its number and time. Soups that the sweep no longer
// keeps are deleted.
func (sw *Sweeps) PublishSoup(id string, stored *outbidv1.Soup) (*outbidv1.Soup, error) {
	s, err := sw.st.Sweep(id)
	if err != nil {
		return nil, err
	}
	for _, p := range stored.GetParts() {
		if _, err := s.Trial(p.GetTrial()); err != nil {
			return nil, fmt.Errorf("%w: soup.parts: %w", state.ErrInvalid, err)
		}
	}
	soup := proto.CloneOf(stored)
	soup.Number, soup.Time = s.NextSoup(), timestamppb.New(sw.core.Now())
	sw.core.Emit(&outbidv1.Event{Kind: &outbidv1.Event_SoupPublished{SoupPublished: &outbidv1.SoupPublished{Sweep: s.ID, Soup: soup}}})
	for _, old := range slices.Clone(s.DroppableSoups()) {
		sw.core.Emit(&outbidv1.Event{Kind: &outbidv1.Event_SoupDropped{SoupDropped: &outbidv1.SoupDropped{Sweep: s.ID, Key: old.GetKey()}}})
		sw.core.Delete(old.GetKey())
	}
	return soup, nil
}
