package state_test

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Users see the cost of a running trial until now, the node of its leading fork, and that fork's speed.
func TestATrialAsPeopleSeeIt(t *testing.T) {
	t.Parallel()
	st, s := running(t, spec(1), 2)
	tr := s.Trials[0]
	view := func(e *outbidv1.Event) *outbidv1.Trial {
		apply(t, st, e)
		return st.TrialView(s, tr)
	}
	if v := st.TrialView(s, tr); v.GetNode() != "n" || !slices.Equal(v.GetDevices(), []int32{0}) || v.GetStepsPerSecond() != 0 {
		t.Errorf("before its first report: %v", v)
	}
	apply(t, st, begins(0, 10), timed(0, 1, 30, 5))
	if got := st.TrialView(s, tr).GetStepsPerSecond(); got != 4 {
		t.Errorf("%g steps/s, want 4", got)
	}
	if got := view(says(0, 31, .5)).GetStepsPerSecond(); got != 0 {
		t.Errorf("%g steps/s in no time", got)
	}
	over := leaseEnded(0, 1)
	over.GetLeaseEnded().DeviceSeconds = 20
	applyAt(t, st, 20, over)
	if v := st.TrialView(s, tr); v.GetDeviceSeconds() != 20 || v.GetNode() != "" || v.GetStepsPerSecond() != 0 {
		t.Errorf("without a lease: %v", v)
	}
	apply(t, st, granted(0, 3, 0))
	applyAt(t, st, 10, says(1, 1, .5))
	if v := st.TrialView(s, tr); v.GetDeviceSeconds() != 30 || v.GetStepsPerSecond() != 0 {
		t.Errorf("under its next lease, which has not reported: %g device seconds, %g steps/s", v.GetDeviceSeconds(), v.GetStepsPerSecond())
	}
	if got := st.View(s).GetDeviceSeconds(); got != 40 { // 20, and ten seconds of both
		t.Errorf("the sweep cost %g device seconds, want 40", got)
	}
	if c := st.View(s).GetCounts(); c.GetRunning() != 2 || c.GetTotal() != 2 || c.GetQueued() != 0 {
		t.Errorf("counts %v", c)
	}
}

// Waiting trials are shown as paused while their sweep is, also to readers that follow the changes. In the ledger
// they still wait for devices.
func TestATrialThatWaitsInAPausedSweep(t *testing.T) {
	t.Parallel()
	const wants, held = outbidv1.TrialState_TRIAL_STATE_QUEUED, outbidv1.TrialState_TRIAL_STATE_PAUSED
	st, s := running(t, spec(1), 2)
	apply(t, st, leaseEnded(0, 1))
	see := func(as outbidv1.TrialState, queued, paused int32) {
		t.Helper()
		p, err := st.Publish().Sweep(s.ID)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.TrialView(st.Time, p.At(0)).GetState(); got != as {
			t.Errorf("it is seen as %s, want %s", got, as)
		}
		if got := p.TrialView(st.Time, p.At(1)).GetState(); got != outbidv1.TrialState_TRIAL_STATE_RUNNING {
			t.Errorf("one that runs is seen as %s", got)
		}
		c := p.View(st.Time).GetCounts()
		if c.GetQueued() != queued || c.GetPaused() != paused || c.GetRunning() != 1 {
			t.Errorf("counts %v, want %d queued and %d paused", c, queued, paused)
		}
		if s.Trials[0].State != wants {
			t.Errorf("it is %s", s.Trials[0].State)
		}
	}
	see(wants, 1, 0)
	for _, step := range []struct {
		to             outbidv1.SweepState
		as             outbidv1.TrialState
		queued, paused int32
	}{
		{outbidv1.SweepState_SWEEP_STATE_PAUSED, held, 0, 1},
		{outbidv1.SweepState_SWEEP_STATE_RUNNING, wants, 1, 0},
	} {
		before := s.Version
		apply(t, st, changed(s.ID, step.to))
		see(step.as, step.queued, step.paused)
		if got := s.ChangedSince(before); !slices.Equal(got, []int32{0}) {
			t.Errorf("%v changed, want trial 0", got)
		}
	}
}

func TestConfigurationsAsPeopleSeeThem(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]*structpb.Struct{
		`{"lr":0.5}`:       {Fields: map[string]*structpb.Value{"lr": structpb.NewNumberValue(.5)}},
		`{"lr":`:           nil,
		"{\"a\\u0000\":1}": {Fields: map[string]*structpb.Value{"a\x00": structpb.NewNumberValue(1)}},
	} {
		e := created(0)
		e.GetTrialCreated().ConfigJson = text
		st := state.New()
		apply(t, st, submitted(spec(1)), e)
		s := st.Sweeps["s-1"]
		if v := st.TrialView(s, s.Trials[0]); !proto.Equal(v.GetConfig(), want) || v.GetConfigJson() != text {
			t.Errorf("%s is shown as %v", text, v.GetConfig())
		}
	}
}

func TestANodeAsPeopleSeeIt(t *testing.T) {
	t.Parallel()
	st := state.New()
	apply(t, st, submitted(spec(1)), joined(3), created(0), created(1), granted(0, 1, 2), granted(1, 2, 0))
	want := []*outbidv1.DeviceUse{
		{Device: 0, Fork: &outbidv1.ForkRef{Sweep: "s-1", Trial: 1, LeaseId: 2}}, {Device: 2, Fork: &outbidv1.ForkRef{Sweep: "s-1", LeaseId: 1}},
	}
	if got := st.Nodes["n"].NodeView().GetUses(); !slices.EqualFunc(got, want, func(a, b *outbidv1.DeviceUse) bool { return proto.Equal(a, b) }) {
		t.Errorf("its devices are used by %v", got)
	}
	if got := st.Nodes["n"].FreeDevices(); !slices.Equal(got, []int32{1}) {
		t.Errorf("%v are free", got)
	}
	end := timestamppb.New(at())
	apply(t, st, &outbidv1.Event{Kind: &outbidv1.Event_LeaseRenewed{LeaseRenewed: &outbidv1.LeaseRenewed{Sweep: "s-1", LeaseId: 1, TermEnd: end}}})
	if got := st.Nodes["n"].NodeView().GetUses(); got[0].GetTermEnd() != nil || !proto.Equal(got[1].GetTermEnd(), end) {
		t.Errorf("after the renewal its devices are used by %v", got)
	}
}
