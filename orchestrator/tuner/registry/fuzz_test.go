package registry_test

import (
	"errors"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/registry"
	"github.com/outbid-dev/outbid/orchestrator/tuner/tunertest"
)

// FuzzRestore checks that Restore returns ErrBadSnapshot or a tuner that does not panic.
func FuzzRestore(f *testing.F) {
	all := sweeps()
	names := sortedKeys(all)
	for i, name := range names {
		for _, events := range []int{0, 20, 1000} {
			f.Add(uint8(i), snapshotAfter(f, all[name](), events))
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, snapshot []byte) {
		settings := all[names[int(which)%len(names)]]()
		made, err := registry.Restore(settings, snapshot)
		if err != nil {
			if !errors.Is(err, tuner.ErrBadSnapshot) {
				t.Fatalf("another error: %v", err)
			}
			return
		}
		made.Status()
		made.Outlook()
		for n := range tuner.Trial(3) {
			for _, e := range []tuner.Event{
				tuner.Reported{Trial: n, Step: 1, Metric: 1},
				tuner.Reached{Trial: n, Step: 9, Metric: 1},
				tuner.Ask{N: 2},
				tuner.Exited{Trial: n},
			} {
				_, _ = made.Handle(e)
			}
		}
		if _, err := made.Snapshot(); err != nil {
			t.Fatal(err)
		}
	})
}

func snapshotAfter(tb testing.TB, s tuner.Settings, events int) []byte {
	tb.Helper()
	made, err := registry.New(s)
	if err != nil {
		tb.Fatal(err)
	}
	_, _ = tunertest.Drive(made, tunertest.Options{MaxEvents: events, ReportEvery: 2, Fail: 0.02})
	snapshot, err := made.Snapshot()
	if err != nil {
		tb.Fatal(err)
	}
	return snapshot
}
