package cli

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// noon is the time of every test.
func noon() time.Time { return time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC) }

func ago(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(noon().Add(-d)) }

// fakeService is a server with a few sweeps that records its calls.
type fakeService struct {
	outbidv1.UnimplementedOutbidServiceServer
	list    []*outbidv1.Sweep // newest first
	trials  map[string][]*outbidv1.Trial
	reports map[string][]*outbidv1.TrialReport
	nodes   []*outbidv1.Node
	info    *outbidv1.GetServerInfoResponse
	round   *outbidv1.Round
	prices  *outbidv1.Prices
	blob    []byte
	// weights, if set, is the content of every trial's checkpoint instead of blob. soup is the stored soup.
	weights  []byte
	soup     *outbidv1.Soup
	soupFile []byte
	page     int

	mu       sync.Mutex
	asked    []proto.Message
	watchers func(*outbidv1.WatchSweepRequest, grpc.ServerStreamingServer[outbidv1.WatchSweepResponse]) error
}

func (f *fakeService) note(m proto.Message) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, proto.Clone(m))
}

func (f *fakeService) sweep(id string) (*outbidv1.Sweep, error) {
	for _, s := range f.list {
		if s.GetId() == id {
			return s, nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "there is no sweep %q", id)
}

func (f *fakeService) SubmitSweep(_ context.Context, req *outbidv1.SubmitSweepRequest) (
	*outbidv1.SubmitSweepResponse, error,
) {
	f.note(req)
	if req.GetSpec().GetName() == "refused" {
		return nil, status.Error(codes.InvalidArgument, "space.lr.float.low: 2 is above high, 1")
	}
	return &outbidv1.SubmitSweepResponse{Sweep: f.list[0]}, nil
}

func (f *fakeService) PreviewSweep(_ context.Context, req *outbidv1.PreviewSweepRequest) (
	*outbidv1.PreviewSweepResponse, error,
) {
	f.note(req)
	example, err := structpb.NewStruct(map[string]any{"lr": 0.0123456, "width": 64})
	if err != nil {
		return nil, err
	}
	resp := &outbidv1.PreviewSweepResponse{
		Outlook: &outbidv1.Outlook{Trials: 12, Steps: 60, Rungs: []*outbidv1.Rung{
			{Bracket: 2, UntilStep: 1, Trials: 9, Steps: 9}, {Bracket: 2, UntilStep: 3, Trials: 3, Steps: 6},
		}},
		DeviceHours: req.GetStepSeconds() * 60 / 3600,
		Examples:    []*structpb.Struct{example},
		Warnings:    []string{"no node has a device of type \"v100\""},
	}
	if hours := resp.GetDeviceHours(); hours > 0 {
		resp.LeastCost, resp.MostCost, resp.Currency = new(hours/2), new(hours*2), "EUR"
	}
	return resp, nil
}

func (f *fakeService) ListSweeps(_ context.Context, req *outbidv1.ListSweepsRequest) (
	*outbidv1.ListSweepsResponse, error,
) {
	from, to, next := f.cut(req.GetPageToken(), len(f.list))
	return &outbidv1.ListSweepsResponse{Sweeps: f.list[from:to], NextPageToken: next}, nil
}

// cut returns the page of a token.
func (f *fakeService) cut(token string, n int) (from, to int, next string) {
	if token != "" {
		_, _ = fmt.Sscan(token, &from)
	}
	to = min(n, from+max(f.page, 1))
	if to < n {
		next = fmt.Sprint(to)
	}
	return from, to, next
}

func (f *fakeService) GetSweep(_ context.Context, req *outbidv1.GetSweepRequest) (*outbidv1.GetSweepResponse, error) {
	s, err := f.sweep(req.GetSweep())
	return &outbidv1.GetSweepResponse{Sweep: s}, err
}

func (f *fakeService) ListTrials(_ context.Context, req *outbidv1.ListTrialsRequest) (
	*outbidv1.ListTrialsResponse, error,
) {
	list := append([]*outbidv1.Trial(nil), f.trials[req.GetSweep()]...)
	if req.GetOrder() == "best" { // the best fixtures are last
		for i, j := 0, len(list)-1; i < j; i, j = i+1, j-1 {
			list[i], list[j] = list[j], list[i]
		}
	}
	from, to, next := f.cut(req.GetPageToken(), len(list))
	return &outbidv1.ListTrialsResponse{Trials: list[from:to], NextPageToken: next}, nil
}

func (f *fakeService) GetTrial(_ context.Context, req *outbidv1.GetTrialRequest) (*outbidv1.GetTrialResponse, error) {
	for _, t := range f.trials[req.GetSweep()] {
		if t.GetNumber() == req.GetTrial() {
			return &outbidv1.GetTrialResponse{Trial: t}, nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "there is no trial %s/%d", req.GetSweep(), req.GetTrial())
}

func (f *fakeService) ListReports(req *outbidv1.ListReportsRequest,
	stream grpc.ServerStreamingServer[outbidv1.ListReportsResponse],
) error {
	for _, r := range f.reports[req.GetSweep()] {
		if err := stream.Send(&outbidv1.ListReportsResponse{Reports: []*outbidv1.TrialReport{r}}); err != nil {
			return err
		}
	}
	return nil
}

func (f *fakeService) WatchSweep(req *outbidv1.WatchSweepRequest,
	stream grpc.ServerStreamingServer[outbidv1.WatchSweepResponse],
) error {
	f.mu.Lock()
	watch := f.watchers
	f.mu.Unlock()
	if watch != nil {
		return watch(req, stream)
	}
	s, err := f.sweep(req.GetSweep())
	if err != nil {
		return err
	}
	if err := stream.Send(&outbidv1.WatchSweepResponse{Sweep: s, Trials: f.trials[s.GetId()]}); err != nil {
		return err
	}
	end := proto.CloneOf(s)
	end.State, end.Ended = outbidv1.SweepState_SWEEP_STATE_DONE, ago(0)
	return stream.Send(&outbidv1.WatchSweepResponse{Sweep: end})
}

func (f *fakeService) ControlSweep(_ context.Context, req *outbidv1.ControlSweepRequest) (
	*outbidv1.ControlSweepResponse, error,
) {
	f.note(req)
	s, err := f.sweep(req.GetSweep())
	if err != nil {
		return nil, err
	}
	if sweepOver(s.GetState()) {
		return nil, status.Errorf(codes.FailedPrecondition, "sweep %s is %s", s.GetId(), sweepState(s.GetState()))
	}
	after := proto.CloneOf(s)
	after.State = outbidv1.SweepState_SWEEP_STATE_PAUSED
	return &outbidv1.ControlSweepResponse{Sweep: after}, nil
}

func (f *fakeService) ControlTrial(_ context.Context, req *outbidv1.ControlTrialRequest) (
	*outbidv1.ControlTrialResponse, error,
) {
	f.note(req)
	for _, t := range f.trials[req.GetSweep()] {
		if t.GetNumber() == req.GetTrial() {
			after := proto.CloneOf(t)
			after.State, after.Reason = outbidv1.TrialState_TRIAL_STATE_STOPPED, "asked for by ann: "+req.GetReason()
			if req.GetCommand() == outbidv1.TrialCommand_TRIAL_COMMAND_RETRY {
				after.State, after.Reason, after.Retries = outbidv1.TrialState_TRIAL_STATE_QUEUED, "retried, "+after.GetReason(), 1
			}
			return &outbidv1.ControlTrialResponse{Trial: after}, nil
		}
	}
	return nil, status.Error(codes.NotFound, "there is no such trial")
}

func (f *fakeService) ExplainSweep(_ context.Context, req *outbidv1.ExplainSweepRequest) (
	*outbidv1.ExplainSweepResponse, error,
) {
	f.note(req)
	s, err := f.sweep(req.GetSweep())
	if err != nil {
		return nil, err
	}
	if slices.Contains(req.GetPolicies(), "fairest") {
		return nil, status.Error(codes.InvalidArgument, `policies: "fairest": want names from drf, fifo, las`)
	}
	name := s.GetId()
	if req.Trial != nil {
		name = fmt.Sprintf("%s/%d", name, req.GetTrial())
	}
	return &outbidv1.ExplainSweepResponse{
		Cause: "devices", Why: name + " waits for devices.", Lost: name + " has not lost devices.", Otherwise: "It would end later under las.",
		Outcomes: []*outbidv1.SimulatedOutcome{{Policy: "las", Weight: 1, Seconds: 90}},
	}, nil
}

func (f *fakeService) ExtendSweep(_ context.Context, req *outbidv1.ExtendSweepRequest) (
	*outbidv1.ExtendSweepResponse, error,
) {
	f.note(req)
	s, err := f.sweep(req.GetSweep())
	return &outbidv1.ExtendSweepResponse{Sweep: s}, err
}

func (f *fakeService) StreamLogs(req *outbidv1.StreamLogsRequest,
	stream grpc.ServerStreamingServer[outbidv1.StreamLogsResponse],
) error {
	f.note(req)
	for i, line := range []string{"epoch 1", "epoch 2 <&>", "Traceback: boom"} {
		err := stream.Send(&outbidv1.StreamLogsResponse{
			Trial: int32(i), Node: "left", Stream: []string{"stdout", "stdout", "stderr"}[i], Time: ago(time.Minute), Line: line,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *fakeService) ControlNode(_ context.Context, req *outbidv1.ControlNodeRequest) (*outbidv1.ControlNodeResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, n := range f.nodes {
		if n.GetInfo().GetName() == req.GetNode() {
			if req.GetCommand() == outbidv1.NodeCommand_NODE_COMMAND_EVICT {
				n = proto.CloneOf(n)
				n.Uses, f.nodes[i] = nil, n
			}
			return &outbidv1.ControlNodeResponse{Node: n}, nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "there is no node %q", req.GetNode())
}

func (f *fakeService) ListNodes(context.Context, *outbidv1.ListNodesRequest) (*outbidv1.ListNodesResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &outbidv1.ListNodesResponse{Nodes: slices.Clone(f.nodes)}, nil
}

func (f *fakeService) GetCheckpoint(req *outbidv1.GetCheckpointRequest,
	stream grpc.ServerStreamingServer[outbidv1.GetCheckpointResponse],
) error {
	f.note(req)
	sum, blob := sha256.Sum256([]byte("the weights")), f.blob
	if f.weights != nil {
		sum, blob = sha256.Sum256(f.weights), f.weights
	}
	first := &outbidv1.GetCheckpointResponse{Checkpoint: &outbidv1.Checkpoint{
		Key: "checkpoints/digits-2/1/000000000009-4.safetensors", Step: 9, Bytes: int64(len(blob)),
		Sha256: hex.EncodeToString(sum[:]),
	}}
	if err := stream.Send(first); err != nil {
		return err
	}
	for _, b := range blob {
		if err := stream.Send(&outbidv1.GetCheckpointResponse{Data: []byte{b}}); err != nil {
			return err
		}
	}
	return nil
}

func (f *fakeService) PutSoup(stream grpc.ClientStreamingServer[outbidv1.PutSoupRequest, outbidv1.PutSoupResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	f.note(first)
	f.soup, f.soupFile = first.GetSoup(), first.GetData()
	for {
		piece, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			f.soup.Number, f.soup.Actor = 3, "ann"
			return stream.SendAndClose(&outbidv1.PutSoupResponse{Soup: f.soup})
		}
		if err != nil {
			return err
		}
		f.soupFile = append(f.soupFile, piece.GetData()...)
	}
}

func (f *fakeService) GetSoup(req *outbidv1.GetSoupRequest, stream grpc.ServerStreamingServer[outbidv1.GetSoupResponse]) error {
	f.note(req)
	if err := stream.Send(&outbidv1.GetSoupResponse{Soup: f.soup, Data: f.soupFile[:1]}); err != nil {
		return err
	}
	return stream.Send(&outbidv1.GetSoupResponse{Data: f.soupFile[1:]})
}

func (f *fakeService) GetRound(context.Context, *outbidv1.GetRoundRequest) (*outbidv1.GetRoundResponse, error) {
	return &outbidv1.GetRoundResponse{Round: f.round}, nil
}

func (f *fakeService) ListRounds(context.Context, *outbidv1.ListRoundsRequest) (*outbidv1.ListRoundsResponse, error) {
	return &outbidv1.ListRoundsResponse{Rounds: []*outbidv1.Round{f.round}}, nil
}

func (f *fakeService) GetPrices(context.Context, *outbidv1.GetPricesRequest) (*outbidv1.GetPricesResponse, error) {
	return &outbidv1.GetPricesResponse{Policy: "oasis", Prices: f.prices}, nil
}

func (f *fakeService) GetUsage(_ context.Context, req *outbidv1.GetUsageRequest) (*outbidv1.GetUsageResponse, error) {
	f.note(req)
	row := func(cost *float64) *outbidv1.UsageRow {
		r := &outbidv1.UsageRow{DeviceSeconds: 5400.5, Cost: cost}
		for _, c := range req.GetBy() {
			r.Values = append(r.Values, c+"-1")
		}
		return r
	}
	return &outbidv1.GetUsageResponse{
		Since: req.GetSince(), Until: ago(0), By: req.GetBy(), Currency: "EUR",
		Rows: []*outbidv1.UsageRow{row(new(3.00028)), row(nil)}, Total: &outbidv1.UsageRow{DeviceSeconds: 10801},
	}, nil
}

func (f *fakeService) RunRetention(_ context.Context, req *outbidv1.RunRetentionRequest) (*outbidv1.RunRetentionResponse, error) {
	f.note(req)
	old := func(sweep, reason string) *outbidv1.Expired {
		return &outbidv1.Expired{Tenant: "vision", Sweep: sweep, Ended: ago(0), Retain: "90d", Bytes: 3 << 20, Reason: reason}
	}
	resp := &outbidv1.RunRetentionResponse{
		Expired: []*outbidv1.Expired{old("digits-1", "it is old"), old("digits-2", "it is old")},
		Kept:    []*outbidv1.Expired{old("digits-3", "it keeps a soup")},
	}
	if !req.GetDryRun() {
		resp.Expired[1].Error = "the store is away"
	}
	return resp, nil
}

// CheckAccess allows everything except deletions.
func (f *fakeService) CheckAccess(_ context.Context, req *outbidv1.CheckAccessRequest) (*outbidv1.CheckAccessResponse, error) {
	f.note(req)
	view := &outbidv1.Permission{Call: "GetSweep", Verb: "get", Resource: "sweeps", Permission: "read", Allowed: true, Reason: "the role viewer"}
	remove := &outbidv1.Permission{Call: "DeleteSweep", Verb: "delete", Resource: "sweeps", Permission: "write", Reason: "needs the role user"}
	resp := &outbidv1.CheckAccessResponse{Name: "ann", Tenant: "vision", Role: "viewer", Permissions: []*outbidv1.Permission{view, remove}}
	switch req.GetVerb() {
	case "get":
		resp.Allowed, resp.Permissions = true, resp.GetPermissions()[:1]
	case "delete":
		resp.Permissions = resp.GetPermissions()[1:]
	}
	return resp, nil
}

func (f *fakeService) GetServerInfo(context.Context, *outbidv1.GetServerInfoRequest) (
	*outbidv1.GetServerInfoResponse, error,
) {
	return f.info, nil
}

// newFake has a running sweep, one that is done, and two nodes.
func newFake() *fakeService {
	space := map[string]*outbidv1.Parameter{
		"lr":    {Kind: &outbidv1.Parameter_Float{Float: &outbidv1.FloatRange{Low: 1e-4, High: 1, Log: true}}},
		"width": {Kind: &outbidv1.Parameter_Int{Int: &outbidv1.IntRange{Low: 16, High: 256}}},
		"opt": {Kind: &outbidv1.Parameter_Group{Group: &outbidv1.Group{Space: map[string]*outbidv1.Parameter{
			"name": {Kind: &outbidv1.Parameter_Choice{Choice: &outbidv1.Choice{Values: []*structpb.Value{
				structpb.NewStringValue("adam"), structpb.NewStringValue("sgd"),
			}}}},
			"momentum": {Kind: &outbidv1.Parameter_Float{Float: &outbidv1.FloatRange{High: 1}}},
		}}}},
	}
	spec := &outbidv1.SweepSpec{
		Name: "digits", Space: space, Metric: "accuracy", Mode: "max", Labels: map[string]string{"team": "vision"},
		Tuner: &outbidv1.Tuner{Kind: &outbidv1.Tuner_Hyperband{Hyperband: &outbidv1.Hyperband{MaxSteps: 9}}, Seed: new(uint64(7))},
	}
	trials := []*outbidv1.Trial{
		{
			Sweep: "digits-2", Number: 0, State: outbidv1.TrialState_TRIAL_STATE_FAILED, Reason: "failed 4 times: exit code 1",
			ConfigJson: `{"lr":1.0,"opt":{"momentum":0.5,"name":"sgd"},"width":16}`, Restarts: 3,
			Created: ago(2 * time.Minute), Ended: ago(time.Minute),
		},
		{
			Sweep: "digits-2", Number: 1, State: outbidv1.TrialState_TRIAL_STATE_RUNNING, Step: 5, UntilStep: 9,
			ConfigJson: `{"lr":0.0123456789,"opt":{"name":"adam"},"width":64}`, Best: new(0.9611), BestStep: 4,
			Created: ago(2 * time.Minute), Node: "left", Devices: []int32{0}, DeviceSeconds: 61.5, Bracket: 2, Resumes: 1,
			StepsPerSecond: 3.14159,
			Leases: []*outbidv1.TrialLease{
				{
					LeaseId: 4, Holder: "workers", State: "running", Since: ago(time.Minute), FromStep: 3, Step: 5,
					Places: []*outbidv1.TrialPlace{{Node: "left", Devices: []int32{0}, Type: "A100"}, {Node: "right", Devices: []int32{0, 1}, Ended: true}},
				},
				{
					LeaseId: 7, Holder: "workers", State: "starting", Since: ago(time.Second), TermEnd: ago(-time.Minute),
					Places: []*outbidv1.TrialPlace{{Node: "right", Devices: []int32{2}, Type: "V100"}},
				},
			},
			Last: &outbidv1.Report{
				Step: 5, Metrics: map[string]float64{"accuracy": 0.9511, "loss": math.NaN()}, Time: ago(time.Second),
				TrainSeconds: 60,
			},
			Checkpoints: []*outbidv1.Checkpoint{{
				Key: "checkpoints/digits-2/1/000000000003-2.safetensors", Step: 3, Bytes: 123456, Sha256: "ab", Time: ago(time.Minute),
				Metric: new(0.94),
			}},
		},
	}
	limited := proto.CloneOf(spec)
	limited.Limits = &outbidv1.Limits{Cost: 12.5, DeviceHours: 2}
	running := &outbidv1.Sweep{
		Id: "digits-2", Spec: limited, Cost: new(1.234), Currency: "EUR", State: outbidv1.SweepState_SWEEP_STATE_RUNNING, Submitted: ago(125 * time.Second),
		Counts: &outbidv1.TrialCounts{Running: 1, Failed: 1, Total: 2}, Best: trials[1], Steps: 1234, DeviceSeconds: 61.5,
		Outlook: &outbidv1.Outlook{Trials: 12, Steps: 2468}, Actor: "ada",
		Notes: []*outbidv1.SweepNote{
			{Time: ago(time.Minute), Level: "warning", Text: "exit code 1, \x1b[31mrestarted", Trial: new(int32(0))},
		},
	}
	done := proto.CloneOf(running)
	done.Id, done.State, done.Reason, done.Ended = "digits-1", outbidv1.SweepState_SWEEP_STATE_DONE, "target reached",
		ago(time.Hour)
	done.Submitted, done.Notes, done.Spec, done.Cost = ago(3*time.Hour), nil, spec, nil
	return &fakeService{
		list: []*outbidv1.Sweep{running, done}, trials: map[string][]*outbidv1.Trial{"digits-2": trials},
		reports: map[string][]*outbidv1.TrialReport{"digits-2": {
			{Trial: 1, Report: &outbidv1.Report{Step: 1, Metrics: map[string]float64{"loss": 2.5}, Time: ago(time.Minute)}},
			{Trial: 1, Report: &outbidv1.Report{Step: 5, Metrics: map[string]float64{
				"accuracy": 0.9511, "loss": math.NaN(),
			}, Time: ago(time.Second), TrainSeconds: 60}},
		}},
		nodes: []*outbidv1.Node{
			{
				Info: &outbidv1.NodeInfo{
					Name: "left", Hostname: "h1", Version: "test", Cpus: 8, MemoryBytes: 64 << 30,
					Devices: []*outbidv1.Device{
						{Index: 0, Type: "v100", Name: "Tesla V100", MemoryBytes: 16 << 30},
						{Index: 1, Type: "v100", Name: "Tesla V100", MemoryBytes: 16 << 30},
					},
					Links: []*outbidv1.DeviceLink{{A: 0, B: 1, Kind: "nvlink", Lanes: 6}}, Trusted: true,
				},
				State: outbidv1.NodeState_NODE_STATE_UP, LastSeen: ago(time.Second),
				Uses: []*outbidv1.DeviceUse{{Device: 0, Fork: &outbidv1.ForkRef{Sweep: "digits-2", Trial: 1, LeaseId: 4}}},
			},
			{
				Info: &outbidv1.NodeInfo{
					Name: "middle", Hostname: "h3", Version: "test", Devices: []*outbidv1.Device{{Type: "v100"}}, Trusted: true,
					Warnings: []string{"memory limits of trials are not enforced: there are no control groups"},
				},
				State: outbidv1.NodeState_NODE_STATE_UP, LastSeen: ago(time.Second),
				Faults: []*outbidv1.NodeFault{
					{
						Reason: "no room left on the disk of /var/lib/outbid-worker", Since: ago(time.Hour), Until: ago(-time.Hour), Times: 3,
						Cordoned: true, Trials: []string{"digits-2/4", "trees-1/0"},
					},
					{Reason: "fan replaced on Friday", Since: ago(time.Hour), Manual: true, Actor: "ann", Drained: true},
					{Sweep: "digits-2", Reason: "exec: \"train\": not found", Since: ago(time.Hour), Until: ago(-time.Hour), Times: 1, Cordoned: true},
				},
			},
			{
				Info:  &outbidv1.NodeInfo{Name: "right", Hostname: "h2", Version: "old"},
				State: outbidv1.NodeState_NODE_STATE_LOST, Reason: "silent for 15 s", LastSeen: ago(time.Minute),
			},
		},
		info: &outbidv1.GetServerInfoResponse{
			Version: "test", LedgerSeq: 4321, Started: ago(time.Hour), Leader: true,
			Policy: "themis", PolicyOptions: map[string]string{"seed": "1", "lease": "5m0s"},
			Checks: []*outbidv1.Check{
				{Name: "nats", Ok: true, Detail: "nats://127.0.0.1:4222, 0.3 ms"},
				{Name: "store", Ok: false, Detail: "s3://b/p: connection refused", Fix: "start MinIO"},
			},
		},
		blob: []byte("the weights"), page: 1,
	}
}

// serveFake serves on loopback, and returns the URL and a function that stops it.
func serveFake(t *testing.T, f *fakeService, addr string) (url string, stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	outbidv1.RegisterOutbidServiceServer(s, f)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	stop = sync.OnceFunc(func() {
		s.Stop()
		<-done
	})
	t.Cleanup(stop)
	return "http://" + l.Addr().String(), stop
}

// testApp is an app that writes to buffers and receives interrupts from a channel.
type testApp struct {
	*app
	out, err *lockedBuffer
	signals  chan os.Signal
}

// lockedBuffer lets a test read a running command's output, and wait for a text.
type lockedBuffer struct {
	mu    sync.Mutex
	buf   bytes.Buffer
	wrote chan struct{}
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case b.wrote <- struct{}{}:
	default:
	}
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// waitFor blocks until the buffer contains text.
func (b *lockedBuffer) waitFor(t *testing.T, text string) {
	t.Helper()
	deadline := time.After(patience)
	for !strings.Contains(b.String(), text) {
		select {
		case <-b.wrote:
		case <-deadline:
			t.Fatalf("nobody wrote %q, only:\n%s", text, b.String())
		}
	}
}

func newTestApp(stdin io.Reader, env map[string]string) *testApp {
	t := &testApp{
		out: &lockedBuffer{wrote: make(chan struct{}, 1)}, err: &lockedBuffer{wrote: make(chan struct{}, 1)},
		signals: make(chan os.Signal, 2),
	}
	con := &console{
		stdin: stdin, stdout: t.out, stderr: t.err, now: noon, term: terminal{size: func() (int, int) { return 80, 24 }},
	}
	t.app = newApp(con, func(name string) string { return env[name] }, "test",
		func() (<-chan os.Signal, func()) { return t.signals, func() {} }, Product())
	return t
}

// writeFile writes a file to a new directory.
func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
