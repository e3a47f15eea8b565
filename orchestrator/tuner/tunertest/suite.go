package tunertest

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/registry"
)

// A Kind creates and restores tuners, as registry.New and registry.Restore do for the built-in ones.
type Kind struct {
	New     func(tuner.Settings) (tuner.Tuner, error)
	Restore func(tuner.Settings, []byte) (tuner.Tuner, error)
}

// Builtin returns the Kind of the built-in tuners.
func Builtin() Kind { return Kind{New: registry.New, Restore: registry.Restore} }

// Run checks a built-in tuner; see Check.
func Run(t *testing.T, name string, settings func() tuner.Settings) {
	t.Helper()
	Check(t, name, Builtin(), settings)
}

// Check checks that a tuner meets its contract: the same events give the same actions, also after restoring a snapshot
// at any point; actions name only trials that exist and have not ended; targets increase; an answer does not exceed the
// request; the sweep ends; and NaN, exits and late reports are handled. The settings must bound the number of trials.
func Check(t *testing.T, name string, kind Kind, settings func() tuner.Settings) {
	t.Helper()
	for _, weather := range weathers() {
		t.Run(name+"/"+weather.name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(4) {
				o := weather.options
				o.Seed = seed
				o.Workers = []int{1, 3, 8, 50}[seed]
				checkOnce(t, kind, settings, o)
			}
		})
	}
	t.Run(name+"/refuses", func(t *testing.T) {
		t.Parallel()
		checkRefusals(t, kind, settings())
	})
}

type weather struct {
	name    string
	options Options
}

func weathers() []weather {
	return []weather{
		{"calm", Options{}},
		{"reports", Options{ReportEvery: 1, Late: 0.05}},
		{"NaN", Options{ReportEvery: 2, NaN: 0.3}},
		{"only NaN", Options{NaN: 1}},
		{"exits", Options{ReportEvery: 3, Fail: 0.05, Quit: 0.02, Late: 0.02}},
		{"only failures", Options{Fail: 1}},
	}
}

// checkOnce simulates a sweep and replays its events on a second tuner, and on a third with snapshots in between.
func checkOnce(t *testing.T, kind Kind, settings func() tuner.Settings, o Options) {
	t.Helper()
	first, err := kind.New(settings())
	if err != nil {
		t.Fatalf("new: %v", err)
	}
	result, err := Drive(first, o)
	if err != nil {
		t.Fatalf("seed %d, %d workers: %v", o.Seed, o.Workers, err)
	}
	again, err := kind.New(settings())
	if err != nil {
		t.Fatalf("new: %v", err)
	}
	for i, step := range result.Steps {
		actions, err := again.Handle(step.Event)
		if err != nil {
			t.Fatalf("seed %d: event %d again: %v", o.Seed, i, err)
		}
		if diff := Diff(step.Actions, actions); diff != "" {
			t.Fatalf("seed %d: event %d %+v gave other actions the second time (-first +second):\n%s", o.Seed, i,
				step.Event, diff)
		}
	}
	if err := Resume(kind, settings(), result.Steps, 1+len(result.Steps)/12); err != nil {
		t.Fatalf("seed %d, %d workers: %v", o.Seed, o.Workers, err)
	}
}

// Diff compares actions; a NaN equals a NaN.
func Diff(want, got []tuner.Action) string {
	if reflect.DeepEqual(want, got) {
		return "" // hundreds of times faster than cmp
	}
	return cmp.Diff(want, got, cmpopts.EquateNaNs(), cmpopts.EquateEmpty())
}

// Resume replays the steps of a simulated sweep on a new tuner, which is replaced by a restored snapshot of itself
// every this many events. It returns an error if the actions differ.
func Resume(kind Kind, settings tuner.Settings, steps []Step, every int) error {
	t, err := kind.New(settings)
	if err != nil {
		return fmt.Errorf("new: %w", err)
	}
	for i, step := range steps {
		if i%every == 0 {
			if t, err = reborn(kind, settings, t); err != nil {
				return fmt.Errorf("before event %d: %w", i, err)
			}
		}
		actions, err := t.Handle(step.Event)
		if err != nil {
			return fmt.Errorf("event %d after a restore: %w", i, err)
		}
		if diff := Diff(step.Actions, actions); diff != "" {
			return fmt.Errorf("event %d %+v gave other actions after a restore (-first +restored):\n%s", i, step.Event, diff)
		}
		if e, ok := step.Event.(tuner.Extended); ok {
			settings = e.Settings
		}
	}
	return nil
}

func reborn(kind Kind, settings tuner.Settings, t tuner.Tuner) (tuner.Tuner, error) {
	status := t.Status()
	snapshot, err := t.Snapshot()
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	if t, err = kind.Restore(settings, snapshot); err != nil {
		return nil, fmt.Errorf("restore: %w", err)
	}
	if now := t.Status(); now != status {
		return nil, fmt.Errorf("the status was %+v, and is %+v after a restore", status, now)
	}
	return t, nil
}

// checkRefusals checks requests that must be errors or have no effect.
func checkRefusals(t *testing.T, kind Kind, settings tuner.Settings) {
	t.Helper()
	made, err := kind.New(settings)
	if err != nil {
		t.Fatalf("new: %v", err)
	}
	if _, err := made.Handle(tuner.Reached{Trial: 1 << 20, Step: 1}); err == nil {
		t.Error("a report of a trial that does not exist is no error")
	}
	if actions, err := made.Handle(tuner.Ask{N: 0}); err != nil || len(actions) > 0 {
		t.Errorf("asked for nothing, answered %v, %v", actions, err)
	}
	for _, bad := range [][]byte{nil, []byte("no snapshot"), {0xff, 0, 0xff}} {
		if _, err := kind.Restore(settings, bad); err == nil {
			t.Errorf("restored from %q", bad)
		}
	}
}
