package sim

import (
	"fmt"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Check returns an error if an invariant of the state is violated: devices have one owner, gangs are complete, a trial
// that holds devices is running or ending, a paused one holds none, and counts are correct.
func Check(st *state.State) error {
	held := map[uint64]int{}
	for _, name := range st.NodeNames {
		for i, l := range st.Nodes[name].Holders {
			if l == nil {
				continue
			}
			held[l.ID]++
			if at := l.PlaceOn(name); at < 0 || !slices.Contains(l.Places[at].Devices, int32(i)) {
				return fmt.Errorf("device %d of %s is held by lease %d, which does not have it", i, name, l.ID)
			}
		}
	}
	for _, id := range st.SweepIDs {
		if err := checkSweep(st.Sweeps[id], held); err != nil {
			return fmt.Errorf("sweep %s: %w", id, err)
		}
	}
	for _, sus := range st.Suspects() {
		for _, l := range sus.Trial.Leases {
			for _, p := range l.Places {
				if n := len(st.Nodes[p.Node].Leases); !p.Ended && n != 1 && l.Revoking == outbidv1.RevokeKind_REVOKE_KIND_UNSPECIFIED {
					return fmt.Errorf("trial %d of %s should be alone on %s, but there are %d leases", l.Trial, l.Sweep, p.Node, n)
				}
			}
		}
	}
	for leaseID := range held {
		return fmt.Errorf("devices are held by lease %d, which belongs to no trial", leaseID)
	}
	return nil
}

func checkSweep(s *state.Sweep, held map[uint64]int) error {
	var counts [8]int32
	running := 0
	for _, t := range s.Trials {
		counts[t.State]++
		if len(t.Leases) > 0 {
			running++
		}
		for i, l := range t.Leases {
			if i > 0 && l.ID <= t.Leases[i-1].ID {
				return fmt.Errorf("trial %d holds lease %d after %d", t.Number, l.ID, t.Leases[i-1].ID)
			}
			if want := stillHeld(l); held[l.ID] != want {
				return fmt.Errorf("trial %d: of its gang of %d devices %d have not ended, but it holds %d", t.Number, l.Size(), want, held[l.ID])
			}
			delete(held, l.ID)
		}
		isRunning := t.State == outbidv1.TrialState_TRIAL_STATE_RUNNING
		if isRunning && len(t.Leases) == 0 || !isRunning && !t.Done() && len(t.Leases) > 0 {
			return fmt.Errorf("trial %d is %s with lease %+v", t.Number, state.TrialWord(t.State), t.Lead())
		}
	}
	if counts != s.Counts || running != len(s.Running) || int(counts[outbidv1.TrialState_TRIAL_STATE_QUEUED]) != len(s.Queued) {
		return fmt.Errorf("counts are %v, running %d, queued %d; the trials say %v and %d", s.Counts, len(s.Running), len(s.Queued), counts, running)
	}
	return nil
}

// stillHeld returns the number of devices in the places of a lease that have not ended. A lease ends with the last of
// them.
func stillHeld(l *state.Lease) int {
	n := 0
	for _, p := range l.Places {
		if !p.Ended {
			n += len(p.Devices)
		}
	}
	return n
}
