// Package tuner decides what a sweep trains and for how long: random, grid, Sobol and Bayesian search, successive halving,
// Hyperband, ASHA, median stopping, forecasts of learning curves and population based training.
//
// A Tuner is a pure value: an event goes in, actions come out. It has no clock, does no I/O, and draws its randomness
// from a generator that is part of its snapshot, so that the same events always give the same actions, live, in the
// simulator and in replay. The control loop never looks inside.
package tuner

import (
	"errors"
	"math"
)

// A Trial is a trial's number: trials count from 0 in the order in which the tuner created them.
type Trial int32

// A Config is a configuration: parameter name to float64, int64, string, bool, nil, []any or nested map[string]any.
type Config = map[string]any

// A Tuner is one sweep's tuner. Handle is never called concurrently and never blocks for long.
//
// A Tuner wants a trial to be trained until a step. When the trial gets there it is told Reached, and must answer in
// the same call, or later, with Train (go on until a later step), Pause (leave the device) or End. A trial that
// reached its target and got no answer is paused by the control loop. A Train for a paused trial resumes it from its
// newest checkpoint.
type Tuner interface {
	// Handle takes in one event and returns what to do, in order. An error means that the tuner cannot go on; the
	// sweep fails with it.
	Handle(Event) ([]Action, error)
	// Status says whether an Ask would be useless now.
	Status() Status
	// Outlook says what the tuner will do in all, as far as it knows before it is done.
	Outlook() Outlook
	// Snapshot returns the tuner's whole state, random state included. New's counterpart Restore goes on from it:
	// the restored tuner gives the same actions for the same later events.
	Snapshot() ([]byte, error)
}

// Status says whether asking is useful.
type Status struct {
	// Waiting: nothing to run until some trial reaches its target, reports or exits.
	Waiting bool
	// Exhausted: never another trial or promotion, unless the sweep is extended. When no trial is left that is
	// queued, running or paused-and-wanted, the sweep is done.
	Exhausted bool
}

// An Event is something a tuner should know: Ask, Reported, Reached, Exited or Extended.
type Event interface{ tunerEvent() }

// Ask says that up to N more trials could run. The tuner answers with at most N Create or Train actions.
type Ask struct{ N int }

// Reported is a report of a trial that has not reached its target.
type Reported struct {
	Trial Trial
	// Step counts steps done.
	Step int64
	// Metric is the sweep's metric as reported, NaN if this report does not hold it.
	Metric float64
	// Metrics are all values of the report.
	Metrics map[string]float64
}

// Reached says that a trial did the steps it was to do. Metric is that of its newest report, NaN if it never
// reported the sweep's metric; Metrics are all values of its newest report.
type Reached struct {
	Trial   Trial
	Step    int64
	Metric  float64
	Metrics map[string]float64
}

// Exited says that a trial ended without being told to: its code ended before the target or without one, it failed
// for good, or a limit ended it. No action may name it any more, except as the source of a Clone.
type Exited struct {
	Trial Trial
	Step  int64
	// Failed is set if it failed for good; otherwise it ended by itself.
	Failed bool
	// Metric is the newest, NaN if there is none.
	Metric float64
	// Metrics are all values of the newest report.
	Metrics map[string]float64
}

// Extended replaces the settings: more trials, longer steps or a wider space. CheckExtension says beforehand whether a
// built-in tuner can take them up. After it, a Train may name a trial that was Ended as Completed: with longer steps
// it goes on from its newest checkpoint, or from the start if that is gone.
type Extended struct{ Settings Settings }

func (Ask) tunerEvent()      {}
func (Reported) tunerEvent() {}
func (Reached) tunerEvent()  {}
func (Exited) tunerEvent()   {}
func (Extended) tunerEvent() {}

// An Action is something a tuner wants: Create, Train, Pause, End or Clone.
type Action interface{ tunerAction() }

// Create starts the next trial; its number is the number of Creates before it.
type Create struct {
	Config Config
	// UntilStep is the first target; 0 means until the training code ends by itself.
	UntilStep int64
	Bracket   int
	Seed      uint64
	// Reason says why, for people.
	Reason string
}

// Train lets a trial go on until a later step; a paused one is resumed from its newest checkpoint.
type Train struct {
	Trial     Trial
	UntilStep int64
	Reason    string
}

// Pause takes a trial that reached its target off its device. It may be resumed by Train.
type Pause struct {
	Trial  Trial
	Reason string
}

// End is the last word on a trial, but for an extension: Completed if it was trained as far as it ever could be,
// stopped early otherwise.
type End struct {
	Trial     Trial
	Completed bool
	Reason    string
}

// Clone continues a trial from another trial's newest checkpoint, or its own, with another configuration (PBT's exploit and
// explore). Source may have ended.
type Clone struct {
	Trial     Trial
	Source    Trial
	Config    Config
	UntilStep int64
	Reason    string
}

func (Create) tunerAction() {}
func (Train) tunerAction()  {}
func (Pause) tunerAction()  {}
func (End) tunerAction()    {}
func (Clone) tunerAction()  {}

// Outlook is how much work a tuner will do in all.
type Outlook struct {
	// Trials is the number of trials it will create; 0 if unbounded.
	Trials int
	// Steps is the number of steps of all trials together, each trained once; 0 if unbounded or unknown.
	Steps int64
	Rungs []Rung
}

// Rung is one stage of a bracket.
type Rung struct {
	Bracket   int
	UntilStep int64
	// Trials that enter the rung, and the steps they train in it together.
	Trials int
	Steps  int64
}

// ErrBadSnapshot is returned by Restore for bytes that are no snapshot of that tuner.
var ErrBadSnapshot = errors.New("not a snapshot of this tuner")

// Better reports whether metric a is better than b under the mode; NaN is worse than everything.
func Better(a, b float64, maximise bool) bool {
	switch {
	case math.IsNaN(a):
		return false
	case math.IsNaN(b):
		return true
	case maximise:
		return a > b
	default:
		return a < b
	}
}
