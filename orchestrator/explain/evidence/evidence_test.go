package evidence

import (
	"context"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outbid-dev/outbid/orchestrator/explain"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// fake is an API with sweeps, and rounds that take devices from b-1 in round 5.
type fake struct {
	rounds  []*outbidv1.Round
	reports []*outbidv1.TrialReport
	trials  []*outbidv1.Trial
	asked   []*outbidv1.ListRoundsRequest
	nodes   error
}

func (f *fake) ListSweeps(context.Context, *outbidv1.ListSweepsRequest, ...grpc.CallOption) (*outbidv1.ListSweepsResponse, error) {
	return &outbidv1.ListSweepsResponse{Sweeps: []*outbidv1.Sweep{{Id: "c-1", Ended: timestamppb.Now()}, {Id: "b-1"}, {Id: "a-1"}}}, nil
}

func (f *fake) ListTrials(context.Context, *outbidv1.ListTrialsRequest, ...grpc.CallOption) (*outbidv1.ListTrialsResponse, error) {
	return &outbidv1.ListTrialsResponse{Trials: f.trials}, nil
}

func (f *fake) ListReports(context.Context, *outbidv1.ListReportsRequest, ...grpc.CallOption) (
	grpc.ServerStreamingClient[outbidv1.ListReportsResponse], error,
) {
	return &stream{reports: f.reports}, nil
}

func (f *fake) ListNodes(context.Context, *outbidv1.ListNodesRequest, ...grpc.CallOption) (*outbidv1.ListNodesResponse, error) {
	return &outbidv1.ListNodesResponse{}, f.nodes
}

func (f *fake) ListRounds(_ context.Context, req *outbidv1.ListRoundsRequest, _ ...grpc.CallOption) (*outbidv1.ListRoundsResponse, error) {
	f.asked = append(f.asked, req)
	return &outbidv1.ListRoundsResponse{Rounds: slices.Clone(f.rounds)}, nil
}

func (f *fake) GetServerInfo(context.Context, *outbidv1.GetServerInfoRequest, ...grpc.CallOption) (*outbidv1.GetServerInfoResponse, error) {
	return &outbidv1.GetServerInfoResponse{Policy: "themis"}, nil
}

// stream sends one report a message.
type stream struct {
	grpc.ClientStream
	reports []*outbidv1.TrialReport
}

func (s *stream) Recv() (*outbidv1.ListReportsResponse, error) {
	if len(s.reports) == 0 {
		return nil, io.EOF
	}
	first := s.reports[0]
	s.reports = s.reports[1:]
	return &outbidv1.ListReportsResponse{Reports: []*outbidv1.TrialReport{first}}, nil
}

func sweep() *outbidv1.Sweep {
	return &outbidv1.Sweep{Id: "b-1", State: outbidv1.SweepState_SWEEP_STATE_RUNNING, Spec: &outbidv1.SweepSpec{Metric: "loss"}}
}

func TestRoundsAfterALossAreRead(t *testing.T) {
	t.Parallel()
	f := &fake{rounds: []*outbidv1.Round{
		{Round: 9}, {Round: 5, Decisions: []*outbidv1.Decision{{Kind: "revoke", Sweep: "b-1"}}}, {Round: 4},
	}}
	got, err := Read(t.Context(), f, sweep(), nil, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if len(f.asked) != 2 || f.asked[0].GetSweep() != "b-1" || f.asked[1].GetSweep() != "" || f.asked[1].GetBefore() != 5+laterRounds {
		t.Errorf("it read rounds with %v", f.asked)
	}
	if len(got.Rounds) != 3 || len(got.Later) != 2 || got.Later[0].GetRound() != 5 || got.Later[1].GetRound() != 9 {
		t.Errorf("rounds %v, later %v", got.Rounds, got.Later)
	}
	if len(got.Others) != 1 || got.Others[0].GetId() != "a-1" || got.Policy != "themis" {
		t.Errorf("others %v, policy %s", got.Others, got.Policy)
	}
}

func TestAPrunedTrialIsComparedAtItsStep(t *testing.T) {
	t.Parallel()
	report := func(trial int32, step int64, loss float64, superseded bool) *outbidv1.TrialReport {
		return &outbidv1.TrialReport{Trial: trial, Superseded: superseded, Report: &outbidv1.Report{Step: step, Metrics: map[string]float64{"loss": loss}}}
	}
	f := &fake{reports: []*outbidv1.TrialReport{
		report(0, 1, .9, false), report(0, 3, .5, false), report(0, 9, .1, false), report(1, 1, .2, false), report(2, 3, .4, true),
		report(2, 3, .6, false),
	}}
	got, err := Read(t.Context(), f, sweep(), &outbidv1.Trial{Number: 2, Step: 3, State: outbidv1.TrialState_TRIAL_STATE_STOPPED}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[int32]float64{0: .5, 2: .6}, got.Values); diff != "" {
		t.Errorf("values at step 3 (-want +got):\n%s", diff)
	}
}

func TestAFailedSweepNamesATrial(t *testing.T) {
	t.Parallel()
	f := &fake{trials: []*outbidv1.Trial{{Number: 0}, {Number: 1, State: outbidv1.TrialState_TRIAL_STATE_FAILED}}}
	s := sweep()
	s.State = outbidv1.SweepState_SWEEP_STATE_FAILED
	got, err := Read(t.Context(), f, s, nil, time.Now())
	if err != nil || got.Failed.GetNumber() != 1 {
		t.Errorf("%v, %v", got.Failed, err)
	}
}

func TestACallerWhoMayNotSeeNodes(t *testing.T) {
	t.Parallel()
	f := &fake{nodes: status.Error(codes.PermissionDenied, "no")}
	if _, err := Read(t.Context(), f, sweep(), nil, time.Now()); err != nil {
		t.Error(err)
	}
	f.nodes = status.Error(codes.Unavailable, "away")
	if _, err := Read(t.Context(), f, sweep(), nil, time.Now()); status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
}

// The ledger is simulated only if a simulation could add something.
func TestWhatIsSimulated(t *testing.T) {
	t.Parallel()
	simulated := 0
	simulate := func(_ context.Context, s *outbidv1.Sweep) []explain.Outcome {
		simulated++
		return []explain.Outcome{{Policy: "themis", Factor: 1, Seconds: 5}, {Policy: "las", Factor: 1, Seconds: 4}}
	}
	s := sweep()
	s.Counts = &outbidv1.TrialCounts{Running: 1}
	got, outcomes, err := Explain(t.Context(), &fake{}, s, nil, simulate, time.Now())
	if err != nil || simulated != 1 || len(outcomes) != 2 || got.Otherwise != "In simulations of the ledger b-1 ends 5 s after its submission under themis: it would be 4 s under las." {
		t.Errorf("%d simulations, %v, %v, %v", simulated, got, outcomes, err)
	}
	s.State = outbidv1.SweepState_SWEEP_STATE_PAUSED
	if _, _, err := Explain(t.Context(), &fake{}, s, nil, simulate, time.Now()); err != nil || simulated != 1 {
		t.Errorf("%d simulations, %v", simulated, err)
	}
}
