package cli

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func (f *fakeService) SimulateLedger(req *outbidv1.SimulateLedgerRequest, stream grpc.ServerStreamingServer[outbidv1.SimulateLedgerResponse]) error {
	f.note(req)
	if slices.Contains(req.GetPolicies(), "fairest") {
		return status.Error(codes.InvalidArgument, `policies: "fairest": want names from drf, fifo, las`)
	}
	row := func(sweep string, seconds, rho *float64) *outbidv1.SimulatedSweep {
		return &outbidv1.SimulatedSweep{Sweep: sweep, Submitted: ago(time.Hour), Seconds: seconds, Rho: rho, DeviceSeconds: 360}
	}
	runs := []*outbidv1.SimulatedRun{{Assumptions: []string{"sweeps arrive as they did"}, Sweeps: []*outbidv1.SimulatedSweep{
		row("digits-2", nil, nil), row("", new(120.0), new(1.25)),
	}}, {Policy: "themis", Sweeps: []*outbidv1.SimulatedSweep{row("digits-2", new(90.0), new(0.9)), row("", new(125.0), new(1.2))}}}
	if req.GetSweep() != "" {
		runs = append(runs, &outbidv1.SimulatedRun{Policy: "themis", Weight: req.GetWeight(), Sweeps: runs[1].GetSweeps()})
	}
	for _, run := range append(runs, &outbidv1.SimulatedRun{Policy: "las", Sweeps: runs[1].GetSweeps()}) {
		if err := stream.Send(&outbidv1.SimulateLedgerResponse{Piece: &outbidv1.SimulateLedgerResponse_Run{Run: run}}); err != nil {
			return err
		}
	}
	return nil
}

func (f *fakeService) AnnotateSweep(_ context.Context, req *outbidv1.AnnotateSweepRequest) (
	*outbidv1.AnnotateSweepResponse, error,
) {
	f.note(req)
	s, err := f.sweep(req.GetSweep())
	if err != nil {
		return nil, err
	}
	s = proto.CloneOf(s)
	s.Annotation = &outbidv1.Annotation{Description: req.GetDescription(), Tags: req.GetAddTags()}
	return &outbidv1.AnnotateSweepResponse{Sweep: s}, nil
}
