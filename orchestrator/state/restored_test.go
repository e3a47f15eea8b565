package state_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// checkBooks returns an error if a state's counts, queues or holders do not match its trials.
func checkBooks(st *state.State) error {
	holders := map[*state.Lease]int{}
	for _, s := range st.Sweeps {
		var counts [8]int32
		waiting, running := map[int32]bool{}, []int32{}
		for _, t := range s.Trials {
			counts[t.State]++
			waiting[t.Number] = t.State == outbidv1.TrialState_TRIAL_STATE_QUEUED
			if len(t.Leases) > 0 {
				running = append(running, t.Number)
			}
			for _, l := range t.Leases {
				holders[l] = l.Size()
			}
		}
		if counts != s.Counts {
			return fmt.Errorf("%s counts %v, its trials %v", s.ID, s.Counts, counts)
		}
		for _, n := range s.Queued {
			if !waiting[n] {
				return fmt.Errorf("trial %d is in the queue %v, once too often or as %s", n, s.Queued, state.TrialWord(s.Trials[n].State))
			}
			delete(waiting, n)
		}
		for n, left := range waiting {
			if left {
				return fmt.Errorf("trial %d waits and is not in the queue %v", n, s.Queued)
			}
		}
		slices.SortFunc(running, func(a, b int32) int { return int(s.Trials[a].Lead().ID) - int(s.Trials[b].Lead().ID) })
		if !slices.Equal(running, s.Running) {
			return fmt.Errorf("%v run, its trials say %v", s.Running, running)
		}
	}
	for _, n := range st.Nodes {
		for _, l := range n.Holders {
			if l == nil {
				continue
			}
			if holders[l] == 0 || !slices.Contains(n.Leases, l) {
				return fmt.Errorf("lease %d holds devices of %s that are not its own", l.ID, n.Info.GetName())
			}
			holders[l]--
		}
	}
	for l, missing := range holders {
		if missing > 0 {
			return fmt.Errorf("lease %d does not hold %d of its devices", l.ID, missing)
		}
	}
	return nil
}

// A snapshot is damaged if a trial has a wrong number or state, or if two leases hold one device.
func TestADamagedSnapshotIsRefused(t *testing.T) {
	t.Parallel()
	st, _ := running(t, spec(1), 2)
	apply(t, st, created(2), ended(2, outbidv1.TrialState_TRIAL_STATE_CANCELLED))
	for name, tc := range map[string]struct {
		damage func(*outbidv1.SweepRecord)
		fits   bool
	}{
		"as it was":                {func(*outbidv1.SweepRecord) {}, true},
		"trials in another order":  {func(s *outbidv1.SweepRecord) { s.Trials[0], s.Trials[1] = s.Trials[1], s.Trials[0] }, false},
		"a trial in no state":      {func(s *outbidv1.SweepRecord) { s.Trials[1].Trial.State = 0 }, false},
		"a trial in another state": {func(s *outbidv1.SweepRecord) { s.Trials[2].Trial.State++ }, false},
		"two on a device":          {func(s *outbidv1.SweepRecord) { s.Trials[1].Held[0].Places[0].Devices[0] = 0 }, false},
	} {
		snap := proto.CloneOf(st.Snapshot())
		tc.damage(snap.GetSweeps()[0])
		if _, err := state.Restore(snap); (err == nil) != tc.fits || err != nil && !errors.Is(err, state.ErrBroken) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The last checkpoint of a fork that does not lead is kept while it runs, however often the leading fork saves.
func TestTheNewestOfEachForkIsKept(t *testing.T) {
	t.Parallel()
	st, s, tr := forked(t)
	apply(t, st, savedUnder(1, "a1", 1), savedUnder(2, "b1", 1), savedUnder(2, "b2", 2), savedUnder(1, "a2", 2), savedUnder(1, "a3", 3), savedUnder(1, "a4", 4))
	if got := keysOf(s.Droppable(tr)); slices.Contains(got, "b2") || !slices.Contains(got, "b1") || !slices.Contains(got, "a2") {
		t.Errorf("%v may go", got)
	}
}

// A clone whose start cannot be read starts from the previous checkpoint of the same trial.
func TestACloneStartsFromTheOneBefore(t *testing.T) {
	t.Parallel()
	st, s := running(t, spec(2), 3)
	apply(t, st, saved(0, "x", 9, .1), saved(1, "a", 1, .5), saved(1, "b", 2, .4), cloned(2, 1, 9), unreadable(2, "b"))
	if got := s.Trials[2].From().GetKey(); got != "a" {
		t.Errorf("it starts from %q, want a", got)
	}
}

// A trial remembers the other trial that its tuner copied last, also in a snapshot. A copy of itself is not one.
func TestATrialRemembersWhatItWasCopiedFrom(t *testing.T) {
	t.Parallel()
	st, _ := running(t, spec(2), 3)
	apply(t, st, saved(0, "x", 9, .1), saved(2, "y", 1, .5), cloned(1, 0, 9), cloned(2, 2, 9))
	for _, st := range []*state.State{st, restore(t, st)} {
		s := st.Sweeps["s-1"]
		if got := st.TrialView(s, s.Trials[1]).CopiedFrom; got == nil || *got != 0 {
			t.Errorf("trial 1 was copied from %v, want trial 0", got)
		}
		if got := st.TrialView(s, s.Trials[2]).CopiedFrom; got != nil {
			t.Errorf("trial 2 was copied from %d", *got)
		}
	}
}
