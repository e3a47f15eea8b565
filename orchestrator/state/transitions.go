package state

import (
	"fmt"
	"slices"
	"strings"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// A transition says which states an event may be applied in, and where it leads. The tables below are the whole legal
// graph: docs/architecture.md prints them and a test tries every pair.
type transition[S comparable] struct {
	Event string
	From  []S
	To    []S
}

type (
	sweepState = outbidv1.SweepState
	trialState = outbidv1.TrialState
)

const (
	sweepRunning  = outbidv1.SweepState_SWEEP_STATE_RUNNING
	sweepPaused   = outbidv1.SweepState_SWEEP_STATE_PAUSED
	sweepStopping = outbidv1.SweepState_SWEEP_STATE_STOPPING
	sweepDone     = outbidv1.SweepState_SWEEP_STATE_DONE
	sweepStopped  = outbidv1.SweepState_SWEEP_STATE_STOPPED
	sweepFailed   = outbidv1.SweepState_SWEEP_STATE_FAILED

	trialNone      = outbidv1.TrialState_TRIAL_STATE_UNSPECIFIED
	trialQueued    = outbidv1.TrialState_TRIAL_STATE_QUEUED
	trialRunning   = outbidv1.TrialState_TRIAL_STATE_RUNNING
	trialPaused    = outbidv1.TrialState_TRIAL_STATE_PAUSED
	trialCompleted = outbidv1.TrialState_TRIAL_STATE_COMPLETED
	trialStopped   = outbidv1.TrialState_TRIAL_STATE_STOPPED
	trialFailed    = outbidv1.TrialState_TRIAL_STATE_FAILED
	trialCancelled = outbidv1.TrialState_TRIAL_STATE_CANCELLED
)

// sweepTransitions is the life of a sweep.
func sweepTransitions() []transition[sweepState] {
	return []transition[sweepState]{
		{"pause", []sweepState{sweepRunning}, []sweepState{sweepPaused}},
		{"resume", []sweepState{sweepPaused, sweepStopped}, []sweepState{sweepRunning}},
		{"stop or limit", []sweepState{sweepRunning, sweepPaused}, []sweepState{sweepStopping}},
		{"tuner done", []sweepState{sweepRunning}, []sweepState{sweepDone, sweepFailed}},
		{"trials ended", []sweepState{sweepStopping}, []sweepState{sweepDone, sweepStopped, sweepFailed}},
		{"tuner failed", []sweepState{sweepRunning, sweepPaused}, []sweepState{sweepStopping}},
		{"extend", []sweepState{sweepRunning, sweepPaused, sweepDone, sweepStopped}, []sweepState{sweepRunning, sweepPaused}},
	}
}

// trialTransitions is the life of a trial.
func trialTransitions() []transition[trialState] {
	open := slices.Clip([]trialState{trialQueued, trialRunning, trialPaused})
	return []transition[trialState]{
		{"created", []trialState{trialNone}, []trialState{trialQueued}},
		{"lease granted", []trialState{trialQueued}, []trialState{trialRunning}},
		{"lease ended", []trialState{trialRunning}, []trialState{trialQueued, trialPaused}},
		// A completed trial goes on when its sweep is extended by longer steps.
		{"targeted", append(open, trialCompleted), []trialState{trialQueued, trialRunning}},
		{"paused", []trialState{trialQueued, trialRunning}, []trialState{trialPaused, trialRunning}},
		{"cloned", open, []trialState{trialQueued, trialRunning}},
		// What a person's stop cancelled is again what it was once the sweep is resumed or extended.
		{"resumed", []trialState{trialCancelled}, []trialState{trialQueued, trialPaused}},
		{"ended", open, []trialState{trialCompleted, trialStopped, trialFailed, trialCancelled}},
	}
}

// checkSweep says whether a sweep may go from one state to another.
func checkSweep(from, to sweepState) error {
	for _, t := range sweepTransitions() {
		if slices.Contains(t.From, from) && slices.Contains(t.To, to) {
			return nil
		}
	}
	return fmt.Errorf("%w: a sweep cannot go from %s to %s", ErrConflict, SweepWord(from), SweepWord(to))
}

// checkTrial says whether an event may be applied to a trial in a state.
func checkTrial(event string, from trialState) error {
	for _, t := range trialTransitions() {
		if t.Event == event && slices.Contains(t.From, from) {
			return nil
		}
	}
	return fmt.Errorf("%w: a trial that is %s cannot be %s", ErrBroken, TrialWord(from), event)
}

// SweepWord is a sweep's state as people read it: "running".
func SweepWord(s outbidv1.SweepState) string { return word(s.String(), "SWEEP_STATE_") }

// TrialWord is a trial's state as people read it: "queued".
func TrialWord(s outbidv1.TrialState) string { return word(s.String(), "TRIAL_STATE_") }

// NodeWord is a node's state as people read it: "up".
func NodeWord(s outbidv1.NodeState) string { return word(s.String(), "NODE_STATE_") }

func word(enum, prefix string) string {
	return strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(enum, prefix), "_", " "))
}

func sweepID(name string, n int64) string { return fmt.Sprintf("%s-%d", name, n) }

func trialName(sweep string, n int32) string { return fmt.Sprintf("%s/%d", sweep, n) }

func notFound(kind, name string) error {
	return fmt.Errorf("%w: there is no %s %q", ErrNotFound, kind, name)
}

func broken(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrBroken, fmt.Sprintf(format, args...))
}
