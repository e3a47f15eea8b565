package tuner

import (
	"github.com/outbid-dev/outbid/orchestrator/tuner/setting"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Traits are what other packages need to know of a kind of tuner. A plugin has none of them.
type Traits struct {
	// Endless tuners create trials until a limit ends the sweep.
	Endless bool
	// Independent trials are all trained to the end, and none waits for another.
	Independent bool
	// Rungs says how trials pass from rung to rung.
	Rungs Rungs
	// Forecasts is set if trials' total steps are forecasts, which may be below the maximum.
	Forecasts bool
	// Copies is set if trials copy each other's checkpoints.
	Copies bool
}

// Rungs says how the trials of a tuner pass from rung to rung.
type Rungs int

const (
	// NoRungs means that trials train to the end, or are stopped on the way.
	NoRungs Rungs = iota
	// Phases means that all trials are in the same rung, which is decided when they have reached it.
	Phases
	// BracketRungs is like Phases within each of several brackets.
	BracketRungs
	// AsynchronousRungs means that a trial continues as soon as it is among the best so far.
	AsynchronousRungs
)

// NameOf returns a tuner's name as written in a spec, such as "asha", or "" if none is set.
func NameOf(t *outbidv1.Tuner) string {
	_, name := setting.Tuner(t)
	return name
}

// MaxSteps returns the maximum number of steps of one trial, or 0 if the training code decides when to end.
func MaxSteps(t *outbidv1.Tuner) int64 {
	m, name := setting.Tuner(t)
	if name == "" {
		return 0
	}
	return setting.Int(m, setting.Steps)
}

// Default fills in the settings of a tuner that are not set. Some defaults depend on max_steps but do not change if
// max_steps is raised later; those are not set.
func Default(t *outbidv1.Tuner) {
	if m, name := setting.Tuner(t); name != "" && m.IsValid() {
		setting.Default(m)
	}
}
