package state_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// counters flattens all totals as they are exported.
func counters(all []*state.Totals) map[string]int64 {
	flat := map[string]int64{}
	for _, t := range all {
		flat[t.Tenant+" submitted"] = t.SweepsSubmitted
		for kind, n := range t.DeviceMicros {
			flat[t.Tenant+" devices "+kind] = n
		}
		for s, n := range t.TrialsEnded {
			flat[fmt.Sprint(t.Tenant, " trials ", s)] = n
		}
		for s, n := range t.SweepsEnded {
			flat[fmt.Sprint(t.Tenant, " sweeps ", s)] = n
		}
		for k, n := range t.ForkFailures {
			flat[fmt.Sprint(t.Tenant, " failures ", k)] = n
		}
	}
	return flat
}

// mustNotFall fails if a counter is smaller than before, or has disappeared.
func mustNotFall(t interface{ Fatalf(string, ...any) }, before, after map[string]int64) {
	for name, n := range before {
		if now, there := after[name]; !there || now < n {
			t.Fatalf("%s fell from %d to %d (there: %t)", name, n, now, there)
		}
	}
}

// No event or restart makes a counter smaller. The events include deletions, and places that end before their lease,
// whose node may have other devices when a snapshot is restored.
func TestTotalsNeverFall(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		st, now := state.New(), at()
		fold := func(e *outbidv1.Event) {
			now = now.Add(time.Duration(rapid.IntRange(0, 3_000_000_000).Draw(rt, "passed")))
			if err := st.Apply(now, e); err != nil && !errors.Is(err, state.ErrBroken) {
				rt.Fatalf("an event gave %v", err)
			}
		}
		fold(submittedAs("s-1", ""))
		fold(joined(3))
		before := map[string]int64{}
		for range rapid.IntRange(0, 60).Draw(rt, "events") {
			switch rapid.IntRange(0, 20).Draw(rt, "what") {
			case 0:
				restored, err := state.Restore(proto.CloneOf(st.Snapshot()))
				if err != nil {
					rt.Fatalf("restore: %v", err)
				}
				if diff := cmp.Diff(counters(st.Publish().Totals()), counters(restored.Publish().Totals())); diff != "" {
					rt.Fatalf("restored (-live +restored):\n%s", diff)
				}
				st = restored
			case 1:
				endSweep(st, fold)
				fold(deleted("s-1"))
				after := counters(st.Publish().Totals())
				mustNotFall(rt, before, after)
				return // the other events are about it
			case 2:
				if len(st.Sweeps["s-1"].Trials) > 0 {
					fold(failing(failed(0, outbidv1.FailureKind_FAILURE_KIND_SIGNAL)))
				}
			default:
				fold(legalEvent(rt, st))
			}
			after := counters(st.Publish().Totals())
			mustNotFall(rt, before, after)
			before = after
		}
	})
}

// endSweep ends every trial, every lease and the sweep.
func endSweep(st *state.State, fold func(*outbidv1.Event)) {
	for _, tr := range st.Sweeps["s-1"].Trials {
		if !tr.Done() {
			fold(ended(tr.Number, outbidv1.TrialState_TRIAL_STATE_CANCELLED))
		}
		for len(tr.Leases) > 0 {
			fold(leaseEnded(tr.Number, tr.Leases[0].ID))
		}
	}
	fold(changed("s-1", outbidv1.SweepState_SWEEP_STATE_STOPPING))
	fold(changed("s-1", outbidv1.SweepState_SWEEP_STATE_STOPPED))
}

func TestTotalsOutliveTheirSweep(t *testing.T) {
	t.Parallel()
	st, now := state.New(), at()
	fold := func(e *outbidv1.Event) {
		t.Helper()
		if err := st.Apply(now, e); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range []*outbidv1.Event{
		machine("a", "r1", "v100", 2), machine("b", "r1", "k80", 1), submittedAs("s-1", ""), created(0), grant(0, 1, place("a", 0, 1), place("b", 0)),
	} {
		fold(e)
	}
	now = now.Add(1500 * time.Millisecond)
	fold(placeEnded(0, 1, "b"))
	want := map[string]int64{"vision submitted": 1, "vision devices v100": 3_000_000, "vision devices k80": 1_500_000}
	if diff := cmp.Diff(want, counters(st.Publish().Totals())); diff != "" {
		t.Errorf("while it runs (-want +got):\n%s", diff)
	}
	fold(nodeChanged("b", outbidv1.NodeState_NODE_STATE_LOST))
	fold(machine("b", "r1", "h100", 1)) // it comes back as another machine
	st = restore(t, st)
	now = now.Add(500 * time.Millisecond)
	fold(failing(failed(0, outbidv1.FailureKind_FAILURE_KIND_ERROR)))
	endSweep(st, fold)
	fold(deleted("s-1"))
	want = map[string]int64{
		"vision submitted": 1, "vision devices v100": 4_000_000, "vision devices k80": 2_000_000, "vision trials TRIAL_STATE_CANCELLED": 1,
		"vision sweeps SWEEP_STATE_STOPPED": 1, "vision failures FAILURE_KIND_ERROR": 1,
	}
	for name, st := range map[string]*state.State{"live": st, "restored": restore(t, st)} {
		if diff := cmp.Diff(want, counters(st.Publish().Totals())); diff != "" {
			t.Errorf("%s, after the deletion (-want +got):\n%s", name, diff)
		}
	}
}

// Clients without tokens may name any tenant, which must not create any number of counters.
func TestTotalsAreBounded(t *testing.T) {
	t.Parallel()
	const rows = 1001 // a thousand tenants, and the others
	st := state.New()
	for i := range 2 * rows {
		e := submittedAs(fmt.Sprintf("s-%d", i+1), "")
		e.GetSweepSubmitted().GetSpec().Tenant = fmt.Sprintf("t%d", i)
		apply(t, st, e)
	}
	devices := machine("a", "r1", "", 150)
	for i, d := range devices.GetNodeJoined().GetNode().GetDevices() {
		d.Type = fmt.Sprintf("type%d", i)
	}
	last := fmt.Sprintf("s-%d", 2*rows)
	apply(t, st, devices, &outbidv1.Event{Kind: &outbidv1.Event_TrialCreated{TrialCreated: &outbidv1.TrialCreated{Sweep: last}}})
	for i := range 150 {
		g := granted(0, uint64(i+1), int32(i)).GetLeaseGranted()
		g.Sweep, g.Places, g.Fork = last, []*outbidv1.LeasePlace{place("a", int32(i))}, i > 0
		apply(t, st, &outbidv1.Event{Kind: &outbidv1.Event_LeaseGranted{LeaseGranted: g}})
	}
	for name, st := range map[string]*state.State{"live": st, "restored": restore(t, st)} {
		all := st.Publish().Totals()
		if len(all) != rows {
			t.Errorf("%s: %d tenants are counted, want %d", name, len(all), rows)
		}
		if o := all[0]; o.Tenant != state.OtherTotals || o.SweepsSubmitted != rows+1 || len(o.DeviceMicros) != 101 {
			t.Errorf("%s: the others are %q with %d sweeps and %d types", name, o.Tenant, o.SweepsSubmitted, len(o.DeviceMicros))
		}
	}
}
