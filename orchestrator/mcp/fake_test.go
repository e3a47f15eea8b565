package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/explain/evidence"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeAPI is an Outbid server in memory.
type fakeAPI struct {
	mu      sync.Mutex
	sweeps  []*outbidv1.Sweep // newest first
	trials  map[string][]*outbidv1.Trial
	reports []*outbidv1.ListReportsResponse
	logs    []*outbidv1.StreamLogsResponse
	rounds  []*outbidv1.Round
	nodes   []*outbidv1.Node
	info    *outbidv1.GetServerInfoResponse
	redone  []*outbidv1.TrainedAgain
	// pieces are the answer of SimulateLedger. If they are nil, it closes began, waits until the call ends, and sends why to
	// ended.
	pieces    []*outbidv1.SimulateLedgerResponse
	began     chan struct{}
	ended     chan error
	simulated *outbidv1.SimulateLedgerRequest
	// fail is returned by the method of that name.
	fail map[string]error
	// onGet is called by GetSweep.
	onGet func(ctx context.Context, s *outbidv1.Sweep) error
	// got has the requests that change something, in order.
	got []proto.Message
}

// begin notes a call. It returns the error that the test wants.
func (f *fakeAPI) begin(method string, req proto.Message, changes bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if changes {
		f.got = append(f.got, proto.Clone(req))
	}
	return f.fail[method]
}

func (f *fakeAPI) SubmitSweep(_ context.Context, req *outbidv1.SubmitSweepRequest, _ ...grpc.CallOption) (*outbidv1.SubmitSweepResponse, error) {
	if err := f.begin("SubmitSweep", req, true); err != nil {
		return nil, err
	}
	s := &outbidv1.Sweep{Id: req.GetSpec().GetName() + "-1", Spec: req.GetSpec(), State: outbidv1.SweepState_SWEEP_STATE_RUNNING}
	return &outbidv1.SubmitSweepResponse{Sweep: s, Warnings: []string{"env.API_KEY looks like a secret"}}, nil
}

func (f *fakeAPI) PreviewSweep(_ context.Context, req *outbidv1.PreviewSweepRequest, _ ...grpc.CallOption) (*outbidv1.PreviewSweepResponse, error) {
	return &outbidv1.PreviewSweepResponse{
		Outlook: &outbidv1.Outlook{Trials: 9, Steps: 90, Rungs: []*outbidv1.Rung{{UntilStep: 10, Trials: 9}}}, DeviceHours: 2.5,
		Warnings: []string{"no node has v100"},
	}, f.begin("PreviewSweep", req, false)
}

func (f *fakeAPI) ListSweeps(_ context.Context, req *outbidv1.ListSweepsRequest, _ ...grpc.CallOption) (*outbidv1.ListSweepsResponse, error) {
	page, next := pageOf(f.sweeps, req.GetPageToken(), int(req.GetPageSize()))
	return &outbidv1.ListSweepsResponse{Sweeps: page, NextPageToken: next}, f.begin("ListSweeps", req, false)
}

// pageOf returns a page of a list; tokens are indexes.
func pageOf[T any](all []T, token string, size int) ([]T, string) {
	from := 0
	_, _ = fmt.Sscan(token, &from)
	to := min(from+size, len(all))
	if to == len(all) {
		return all[from:], ""
	}
	return all[from:to], fmt.Sprint(to)
}

func (f *fakeAPI) find(id string) (*outbidv1.Sweep, error) {
	for _, s := range f.sweeps {
		if s.GetId() == id {
			return s, nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "there is no sweep %q", id)
}

func (f *fakeAPI) GetSweep(ctx context.Context, req *outbidv1.GetSweepRequest, _ ...grpc.CallOption) (*outbidv1.GetSweepResponse, error) {
	if err := f.begin("GetSweep", req, false); err != nil {
		return nil, err
	}
	s, err := f.find(req.GetSweep())
	if err == nil && f.onGet != nil {
		err = f.onGet(ctx, s)
	}
	if err != nil {
		return nil, err
	}
	return &outbidv1.GetSweepResponse{Sweep: proto.CloneOf(s)}, nil
}

func (f *fakeAPI) ListTrials(_ context.Context, req *outbidv1.ListTrialsRequest, _ ...grpc.CallOption) (*outbidv1.ListTrialsResponse, error) {
	page, next := pageOf(f.trials[req.GetSweep()], req.GetPageToken(), int(req.GetPageSize()))
	return &outbidv1.ListTrialsResponse{Trials: page, NextPageToken: next}, f.begin("ListTrials", req, false)
}

func (f *fakeAPI) GetTrial(_ context.Context, req *outbidv1.GetTrialRequest, _ ...grpc.CallOption) (*outbidv1.GetTrialResponse, error) {
	for _, t := range f.trials[req.GetSweep()] {
		if t.GetNumber() == req.GetTrial() {
			return &outbidv1.GetTrialResponse{Trial: t}, nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "sweep %s has no trial %d", req.GetSweep(), req.GetTrial())
}

func (f *fakeAPI) ListReports(_ context.Context, req *outbidv1.ListReportsRequest, _ ...grpc.CallOption) (
	grpc.ServerStreamingClient[outbidv1.ListReportsResponse], error,
) {
	return &fakeStream[outbidv1.ListReportsResponse]{items: f.reports}, f.begin("ListReports", req, false)
}

func (f *fakeAPI) StreamLogs(_ context.Context, req *outbidv1.StreamLogsRequest, _ ...grpc.CallOption) (
	grpc.ServerStreamingClient[outbidv1.StreamLogsResponse], error,
) {
	lines := f.logs[max(0, len(f.logs)-int(req.GetTail())):]
	return &fakeStream[outbidv1.StreamLogsResponse]{items: lines}, f.begin("StreamLogs", req, false)
}

// fakeStream is a stream of the API.
type fakeStream[T any] struct {
	grpc.ClientStream
	items []*T
}

func (s *fakeStream[T]) Recv() (*T, error) {
	if len(s.items) == 0 {
		return nil, io.EOF
	}
	item := s.items[0]
	s.items = s.items[1:]
	return item, nil
}

func (f *fakeAPI) ControlSweep(_ context.Context, req *outbidv1.ControlSweepRequest, _ ...grpc.CallOption) (*outbidv1.ControlSweepResponse, error) {
	s, _ := f.find(req.GetSweep())
	return &outbidv1.ControlSweepResponse{Sweep: s}, f.begin("ControlSweep", req, true)
}

func (f *fakeAPI) ControlTrial(ctx context.Context, req *outbidv1.ControlTrialRequest, _ ...grpc.CallOption) (*outbidv1.ControlTrialResponse, error) {
	got, err := f.GetTrial(ctx, &outbidv1.GetTrialRequest{Sweep: req.GetSweep(), Trial: req.GetTrial()})
	if err != nil {
		return nil, err
	}
	after := proto.CloneOf(got.GetTrial())
	if after.State = outbidv1.TrialState_TRIAL_STATE_STOPPED; req.GetCommand() == outbidv1.TrialCommand_TRIAL_COMMAND_RETRY {
		after.State = outbidv1.TrialState_TRIAL_STATE_QUEUED
	}
	return &outbidv1.ControlTrialResponse{Trial: after}, f.begin("ControlTrial", req, true)
}

func (f *fakeAPI) ExtendSweep(_ context.Context, req *outbidv1.ExtendSweepRequest, _ ...grpc.CallOption) (*outbidv1.ExtendSweepResponse, error) {
	s, _ := f.find(req.GetSweep())
	return &outbidv1.ExtendSweepResponse{Sweep: s, TrainedAgain: f.redone}, f.begin("ExtendSweep", req, true)
}

func (f *fakeAPI) AnnotateSweep(_ context.Context, req *outbidv1.AnnotateSweepRequest, _ ...grpc.CallOption) (*outbidv1.AnnotateSweepResponse, error) {
	s, err := f.find(req.GetSweep())
	if err != nil {
		return nil, err
	}
	s = proto.CloneOf(s)
	s.Annotation = &outbidv1.Annotation{Description: req.GetDescription(), Tags: req.GetAddTags()}
	return &outbidv1.AnnotateSweepResponse{Sweep: s}, f.begin("AnnotateSweep", req, true)
}

func (f *fakeAPI) SimulateLedger(ctx context.Context, req *outbidv1.SimulateLedgerRequest, _ ...grpc.CallOption) (
	grpc.ServerStreamingClient[outbidv1.SimulateLedgerResponse], error,
) {
	if err := f.begin("SimulateLedger", req, false); err != nil {
		return nil, err
	}
	f.simulated = proto.CloneOf(req)
	if f.pieces == nil {
		return &hangingStream[outbidv1.SimulateLedgerResponse]{ctx: ctx, began: f.began, ended: f.ended}, nil
	}
	return &fakeStream[outbidv1.SimulateLedgerResponse]{items: f.pieces}, nil
}

// hangingStream is a stream that ends with its call.
type hangingStream[T any] struct {
	grpc.ClientStream
	ctx   context.Context //nolint:containedctx // as in the streams of gRPC
	began chan<- struct{}
	ended chan<- error
}

func (s *hangingStream[T]) Recv() (*T, error) {
	close(s.began)
	<-s.ctx.Done()
	s.ended <- s.ctx.Err()
	return nil, status.FromContextError(s.ctx.Err()).Err()
}

func (f *fakeAPI) ListNodes(_ context.Context, req *outbidv1.ListNodesRequest, _ ...grpc.CallOption) (*outbidv1.ListNodesResponse, error) {
	return &outbidv1.ListNodesResponse{Nodes: f.nodes}, f.begin("ListNodes", req, false)
}

func (f *fakeAPI) ExplainSweep(ctx context.Context, req *outbidv1.ExplainSweepRequest, _ ...grpc.CallOption) (*outbidv1.ExplainSweepResponse, error) {
	s, err := f.find(req.GetSweep())
	if err != nil {
		return nil, err
	}
	var t *outbidv1.Trial
	if req.Trial != nil {
		got, err := f.GetTrial(ctx, &outbidv1.GetTrialRequest{Sweep: req.GetSweep(), Trial: req.GetTrial()})
		if err != nil {
			return nil, err
		}
		t = got.GetTrial()
	}
	got, _, err := evidence.Explain(ctx, f, s, t, nil, time.Now())
	return &outbidv1.ExplainSweepResponse{Why: got.State, Lost: got.Lost, Otherwise: got.Otherwise}, err
}

func (f *fakeAPI) ListRounds(_ context.Context, req *outbidv1.ListRoundsRequest, _ ...grpc.CallOption) (*outbidv1.ListRoundsResponse, error) {
	return &outbidv1.ListRoundsResponse{Rounds: f.rounds}, f.begin("ListRounds", req, false)
}

func (f *fakeAPI) GetServerInfo(_ context.Context, req *outbidv1.GetServerInfoRequest, _ ...grpc.CallOption) (*outbidv1.GetServerInfoResponse, error) {
	return f.info, f.begin("GetServerInfo", req, false)
}

// newFake has the running sweep digits-2 with ten trials, and digits-1, which is done and empty.
func newFake() *fakeAPI {
	spec := &outbidv1.SweepSpec{Name: "digits", Metric: "accuracy", Mode: "max", Tuner: &outbidv1.Tuner{Kind: &outbidv1.Tuner_Asha{Asha: &outbidv1.Asha{}}}}
	f := &fakeAPI{
		trials: map[string][]*outbidv1.Trial{}, fail: map[string]error{},
		info: &outbidv1.GetServerInfoResponse{Version: "1.2.3", Policy: "themis", Caller: &outbidv1.Caller{Name: "ann", Tenant: "vision", Role: "user"}},
	}
	for i := range int32(10) {
		opt := []string{"adam", "sgd"}[i%2]
		f.trials["digits-2"] = append(f.trials["digits-2"], &outbidv1.Trial{
			Sweep: "digits-2", Number: i, State: outbidv1.TrialState_TRIAL_STATE_COMPLETED, Step: 9, UntilStep: 9, Best: new(0.9 - float64(i)/100), BestStep: 8,
			ConfigJson: fmt.Sprintf(`{"lr":%d.5,"opt":{"name":%q},"width":64}`, i, opt),
		})
	}
	f.trials["digits-2"][9].State, f.trials["digits-2"][9].Reason = outbidv1.TrialState_TRIAL_STATE_FAILED, "failed for good: exited with code 1"
	f.sweeps = []*outbidv1.Sweep{
		{
			Id: "digits-2", Spec: spec, State: outbidv1.SweepState_SWEEP_STATE_RUNNING, Waiting: "waits for devices; 3 of the cluster's devices are held",
			Counts: &outbidv1.TrialCounts{Total: 10, Completed: 9, Failed: 1}, Best: f.trials["digits-2"][0], Outlook: &outbidv1.Outlook{Trials: 20},
			Notes: []*outbidv1.SweepNote{{Level: "warning", Text: "trial 9 failed", Trial: new(int32(9))}},
		},
		{Id: "digits-1", Spec: spec, State: outbidv1.SweepState_SWEEP_STATE_DONE, Counts: &outbidv1.TrialCounts{}},
	}
	return f
}

// client connects a client to a server of the fake.
func (f *fakeAPI) client(t *testing.T, cfg Config) *sdk.ClientSession {
	t.Helper()
	return f.clientWith(t, cfg, nil)
}

// clientWith is client for a client with options.
func (f *fakeAPI) clientWith(t *testing.T, cfg Config, options *sdk.ClientOptions) *sdk.ClientSession {
	t.Helper()
	if cfg.Connect == nil {
		cfg.Connect = func(context.Context, string) (*Connection, error) {
			return &Connection{API: f, Where: "the server at http://127.0.0.1:7700"}, nil
		}
	}
	here, there := sdk.NewInMemoryTransports()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- New(cfg).Run(ctx, there) }()
	session, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, options).Connect(ctx, here, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = session.Close()
		cancel()
		<-done
	})
	return session
}

// ask calls a tool. It returns its structured answer, or the text of its error.
func ask(t *testing.T, session *sdk.ClientSession, tool string, arguments any) (answer map[string]any, problem string) {
	t.Helper()
	got, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil {
		t.Fatalf("%s: protocol error: %v", tool, err)
	}
	text := got.Content[0].(*sdk.TextContent).Text
	if got.IsError {
		if got.StructuredContent != nil {
			t.Errorf("%s: an error has structured content", tool)
		}
		return nil, text
	}
	answer, ok := got.StructuredContent.(map[string]any)
	if !ok {
		t.Fatalf("%s: structured content is %T", tool, got.StructuredContent)
	}
	head, body, _ := strings.Cut(text, "\n")
	var same map[string]any
	if head != notice || json.Unmarshal([]byte(body), &same) != nil {
		t.Errorf("%s: the text is not the notice and the answer: %s", tool, text)
	}
	if answer["server"] != "the server at http://127.0.0.1:7700" || answer["notice"] != notice {
		t.Errorf("%s: the answer names server %v, notice %v", tool, answer["server"], answer["notice"])
	}
	checkSchema(t, tool, answer)
	return answer, ""
}

// mustAsk is ask for calls that succeed.
func mustAsk(t *testing.T, session *sdk.ClientSession, tool string, arguments any) map[string]any {
	t.Helper()
	got, problem := ask(t, session, tool, arguments)
	if problem != "" {
		t.Fatalf("%s: %s", tool, problem)
	}
	return got
}

// checkSchema checks an answer against the tool's output schema, as some clients do.
func checkSchema(t *testing.T, name string, answer map[string]any) {
	t.Helper()
	for _, one := range tools() {
		if one.name != name {
			continue
		}
		resolved, err := one.output.Resolve(&jsonschema.ResolveOptions{})
		if err == nil {
			err = resolved.Validate(answer)
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// eventually fails the test if a channel stays silent.
func eventually[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(30 * time.Second):
		t.Fatalf("timeout: %s", what)
		panic("unreachable")
	}
}
