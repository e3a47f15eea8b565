package mcp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"google.golang.org/protobuf/types/known/timestamppb"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// runPiece returns a run of three sweeps: first-1, one of another tenant, and second-1. A time of 0 means that a sweep did not end.
func runPiece(policy string, weight float64, seconds ...float64) *outbidv1.SimulateLedgerResponse {
	run := &outbidv1.SimulatedRun{Policy: policy, Weight: weight}
	if policy == "" {
		run.Assumptions = []string{"sweeps arrive as they did"}
	}
	for i, name := range []string{"first-1", "", "second-1"} {
		s := &outbidv1.SimulatedSweep{Sweep: name, Submitted: timestamppb.New(time.Unix(int64(i), 0)), DeviceSeconds: 2 * seconds[i]}
		if seconds[i] > 0 {
			s.Seconds, s.Rho = new(seconds[i]), new(seconds[i]/64)
		}
		run.Sweeps = append(run.Sweeps, s)
	}
	return &outbidv1.SimulateLedgerResponse{Piece: &outbidv1.SimulateLedgerResponse_Run{Run: run}}
}

func progressPiece(p *outbidv1.SimulationProgress) *outbidv1.SimulateLedgerResponse {
	return &outbidv1.SimulateLedgerResponse{Piece: &outbidv1.SimulateLedgerResponse_Progress{Progress: p}}
}

func TestWhatIfSummarisesTheRuns(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.sweeps[0].Id, f.sweeps[1].Id = "second-1", "first-1"
	f.pieces = []*outbidv1.SimulateLedgerResponse{
		progressPiece(&outbidv1.SimulationProgress{}), runPiece("", 0, 100, 200, 0), runPiece("themis", 0, 100, 300, 50), runPiece("themis", 2, 80, 340, 50), runPiece("las", 0, 120, 240, 60),
	}
	got := mustAsk(t, f.client(t, Config{}), "what_if", map[string]any{"policies": []any{"las"}, "sweep": "first-1", "weight": 2, "since": "2026-11-01"})
	if r := f.simulated; r.GetPolicies()[0] != "las" || r.GetSweep() != "first-1" || r.GetWeight() != 2 || r.GetUntil() != nil ||
		!r.GetSince().AsTime().Equal(time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("the request is %v", r)
	}
	runs := []any{
		map[string]any{"policy": "", "ended": 2.0, "mean_seconds": 150.0, "mean_rho": 2.34375, "worst_rho": 3.125},
		map[string]any{"policy": "themis", "ended": 3.0, "mean_seconds": 200.0, "mean_rho": 3.125, "worst_rho": 4.6875},
		map[string]any{"policy": "themis", "weight": 2.0, "ended": 3.0, "mean_seconds": 210.0, "mean_rho": 3.28125, "worst_rho": 5.3125},
		map[string]any{"policy": "las", "ended": 3.0, "mean_seconds": 180.0, "mean_rho": 2.8125, "worst_rho": 3.75},
	}
	if diff := cmp.Diff(runs, got["runs"]); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
	if got["compared"] != 2.0 || got["other_tenants"] != 1.0 || got["assumptions"].([]any)[0] != "sweeps arrive as they did" {
		t.Errorf("the answer is %v", got)
	}
	first, second := got["sweeps"].([]any)[0].(map[string]any), got["sweeps"].([]any)[1].(map[string]any)
	if first["sweep"] != "first-1" || second["sweep"] != "second-1" {
		t.Errorf("the sweeps are %v and %v", first["sweep"], second["sweep"])
	}
	fates := []any{
		map[string]any{"seconds": nil},
		map[string]any{"seconds": 50.0, "rho": 0.78125, "devices": 2.0},
		map[string]any{"seconds": 50.0, "rho": 0.78125, "devices": 2.0},
		map[string]any{"seconds": 60.0, "rho": 0.9375, "devices": 2.0},
	}
	if diff := cmp.Diff(fates, second["fates"]); diff != "" {
		t.Errorf("fates of the second sweep (-want +got):\n%s", diff)
	}
}

func TestWhatIfIsBounded(t *testing.T) {
	t.Parallel()
	f := newFake()
	for _, policy := range []string{"", "themis", "themis", "las", "drf", "fifo", "hadar"} {
		run := &outbidv1.SimulatedRun{Policy: policy}
		for i := range 2000 {
			run.Sweeps = append(run.Sweeps, &outbidv1.SimulatedSweep{
				Sweep: fmt.Sprintf("%s-%d", strings.Repeat("n", 60), i), Submitted: timestamppb.New(time.Unix(int64(i), 123456789)), Seconds: new(1.0 / 3), Rho: new(1.0 / 3), DeviceSeconds: 0.7,
			})
		}
		f.pieces = append(f.pieces, &outbidv1.SimulateLedgerResponse{Piece: &outbidv1.SimulateLedgerResponse_Run{Run: run}})
	}
	got := mustAsk(t, f.client(t, Config{}), "what_if", map[string]any{"policies": []any{"las"}, "limit": maxSimulatedRows})
	if text, err := encode(got); err != nil || len(text) > maxAnswer {
		t.Errorf("the answer has %d bytes, %v", len(text), err)
	}
	if rows := got["sweeps"].([]any); len(rows) != maxSimulatedRows || !strings.HasSuffix(rows[0].(map[string]any)["sweep"].(string), "-1999") {
		t.Errorf("%d sweeps, the first is %v", len(rows), rows[0])
	}
	if cut := got["cut"].([]any)[0]; cut != "sweeps: 1950 older ones; give a shorter period, or a limit of up to 50" {
		t.Errorf("cut: %v", cut)
	}
}

func TestWhatIfReportsProgress(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.pieces = []*outbidv1.SimulateLedgerResponse{
		progressPiece(&outbidv1.SimulationProgress{Waiting: true}), progressPiece(&outbidv1.SimulationProgress{}), runPiece("", 0, 1, 1, 1),
		progressPiece(&outbidv1.SimulationProgress{Policy: "themis", Ended: 1, Sweeps: 4}), runPiece("themis", 0, 1, 1, 1),
		progressPiece(&outbidv1.SimulationProgress{Policy: "las", Ended: 2, Sweeps: 4}), runPiece("las", 0, 1, 1, 1),
	}
	told := make(chan *sdk.ProgressNotificationParams, 10)
	session := f.clientWith(t, Config{}, &sdk.ClientOptions{ProgressNotificationHandler: func(_ context.Context, req *sdk.ProgressNotificationClientRequest) {
		told <- req.Params
	}})
	params := &sdk.CallToolParams{Name: "what_if", Arguments: map[string]any{"policies": []any{"las"}}}
	params.SetProgressToken("p")
	if _, err := session.CallTool(t.Context(), params); err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		done    float64
		message string
	}{
		{0, "waits for another simulation to end"}, {0, "reads the ledger"}, {0.25, "simulates themis: 1 of 4 sweeps have ended"}, {1.5, "simulates las: 2 of 4 sweeps have ended"},
	} {
		if got := eventually(t, told, want.message); got.Progress != want.done || got.Total != 2 || got.Message != want.message {
			t.Errorf("got %v of %v %q, want %v of 2 %q", got.Progress, got.Total, got.Message, want.done, want.message)
		}
	}
}

func TestCancellingWhatIfEndsTheSimulation(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.began, f.ended = make(chan struct{}), make(chan error, 1)
	session := f.client(t, Config{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-f.began
		cancel()
	}()
	if _, err := session.CallTool(ctx, &sdk.CallToolParams{Name: "what_if", Arguments: map[string]any{"policies": []any{"las"}}}); err == nil {
		t.Error("the call succeeded")
	}
	if err := eventually(t, f.ended, "the simulation ends"); !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
}

func TestWhatIfWaitsForOthersOnlySoLong(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.began, f.ended = make(chan struct{}), make(chan error, 1)
	_, problem := ask(t, f.client(t, Config{callTimeout: time.Millisecond}), "what_if", map[string]any{"policies": []any{"las"}})
	if !strings.Contains(problem, "the simulation did not end within 0s, because others ran before it; try again later") {
		t.Errorf("got %q", problem)
	}
}
