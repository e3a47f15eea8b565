package state_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// machine is a node with devices of a type, two to a slot.
func machine(name, rack, kind string, devices int) *outbidv1.Event {
	info := &outbidv1.NodeInfo{Name: name, Labels: map[string]string{"rack": rack}}
	for i := range devices {
		info.Devices = append(info.Devices, &outbidv1.Device{Index: int32(i), Type: kind, Numa: int32(i / 2)})
	}
	return &outbidv1.Event{Kind: &outbidv1.Event_NodeJoined{NodeJoined: &outbidv1.NodeJoined{Node: info}}}
}

func nodeChanged(name string, to outbidv1.NodeState) *outbidv1.Event {
	return &outbidv1.Event{Kind: &outbidv1.Event_NodeChanged{NodeChanged: &outbidv1.NodeChanged{Node: name, State: to}}}
}

// grant grants places by node names.
func grant(trial int32, leaseID uint64, places ...*outbidv1.LeasePlace) *outbidv1.Event {
	return &outbidv1.Event{Kind: &outbidv1.Event_LeaseGranted{LeaseGranted: &outbidv1.LeaseGranted{
		Sweep: "s-1", Trial: trial, LeaseId: leaseID, Places: places,
	}}}
}

func place(node string, devices ...int32) *outbidv1.LeasePlace {
	return &outbidv1.LeasePlace{Node: node, Devices: devices}
}

func placeEnded(trial int32, leaseID uint64, node string) *outbidv1.Event {
	return &outbidv1.Event{Kind: &outbidv1.Event_PlaceEnded{PlaceEnded: &outbidv1.PlaceEnded{Sweep: "s-1", Trial: trial, LeaseId: leaseID, Node: node}}}
}

// racks returns a state with two racks of machines: a and b with V100s and c with A100s in the first, d in the
// second.
func racks(t *testing.T) *state.State {
	t.Helper()
	st := state.New()
	apply(t, st, submitted(spec(1)), created(0), created(1),
		machine("a", "r1", "v100", 4), machine("b", "r1", "v100", 2), machine("c", "r1", "a100", 2), machine("d", "r2", "v100", 2))
	return st
}

// The type and locality of a lease's devices do not change while its places end, nor after a restart during that.
func TestTypeAndLocalityOfALease(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		places   []*outbidv1.LeasePlace
		kind     string
		locality cluster.Locality
	}{
		"one device":                {[]*outbidv1.LeasePlace{place("a", 1)}, "v100", cluster.SameSlot},
		"a slot":                    {[]*outbidv1.LeasePlace{place("a", 2, 3)}, "v100", cluster.SameSlot},
		"a machine":                 {[]*outbidv1.LeasePlace{place("a", 1, 2)}, "v100", cluster.SameMachine},
		"a rack":                    {[]*outbidv1.LeasePlace{place("a", 0, 1), place("b", 0)}, "v100", cluster.SameRack},
		"a rack, types":             {[]*outbidv1.LeasePlace{place("a", 0), place("b", 0), place("c", 1)}, "", cluster.SameRack},
		"two racks":                 {[]*outbidv1.LeasePlace{place("b", 0), place("d", 1)}, "v100", cluster.AcrossRacks},
		"two racks, types":          {[]*outbidv1.LeasePlace{place("c", 0), place("d", 0)}, "", cluster.AcrossRacks},
		"two racks, first and last": {[]*outbidv1.LeasePlace{place("b", 0), place("a", 0), place("d", 1)}, "v100", cluster.AcrossRacks},
	} {
		live := racks(t)
		apply(t, live, grant(0, 1, tc.places...))
		check := func(when string, st *state.State) {
			l := st.Sweeps["s-1"].Trials[0].Lead()
			if l.Type() != tc.kind || l.Locality() != tc.locality || l.Gang() != (len(tc.places) > 1) {
				t.Errorf("%s, %s: %q devices on %s, gang %t", name, when, l.Type(), l.Locality(), l.Gang())
			}
		}
		check("granted", live)
		check("restored", restore(t, live))
		for _, p := range tc.places {
			apply(t, live, placeEnded(0, 1, p.GetNode()))
			check("ending", live)
			check("ending and restored", restore(t, live))
		}
	}
}

func TestCanGrant(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		before []*outbidv1.Event
		places []*outbidv1.LeasePlace
		fits   bool
		// folds reports that the state accepts the grant, although no policy would make it.
		folds bool
	}{
		"free devices":         {nil, []*outbidv1.LeasePlace{place("a", 0, 3), place("b", 1)}, true, true},
		"the last device":      {nil, []*outbidv1.LeasePlace{place("b", 1)}, true, true},
		"one beyond it":        {nil, []*outbidv1.LeasePlace{place("b", 2)}, false, false},
		"a negative one":       {nil, []*outbidv1.LeasePlace{place("b", -1)}, false, false},
		"an unknown node":      {nil, []*outbidv1.LeasePlace{place("z", 0)}, false, false},
		"one that is held":     {[]*outbidv1.Event{grant(1, 1, place("a", 2))}, []*outbidv1.LeasePlace{place("b", 0), place("a", 2)}, false, false},
		"one that was let go":  {[]*outbidv1.Event{grant(1, 1, place("a", 2), place("b", 0)), placeEnded(1, 1, "a")}, []*outbidv1.LeasePlace{place("a", 2)}, true, true},
		"one not yet let go":   {[]*outbidv1.Event{grant(1, 1, place("a", 2), place("b", 0)), placeEnded(1, 1, "a")}, []*outbidv1.LeasePlace{place("b", 0)}, false, false},
		"a node being drained": {[]*outbidv1.Event{nodeChanged("a", outbidv1.NodeState_NODE_STATE_DRAINING)}, []*outbidv1.LeasePlace{place("a", 0)}, true, true},
		"a node that is lost":  {[]*outbidv1.Event{nodeChanged("a", outbidv1.NodeState_NODE_STATE_LOST)}, []*outbidv1.LeasePlace{place("a", 0)}, false, true},
		"a node that left":     {[]*outbidv1.Event{nodeChanged("a", outbidv1.NodeState_NODE_STATE_LEFT)}, []*outbidv1.LeasePlace{place("a", 0)}, false, true},
	} {
		st := racks(t)
		apply(t, st, tc.before...)
		e := grant(0, st.NextLease, tc.places...)
		if err := st.CanGrant(e.GetLeaseGranted()); (err == nil) != tc.fits || err != nil && !errors.Is(err, state.ErrBroken) {
			t.Errorf("%s: can be granted: %v", name, err)
		}
		if err := st.Apply(at(), e); (err == nil) != tc.folds || err != nil && !errors.Is(err, state.ErrBroken) {
			t.Errorf("%s: granted: %v", name, err)
		}
	}
}

// A gang leaves its nodes one by one. Devices that it left are free at once, and a trial that takes them keeps them
// when the gang has ended.
func TestPlacesEndOneByOne(t *testing.T) {
	t.Parallel()
	st := racks(t)
	apply(t, st, grant(0, 1, place("a", 0, 1), place("b", 0)), begins(0, 0))
	l := st.Sweeps["s-1"].Trials[0].Lead()
	apply(t, st, placeEnded(0, 1, "b"))
	if l.Training.IsZero() || l.PlaceOn("b") >= 0 || l.PlaceOn("a") != 0 || l.Over() || len(st.Nodes["b"].Leases) != 0 {
		t.Errorf("without its second place: trains since %s on %v", l.Training, l.Places)
	}
	if err := st.Apply(at(), placeEnded(0, 1, "b")); !errors.Is(err, state.ErrBroken) {
		t.Errorf("a place ended twice: %v", err)
	}
	apply(t, st, grant(1, 2, place("b", 0, 1)), placeEnded(0, 1, "a"))
	if !l.Training.IsZero() || !l.Over() || !slices.Equal(st.Nodes["a"].FreeDevices(), []int32{0, 1, 2, 3}) {
		t.Errorf("without rank 0: trains since %s; %v of a are free", l.Training, st.Nodes["a"].FreeDevices())
	}
	apply(t, st, leaseEnded(0, 1))
	if other := st.Sweeps["s-1"].Trials[1].Lead(); len(st.Nodes["b"].FreeDevices()) != 0 || st.Nodes["b"].Holders[0] != other ||
		!slices.Equal(st.Nodes["b"].Leases, []*state.Lease{other}) {
		t.Errorf("the end of a lease freed what another holds: %v of b are free", st.Nodes["b"].FreeDevices())
	}
}

func TestALeaseOnItsWay(t *testing.T) {
	t.Parallel()
	bounded := grant(1, 2, place("b", 0))
	bounded.GetLeaseGranted().TermEnd = timestamppb.New(after(300))
	st := racks(t)
	apply(t, st, grant(0, 1, place("a", 0)), bounded)
	trials := st.Sweeps["s-1"].Trials
	free, term := trials[0].Lead(), trials[1].Lead()
	if !free.TermEnd.IsZero() || !term.TermEnd.Equal(after(300)) {
		t.Errorf("terms end at %s and %s", free.TermEnd, term.TermEnd)
	}
	for i, step := range []struct{ how, want outbidv1.RevokeKind }{
		{outbidv1.RevokeKind_REVOKE_KIND_PAUSE, outbidv1.RevokeKind_REVOKE_KIND_PAUSE},
		{outbidv1.RevokeKind_REVOKE_KIND_STOP, outbidv1.RevokeKind_REVOKE_KIND_STOP},
		{outbidv1.RevokeKind_REVOKE_KIND_STOP, outbidv1.RevokeKind_REVOKE_KIND_STOP},
	} {
		version := term.Version
		apply(t, st, &outbidv1.Event{Kind: &outbidv1.Event_LeaseRevoked{LeaseRevoked: &outbidv1.LeaseRevoked{
			Sweep: "s-1", Trial: 1, LeaseId: 2, How: step.how,
		}}})
		if term.Revoking != step.want || term.Version <= version {
			t.Errorf("revocation %d: %s at version %d", i, term.Revoking, term.Version)
		}
	}
	if got := term.DeviceSeconds(after(10)); got != 10 || free.DeviceSeconds(at().Add(-time.Hour)) != 0 {
		t.Errorf("ten seconds of a device cost %g", got)
	}
	apply(t, st, leaseEnded(0, 1), grant(0, 3, place("a", 0, 1), place("c", 0)))
	if got := trials[0].Lead().DeviceSeconds(after(10)); got != 30 {
		t.Errorf("ten seconds of three devices cost %g", got)
	}
}

// A trial that restarts behind its highest step records that, with the step from which it repeats.
func TestTheLeadGoesBack(t *testing.T) {
	t.Parallel()
	st, s := running(t, spec(1), 1)
	apply(t, st, begins(0, 0), says(0, 5, .5), begins(0, 2))
	tr := s.Trials[0]
	if tr.Step != 2 || tr.MaxStep != 5 || len(tr.Rollbacks) != 1 || tr.Rollbacks[0].GetFromStep() != 2 {
		t.Errorf("at step %d of %d, with rollbacks %v", tr.Step, tr.MaxStep, tr.Rollbacks)
	}
	if apply(t, st, begins(0, 2), begins(0, 2)); len(tr.Rollbacks) != 1 {
		t.Errorf("with rollbacks %v, of which the last says it all", tr.Rollbacks)
	}
}

func TestNodesAsPoliciesSeeThem(t *testing.T) {
	t.Parallel()
	st := state.New()
	apply(t, st, joined(1))
	const draining, lost, up = outbidv1.NodeState_NODE_STATE_DRAINING, outbidv1.NodeState_NODE_STATE_LOST, outbidv1.NodeState_NODE_STATE_UP
	for _, to := range []outbidv1.NodeState{draining, up, lost, up, draining, lost} {
		apply(t, st, nodeChanged("n", to))
		for _, st := range []*state.State{st, restore(t, st)} {
			if n := st.Nodes["n"]; n.Shape.Draining != (to == draining) || n.Up() != (to != lost) {
				t.Errorf("%s: draining %t, up %t", to, n.Shape.Draining, n.Up())
			}
		}
	}
	seen := func(boot string) *outbidv1.Event {
		return &outbidv1.Event{Kind: &outbidv1.Event_UplinkSeen{UplinkSeen: &outbidv1.UplinkSeen{Node: "n", Boot: boot, Seq: 3}}}
	}
	if err := st.Apply(at(), seen("another")); !errors.Is(err, state.ErrBroken) || st.Nodes["n"].SeenSeq != 0 {
		t.Errorf("what a process before said was counted: %v", err)
	}
	apply(t, st, seen("b"))
	if st.Nodes["n"].SeenSeq != 3 {
		t.Errorf("%d messages were seen, want 3", st.Nodes["n"].SeenSeq)
	}
}

// Links are ordered by speed: NVLink by its lanes, above every PCIe path, and PCIe paths by how near they meet.
func TestLinksAreOrdered(t *testing.T) {
	t.Parallel()
	info := &outbidv1.NodeInfo{Name: "n", Links: []*outbidv1.DeviceLink{
		{Kind: "sys"}, {Kind: "node"}, {Kind: "phb"}, {Kind: "pxb"}, {Kind: "pix"}, {Kind: "nvlink", Lanes: 1}, {Kind: "nvlink", Lanes: 12},
	}}
	st := state.New()
	apply(t, st, &outbidv1.Event{Kind: &outbidv1.Event_NodeJoined{NodeJoined: &outbidv1.NodeJoined{Node: info}}})
	links := st.Nodes["n"].Shape.Links
	if !slices.IsSortedFunc(links, func(a, b cluster.Link) int { return a.Rank - b.Rank }) || links[0].Rank == links[1].Rank ||
		links[5].Rank == links[6].Rank {
		t.Errorf("the slowest first: %s", fmt.Sprint(links))
	}
}
