// Package evidence reads from a server what package explain needs to explain a sweep or a trial.
package evidence

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outbid-dev/outbid/orchestrator/explain"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// API is the part of Outbid's API that is read.
type API interface {
	ListSweeps(context.Context, *outbidv1.ListSweepsRequest, ...grpc.CallOption) (*outbidv1.ListSweepsResponse, error)
	ListTrials(context.Context, *outbidv1.ListTrialsRequest, ...grpc.CallOption) (*outbidv1.ListTrialsResponse, error)
	ListReports(context.Context, *outbidv1.ListReportsRequest, ...grpc.CallOption) (
		grpc.ServerStreamingClient[outbidv1.ListReportsResponse], error)
	ListNodes(context.Context, *outbidv1.ListNodesRequest, ...grpc.CallOption) (*outbidv1.ListNodesResponse, error)
	ListRounds(context.Context, *outbidv1.ListRoundsRequest, ...grpc.CallOption) (*outbidv1.ListRoundsResponse, error)
	GetServerInfo(context.Context, *outbidv1.GetServerInfoRequest, ...grpc.CallOption) (*outbidv1.GetServerInfoResponse, error)
}

const (
	// laterRounds is how many rounds after a loss are searched for the trials that got its devices.
	laterRounds = 64
	// pageSize is the number of sweeps and of trials that are read.
	pageSize = 500
	// maxReports is the number of reports above which a pruned trial's rank is not computed.
	maxReports = 100_000
)

// Simulate simulates the server's ledger under other policies and weights of a sweep. It returns nil if it cannot.
type Simulate func(ctx context.Context, s *outbidv1.Sweep) []explain.Outcome

// Explain reads what is needed to explain a sweep, or a trial unless it is nil, and explains it. simulate may be nil.
func Explain(ctx context.Context, api API, s *outbidv1.Sweep, t *outbidv1.Trial, simulate Simulate, now time.Time) (explain.Explanation, []explain.Outcome, error) {
	f, err := Read(ctx, api, s, t, now)
	if err != nil {
		return explain.Explanation{}, nil, err
	}
	if simulate != nil && explain.NeedsOutcomes(f) {
		f.Outcomes = simulate(ctx, s)
	}
	return explain.Explain(f), f.Outcomes, nil
}

// Read reads the facts about a sweep, or about a trial unless it is nil.
func Read(ctx context.Context, api API, s *outbidv1.Sweep, t *outbidv1.Trial, now time.Time) (*explain.Facts, error) {
	f := &explain.Facts{Sweep: s, Trial: t, Now: now}
	info, err := api.GetServerInfo(ctx, &outbidv1.GetServerInfoRequest{})
	if err != nil {
		return nil, err
	}
	f.Policy = info.GetPolicy()
	nodes, err := api.ListNodes(ctx, &outbidv1.ListNodesRequest{})
	if err != nil && status.Code(err) != codes.PermissionDenied {
		return nil, err
	}
	f.Nodes = nodes.GetNodes()
	sweeps, err := api.ListSweeps(ctx, &outbidv1.ListSweepsRequest{PageSize: pageSize})
	if err != nil {
		return nil, err
	}
	for _, o := range sweeps.GetSweeps() {
		if o.GetId() != s.GetId() && o.GetEnded() == nil {
			f.Others = append(f.Others, o)
		}
	}
	if err := readRounds(ctx, api, f); err != nil {
		return nil, err
	}
	return f, readTrials(ctx, api, f)
}

// readRounds reads the decisions on the sweep, and those on all sweeps after its newest loss.
func readRounds(ctx context.Context, api API, f *explain.Facts) error {
	got, err := api.ListRounds(ctx, &outbidv1.ListRoundsRequest{Sweep: f.Sweep.GetId(), Limit: explain.MaxRounds})
	if err != nil {
		return err
	}
	f.Rounds = got.GetRounds()
	lost := explain.NewestLoss(f)
	if lost == 0 {
		return nil
	}
	later, err := api.ListRounds(ctx, &outbidv1.ListRoundsRequest{Before: lost + laterRounds, Limit: laterRounds})
	if err != nil {
		return err
	}
	f.Later = slices.DeleteFunc(later.GetRounds(), func(r *outbidv1.Round) bool { return r.GetRound() < lost })
	slices.Reverse(f.Later)
	return nil
}

// readTrials reads a failed trial of a failed sweep, and the metrics that a pruned trial is compared with.
func readTrials(ctx context.Context, api API, f *explain.Facts) (err error) {
	switch {
	case f.Trial.GetState() == outbidv1.TrialState_TRIAL_STATE_STOPPED:
		f.Values, err = valuesAt(ctx, api, f.Sweep, f.Trial.GetStep())
	case f.Trial == nil && f.Sweep.GetState() == outbidv1.SweepState_SWEEP_STATE_FAILED:
		var got *outbidv1.ListTrialsResponse
		got, err = api.ListTrials(ctx, &outbidv1.ListTrialsRequest{Sweep: f.Sweep.GetId(), PageSize: pageSize})
		for _, t := range got.GetTrials() {
			if t.GetState() == outbidv1.TrialState_TRIAL_STATE_FAILED {
				f.Failed = t
				break
			}
		}
	}
	return err
}

// valuesAt returns the metric at a step of each trial that reached it. It returns nil if there are too many
// reports.
func valuesAt(ctx context.Context, api API, s *outbidv1.Sweep, step int64) (map[int32]float64, error) {
	ctx, cancel := context.WithCancel(ctx) // ends a stream that is not read to its end
	defer cancel()
	stream, err := api.ListReports(ctx, &outbidv1.ListReportsRequest{Sweep: s.GetId()})
	if err != nil {
		return nil, err
	}
	values, reached := map[int32]float64{}, map[int32]bool{}
	for seen := 0; seen < maxReports; {
		got, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			for n := range values {
				if !reached[n] {
					delete(values, n)
				}
			}
			return values, nil
		}
		if err != nil {
			return nil, err
		}
		seen += len(got.GetReports())
		for _, r := range got.GetReports() {
			if r.GetSuperseded() {
				continue
			}
			if r.GetReport().GetStep() >= step {
				reached[r.GetTrial()] = true
			}
			if v, ok := r.GetReport().GetMetrics()[s.GetSpec().GetMetric()]; ok && r.GetReport().GetStep() <= step {
				values[r.GetTrial()] = v
			}
		}
	}
	return nil, nil
}
