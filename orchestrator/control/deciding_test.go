package control_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/themis"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	"github.com/outbid-dev/outbid/orchestrator/spec"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// pondering is Themis with a delay before each decision.
type pondering struct {
	*themis.Policy
	takes time.Duration
}

func (p pondering) Decide(v *policy.View) policy.Plan {
	pass(p.takes)
	return p.Policy.Decide(v)
}

func newThemis() *themis.Policy { return themis.New(policy.NewOptions(nil)) }

// A policy takes five seconds for each round. Meanwhile reports and commands are handled and workers are seen.
// Snapshots are still taken, and a replay makes the same decisions.
func TestASlowPolicyDoesNotDelayReports(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		record := ledger.NewMemory()
		l, err := control.Open(t.Context(), control.Config{
			Settings: settings(), Policy: pondering{newThemis(), 5 * time.Second}, Ledger: record, History: &reports{}, Now: time.Now,
			Logger: slog.New(slog.DiscardHandler), Send: func(*outbidv1.Orders) error { return nil }, SnapshotEvery: 40,
			Delete: func(context.Context, string) error { return nil },
			Info:   func() *outbidv1.GetServerInfoResponse { return &outbidv1.GetServerInfoResponse{} },
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- l.Run(ctx) }()
		submit := func(s *outbidv1.SweepSpec) string {
			id, err := l.Submit(t.Context(), s, "me", "")
			if err != nil {
				t.Fatal(err)
			}
			return id
		}
		l.Uplink(&outbidv1.Uplink{Node: "n", Boot: "b", Info: &outbidv1.NodeInfo{Devices: []*outbidv1.Device{{Type: "cpu"}, {Type: "cpu"}}}})
		outside := sim.Sweep("told", "min", 1, sim.Tuner("random", map[string]int64{"max_steps": 1000}))
		outside.Workload, outside.Resources = &outbidv1.SweepSpec_External{External: &outbidv1.External{}}, nil
		told := submit(outside)
		asked, err := l.Ask(t.Context(), told, "c")
		if err != nil {
			t.Fatal(err)
		}
		grows := sim.Sweep("s", "min", 2, sim.Tuner("asha", map[string]int64{"max_steps": 9}))
		spec.Default(grows)
		runs := submit(grows)
		for step := range int64(60) {
			began := time.Now()
			if _, err := l.Tell(t.Context(), &outbidv1.TellTrialRequest{Sweep: told, LeaseId: asked.GetLeaseId(), Reports: []*outbidv1.Report{
				{Step: step + 1, Metrics: map[string]float64{"loss": 1}},
			}}); err != nil {
				t.Fatal(err)
			}
			if step%10 == 0 { // a tuner's outlook changes while the policy may read it
				if _, err := l.Extend(t.Context(), &outbidv1.ExtendSweepRequest{Sweep: runs, Trials: new(int32(3 + step))}, "me"); err != nil {
					t.Fatal(err)
				}
			}
			if took := time.Since(began); took > 300*time.Millisecond {
				t.Errorf("a report was decided after %s", took)
			}
			l.Uplink(&outbidv1.Uplink{Node: "n", Boot: "b"})
			pass(500 * time.Millisecond)
		}
		if running := runningTrials(t, l, runs); running != 2 {
			t.Errorf("%d trials run, want 2", running)
		}
		if got := stateOf(t, l, "n"); got != outbidv1.NodeState_NODE_STATE_UP {
			t.Errorf("the node is %s", got)
		}
		if seq, _, err := record.LoadSnapshot(t.Context()); err != nil || seq == 0 {
			t.Errorf("the newest snapshot is of %d: %v", seq, err)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		audit, _, err := control.Replay(t.Context(), settings(), newThemis(), record.Another())
		if err != nil || audit.Decisions < 2 || audit.Differing > 0 {
			t.Errorf("replay: %v, %+v", err, audit)
		}
		if _, err := control.Restore(t.Context(), settings(), newThemis(), record.Another(), nil); err != nil {
			t.Error(err)
		}
	})
}

// The decisions of a long round are applied as far as they still fit: not on a node that is lost, nor for a sweep
// that was stopped or deleted. That does not count as a mistake of the policy.
func TestLongRoundsApplyDecisionsThatStillFit(t *testing.T) {
	t.Parallel()
	sweep := func() *outbidv1.SweepSpec {
		return sim.Sweep("s", "min", 2, sim.Tuner("random", map[string]int64{"max_steps": 9}))
	}
	// open returns a bench with a sweep that waits for two devices when there are two, and with the policy in a long
	// decision.
	open := func(t *testing.T) (*bench, func()) {
		set := settings()
		var decide func()
		ponders := false
		set.Beside = func(f func()) bool {
			if !ponders {
				f()
				return true
			}
			decide = f
			return false
		}
		b := benchOf(t, control.NewCore(set, newThemis(), state.New()), 2, sweep())
		b.submit(sweep())
		b.step(control.Tick{})
		ponders = true
		b.join("n2", 2)
		if !b.core.Deciding() {
			t.Fatal("the policy does not ponder")
		}
		b.join("n3", 2) // after the round began
		return b, func() {
			decide()
			ponders = false
			b.step(control.PolicyDone{})
		}
	}
	granted := func(b *bench) map[string]int {
		got := map[string]int{}
		for _, e := range b.out.Events {
			if r := e.GetRoundDecided(); r != nil && !r.GetBegunBefore() {
				break
			}
			if g := e.GetLeaseGranted(); g != nil {
				got[g.GetSweep()]++
			}
			if n := e.GetNote(); n.GetKind() == outbidv1.NoteKind_NOTE_KIND_GRANT_REFUSED {
				got["refused"]++
			}
		}
		return got
	}
	for name, tc := range map[string]struct {
		meanwhile []control.Input
		want      int
	}{
		"nothing":          {nil, 2},
		"a node left":      {[]control.Input{control.Uplink{Message: &outbidv1.Uplink{Node: "n2", Boot: "b", Leaving: true}}}, 0},
		"a sweep stopped":  {stopped("s-2"), 0},
		"sweeps were gone": {append(stopped("s-2"), control.Delete{Sweep: "s-2", Actor: "me", Done: func(state.Deleted, error) {}}), 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, end := open(t)
			for _, in := range tc.meanwhile {
				b.step(in)
			}
			if _, err := b.core.Snapshot(); err == nil {
				t.Error("a snapshot was made of a policy that ponders")
			}
			end()
			got := granted(b)
			if got["refused"] > 0 || got["s-2"] != tc.want {
				t.Errorf("granted were %v, want %d", got, tc.want)
			}
			audit, _, err := control.Replay(t.Context(), settings(), newThemis(), b.ledger.Another())
			if err != nil || audit.Differing > 0 {
				t.Errorf("replay: %v, %+v", err, audit)
			}
		})
	}
}

func stopped(sweep string) []control.Input {
	return []control.Input{control.Command{Sweep: sweep, Command: outbidv1.SweepCommand_SWEEP_COMMAND_STOP, Actor: "me", Done: func(error) {}}}
}
