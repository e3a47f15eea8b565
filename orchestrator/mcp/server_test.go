package mcp

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func TestToolsTellWhatTheyDo(t *testing.T) {
	t.Parallel()
	got, err := newFake().client(t, Config{}).ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var reading, adding, ending, repeatable []string
	for _, tool := range got.Tools {
		switch a := tool.Annotations; {
		case a.ReadOnlyHint:
			reading = append(reading, tool.Name)
		case *a.DestructiveHint:
			ending = append(ending, tool.Name)
		default:
			adding = append(adding, tool.Name)
		}
		if tool.Annotations.IdempotentHint && !tool.Annotations.ReadOnlyHint {
			repeatable = append(repeatable, tool.Name)
		}
		if tool.Description == "" || tool.Title == "" || tool.OutputSchema == nil {
			t.Errorf("%s lacks a description, a title or an output schema", tool.Name)
		}
		for name, property := range tool.InputSchema.(map[string]any)["properties"].(map[string]any) {
			if property.(map[string]any)["description"] == nil {
				t.Errorf("%s: %s lacks a description", tool.Name, name)
			}
		}
	}
	want := [][]string{
		{"compare", "explain", "list_sweeps", "list_trials", "preview", "read_logs", "show_server", "show_sweep", "show_trial", "wait_for_sweep", "what_if"},
		{"annotate", "extend", "resume", "retry", "submit"},
		{"pause", "stop"},
		{"annotate", "extend", "pause", "resume", "retry", "stop"},
	}
	if diff := cmp.Diff(want, [][]string{reading, adding, ending, repeatable}); diff != "" {
		t.Errorf("reading, adding, ending and repeatable tools (-want +got):\n%s", diff)
	}
}

func TestReadOnlyOffersOnlyToolsThatRead(t *testing.T) {
	t.Parallel()
	f := newFake()
	session := f.client(t, Config{ReadOnly: true})
	got, err := session.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range got.Tools {
		if !tool.Annotations.ReadOnlyHint {
			t.Errorf("%s is offered", tool.Name)
		}
	}
	if len(got.Tools) != 11 {
		t.Errorf("%d tools are offered", len(got.Tools))
	}
	if _, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "stop", Arguments: map[string]any{"sweep": "digits-2"}}); err == nil {
		t.Error("stop was called")
	}
	if len(f.got) > 0 {
		t.Errorf("the server was changed: %v", f.got)
	}
	if text := session.InitializeResult().Instructions; strings.Contains(text, "submit") {
		t.Errorf("the instructions speak of tools that are not offered:\n%s", text)
	}
}

func TestTheExampleIsAResource(t *testing.T) {
	t.Parallel()
	session := newFake().client(t, Config{Example: "name: example"})
	got, err := session.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: exampleURI})
	if err != nil || got.Contents[0].Text != "name: example" {
		t.Errorf("the resource is %v, %v", got, err)
	}
}

func TestErrorsAreAnswersThatSayWhatWouldBeRight(t *testing.T) {
	t.Parallel()
	denied := status.Error(codes.PermissionDenied, "SubmitSweep needs a user's token; the role of eve is viewer")
	for _, test := range []struct {
		name, tool string
		arguments  any
		fail       map[string]error
		want       string
	}{
		{"missing", "show_sweep", nil, nil, `show_sweep: sweep: is missing, must be a string of 1 to 200 characters`},
		{"type", "list_trials", map[string]any{"sweep": 7}, nil, `list_trials: sweep: must be a string of 1 to 200 characters, got 7`},
		{"too many", "list_sweeps", map[string]any{"limit": 5000}, nil, `list_sweeps: limit: must be an integer from 1 to 100, got 5000`},
		{"fraction", "list_sweeps", map[string]any{"limit": 1.5}, nil, `list_sweeps: limit: must be an integer from 1 to 100, got 1.5`},
		{"word", "list_sweeps", map[string]any{"state": "runing"}, nil, `state: must be one of running, paused, stopping, done, stopped, failed, got "runing"`},
		{"unknown", "list_sweeps", map[string]any{"limt": 5}, nil, `limt: is not an argument: did you mean "limit"? list_sweeps takes tenant, state, limit, page_token`},
		{"no arguments", "show_server", map[string]any{"x": 5}, nil, `x: is not an argument: show_server takes no arguments`},
		{"no object", "show_server", []any{1}, nil, `arguments: must be a JSON object, got [1]`},
		{"few items", "compare", map[string]any{"items": []any{"digits-2"}}, nil, `items: must be a list of 2 to 12 strings, got ["digits-2"]`},
		{"item", "compare", map[string]any{"items": []any{"digits-2/x", "digits-2"}}, nil, `items: "digits-2/x": must be SWEEP/NUMBER or SWEEP/best`},
		{"page", "list_sweeps", map[string]any{"page_token": "zzz"}, nil, `page_token: must be the next_page_token of an earlier answer of this tool, got "zzz"`},
		{"no sweep", "show_sweep", map[string]any{"sweep": "digits-7"}, nil, `sweep: there is no sweep "digits-7" on the server at http://127.0.0.1:7700: did you mean "digits-2"?`},
		{"a trial", "show_sweep", map[string]any{"sweep": "digits-2/1"}, nil, `sweep: "digits-2/1" names a trial; give the sweep alone: "digits-2"`},
		{"no trial", "show_trial", map[string]any{"sweep": "digits-2", "trial": 99}, nil, `sweep digits-2 has no trial 99`},
		{"no best", "show_trial", map[string]any{"sweep": "digits-1"}, nil, `trial: digits-1 has no best trial, because no trial has reported "accuracy"; give a number`},
		{"denied", "submit", map[string]any{"yaml": goodSweep}, map[string]error{"SubmitSweep": denied}, `submit: SubmitSweep needs a user's token; the role of eve is viewer`},
		{"yaml", "submit", map[string]any{"yaml": "name: digits\nspce: {}"}, nil, `submit: yaml: line 2, column 1: spce: is not a field here; did you mean space?`},
		{
			"field", "preview",
			map[string]any{"yaml": goodSweep},
			map[string]error{"PreviewSweep": status.Error(codes.InvalidArgument, "limits.trials: must be at most 3, got 4")},
			`preview: yaml: line 7, column 10: limits.trials: must be at most 3, got 4`,
		},
		{"nothing", "extend", map[string]any{"sweep": "digits-2"}, nil, `nothing to extend: give trials, max_steps, space, concurrency, steps, wall_time, device_hours, cost, target or weight`},
		{"no annotation", "annotate", map[string]any{"sweep": "digits-2"}, nil, `nothing to annotate: give description, add_tags or remove_tags`},
		{"many tags", "annotate", map[string]any{"sweep": "digits-2", "add_tags": slices.Repeat([]string{"a"}, 21)}, nil, `add_tags: must be a list of 0 to 20 strings`},
		{"no policy", "what_if", nil, nil, `nothing to simulate: give policies, or sweep and weight`},
		{"no weight", "what_if", map[string]any{"sweep": "digits-2"}, nil, `sweep and weight: give both or none`},
		{"five", "what_if", map[string]any{"policies": []any{"a", "b", "c", "d", "e"}}, nil, `policies: must be a list of 0 to 4 strings`},
		{"since", "what_if", map[string]any{"policies": []any{"las"}, "since": "yesterday"}, nil, `since: "yesterday": must be a date such as 2026-11-01`},
		{"until", "what_if", map[string]any{"policies": []any{"las"}, "until": "-3h"}, nil, `until: "-3h": must be a date such as 2026-11-01`},
		{
			"long", "what_if",
			map[string]any{"policies": []any{"las"}},
			map[string]error{"SimulateLedger": status.Error(codes.DeadlineExceeded, "the simulation took more than 1m0s: choose a shorter period")},
			`what_if: the simulation took more than 1m0s: choose a shorter period`,
		},
		{"space", "extend", map[string]any{"sweep": "digits-2", "space": "lr: {flot: {}}"}, nil, `extend: space: line 1`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := newFake()
			f.fail = test.fail
			_, problem := ask(t, f.client(t, Config{}), test.tool, test.arguments)
			if !strings.Contains(problem, test.want) {
				t.Errorf("got  %q\nwant %q", problem, test.want)
			}
		})
	}
}

func TestAFaultIsAnAnswerAndNotACrash(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.onGet = func(context.Context, *outbidv1.Sweep) error { panic("hidden") }
	session := f.client(t, Config{})
	if _, problem := ask(t, session, "show_sweep", map[string]any{"sweep": "digits-2"}); !strings.Contains(problem, "internal error") || strings.Contains(problem, "hidden") {
		t.Errorf("got %q", problem)
	}
	mustAsk(t, session, "show_server", nil)
}

func TestACallFindsTheServerAgain(t *testing.T) {
	t.Parallel()
	f := newFake()
	problems := []error{errors.New("the server of .outbid is not running: start it with 'outbid up'"), nil}
	closed := 0
	session := f.client(t, Config{Connect: func(context.Context, string) (*Connection, error) {
		problem := problems[0]
		problems = problems[1:]
		if problem != nil {
			return nil, problem
		}
		return &Connection{API: f, Where: "the server at http://127.0.0.1:7700", Close: func() { closed++ }}, nil
	}})
	if _, problem := ask(t, session, "show_server", nil); !strings.Contains(problem, "start it with 'outbid up'") {
		t.Errorf("got %q", problem)
	}
	mustAsk(t, session, "show_server", nil)
	if closed != 1 {
		t.Errorf("%d connections were closed", closed)
	}
}

func TestCancellingACallCancelsTheCallOfTheAPI(t *testing.T) {
	t.Parallel()
	f := newFake()
	began, ended := make(chan struct{}), make(chan error, 1)
	f.onGet = func(ctx context.Context, _ *outbidv1.Sweep) error {
		close(began)
		<-ctx.Done()
		ended <- ctx.Err()
		return ctx.Err()
	}
	session := f.client(t, Config{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-began
		cancel()
	}()
	if _, err := session.CallTool(ctx, &sdk.CallToolParams{Name: "show_sweep", Arguments: map[string]any{"sweep": "digits-2"}}); err == nil {
		t.Error("the call succeeded")
	}
	if err := eventually(t, ended, "the API's call ends"); !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
}

func TestASlowServerIsAnError(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.onGet = func(ctx context.Context, _ *outbidv1.Sweep) error {
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	}
	session := f.client(t, Config{callTimeout: 1})
	if _, problem := ask(t, session, "show_sweep", map[string]any{"sweep": "digits-2"}); !strings.Contains(problem, "did not answer within") {
		t.Errorf("got %q", problem)
	}
}

func TestShowServerCountsDevices(t *testing.T) {
	t.Parallel()
	f := newFake()
	info := &outbidv1.NodeInfo{Name: "a", Devices: []*outbidv1.Device{{Index: 0, Type: "h200"}, {Index: 1, Type: "h200"}, {Index: 2, Type: "cpu"}}}
	f.nodes = []*outbidv1.Node{
		{
			Info: info, State: outbidv1.NodeState_NODE_STATE_UP, Uses: []*outbidv1.DeviceUse{{Device: 1}},
			Faults: slices.Repeat([]*outbidv1.NodeFault{{Reason: "disk full"}}, 25),
		},
		{Info: info, State: outbidv1.NodeState_NODE_STATE_LOST},
	}
	got := mustAsk(t, f.client(t, Config{}), "show_server", nil)
	want := []any{map[string]any{"type": "cpu", "total": 1.0, "free": 1.0}, map[string]any{"type": "h200", "total": 2.0, "free": 1.0}}
	if diff := cmp.Diff(want, got["devices"]); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]any{"up": 1.0, "lost": 1.0}, got["nodes"]); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
	if n := len(got["faults"].([]any)); n != maxFaults || got["cut"] == nil {
		t.Errorf("%d faults, cut %v", n, got["cut"])
	}
	if diff := cmp.Diff(map[string]any{"name": "ann", "tenant": "vision", "role": "user"}, got["caller"]); diff != "" {
		t.Errorf("caller (-want +got):\n%s", diff)
	}
}
