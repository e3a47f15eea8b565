// Package tuner is the contract of tuners, which decide which configurations a sweep trains and for how long. Package
// registry lists the built-in ones, which have a folder each.
//
// A Tuner is a deterministic state machine: it takes events and returns actions. It has no clock and does no I/O, and
// its random generator is part of its snapshot. The same events therefore give the same actions in production, in the
// simulator and in replay.
package tuner

import (
	"errors"
	"math"
)

// A Trial is a trial's number, counted from 0 in the order in which the tuner created the trials.
type Trial int32

// A Config is a configuration: parameter name to float64, int64, string, bool, nil, []any or nested map[string]any.
type Config = map[string]any

// A Tuner is the tuner of one sweep. Handle is never called concurrently and never blocks for long.
//
// A Tuner asks for a trial to be trained until a step. When the trial gets there, the tuner receives Reached. It
// answers in the same call or later with Train (continue until a later step), Pause (leave the device) or End. The
// control loop pauses a trial that reached its target without an answer. A Train for a paused trial resumes it from its
// newest checkpoint.
type Tuner interface {
	// Handle takes one event and returns the actions to apply, in order. An error is final: the sweep fails with it.
	Handle(Event) ([]Action, error)
	// Status reports whether an Ask could give the control loop anything to run.
	Status() Status
	// Outlook estimates how much the tuner will train in total.
	Outlook() Outlook
	// Snapshot returns the tuner's whole state, including the random generator's. A tuner that Restore returns for it
	// gives the same actions for the same later events.
	Snapshot() ([]byte, error)
}

// Status says whether an Ask is useful.
type Status struct {
	// Waiting: nothing can run until a trial reaches its target, reports or exits.
	Waiting bool
	// Exhausted: there will never be another trial or promotion, unless the sweep is extended. The sweep is done once
	// no trial is queued, running, or paused with a resumption pending.
	Exhausted bool
}

// An Event is an input of a tuner: Ask, Reported, Reached, Exited or Extended.
type Event interface{ tunerEvent() }

// Ask says that up to N more trials could run. The tuner answers with at most N Create or Train actions.
type Ask struct{ N int }

// Reported is a report of a trial that has not reached its target.
type Reported struct {
	Trial Trial
	// Step is the number of steps done.
	Step int64
	// Metric is the sweep's metric, or NaN if this report does not contain it.
	Metric float64
	// Metrics are all values of the report.
	Metrics map[string]float64
}

// Reached says that a trial did all steps up to its target. Metric is that of its newest report, or NaN if it never
// reported the sweep's metric. Metrics are all values of its newest report.
type Reached struct {
	Trial   Trial
	Step    int64
	Metric  float64
	Metrics map[string]float64
}

// Exited says that a trial ended without an End from the tuner: its code ended before the target or without one, it
// failed for good, or a limit ended it. Later actions may name it only as the source of a Clone.
type Exited struct {
	Trial Trial
	Step  int64
	// Failed is set if the trial failed for good; otherwise its code ended normally.
	Failed bool
	// Metric is the newest value, or NaN if the trial never reported it.
	Metric float64
	// Metrics are all values of the newest report.
	Metrics map[string]float64
}

// Extended replaces the settings: more trials, more steps or a wider space. registry.CheckExtension reports beforehand
// whether a built-in tuner accepts them. Afterwards a Train may name a trial that was Ended as Completed: it continues to the new
// last step from its newest checkpoint, or from the start if the checkpoint was deleted.
type Extended struct{ Settings Settings }

func (Ask) tunerEvent()      {}
func (Reported) tunerEvent() {}
func (Reached) tunerEvent()  {}
func (Exited) tunerEvent()   {}
func (Extended) tunerEvent() {}

// An Action is an output of a tuner: Create, Train, Pause, End or Clone.
type Action interface{ tunerAction() }

// Create starts the next trial. Its number is the number of earlier Creates.
type Create struct {
	Config Config
	// UntilStep is the first target; 0 means until the training code ends.
	UntilStep int64
	Bracket   int
	Seed      uint64
	// Reason explains the action to people.
	Reason string
}

// Train continues a trial until a later step. A paused trial is resumed from its newest checkpoint.
type Train struct {
	Trial     Trial
	UntilStep int64
	Reason    string
}

// Pause takes a trial that reached its target off its device. Train may resume it.
type Pause struct {
	Trial  Trial
	Reason string
}

// End ends a trial; only an extension can resume it. Completed is set if the trial trained for the maximum number of
// steps, and not set if it was pruned.
type End struct {
	Trial     Trial
	Completed bool
	Reason    string
}

// Clone continues a trial from the newest checkpoint of Source, which may be the trial itself, with another
// configuration (the exploit and explore steps of PBT). Source may have ended.
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

// Outlook is the total work that a tuner expects to do.
type Outlook struct {
	// Trials is the number of trials that it will create; 0 if unbounded.
	Trials int
	// Steps is the sum of all trials' steps, each counted once; 0 if unbounded or unknown.
	Steps int64
	Rungs []Rung
}

// Rung is one stage of a bracket.
type Rung struct {
	Bracket   int
	UntilStep int64
	// Trials is the number of trials that enter the rung, Steps the sum of the steps that they train in it.
	Trials int
	Steps  int64
}

// ErrBadSnapshot is returned by Restore for bytes that are not a snapshot of the tuner.
var ErrBadSnapshot = errors.New("not a snapshot of this tuner")

// Better reports whether metric a is better than b under the mode. NaN is worse than every number.
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
