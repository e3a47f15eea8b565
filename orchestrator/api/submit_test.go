package api

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/objects"
	"github.com/outbid-dev/outbid/orchestrator/spec"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// okSpec returns a spec of an external sweep with a few random trials.
func okSpec() *outbidv1.SweepSpec {
	return &outbidv1.SweepSpec{
		Name: "digits", Metric: "accuracy", Mode: "max",
		Space: map[string]*outbidv1.Parameter{
			"lr": {Kind: &outbidv1.Parameter_Float{Float: &outbidv1.FloatRange{Low: 0.001, High: 1, Log: true}}},
		},
		Tuner:    &outbidv1.Tuner{Kind: &outbidv1.Tuner_Random{Random: &outbidv1.RandomSearch{MaxSteps: 3}}, Seed: new(uint64(1))},
		Limits:   &outbidv1.Limits{Trials: 8},
		Workload: &outbidv1.SweepSpec_External{External: &outbidv1.External{}},
	}
}

func TestSubmitSweep(t *testing.T) {
	t.Parallel()
	h := serve(t, func(c *Config) { c.Tokens = testTokens(t) })
	client := h.dial(t, token("ann"))
	req := &outbidv1.SubmitSweepRequest{Spec: okSpec(), IdempotencyKey: "k"}
	first, err := client.SubmitSweep(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	sweep := first.GetSweep()
	if sweep.GetSpec().GetTenant() != "vision" || sweep.GetActor() != "ann" || sweep.GetSpec().GetMaxRestarts() != 3 {
		t.Errorf("submitted %v", sweep)
	}
	again, err := client.SubmitSweep(t.Context(), req)
	if err != nil || again.GetSweep().GetId() != sweep.GetId() {
		t.Errorf("the same key: %v, %v", again, err)
	}
	other, err := h.dial(t, token("bob")).SubmitSweep(t.Context(), req)
	if err != nil || other.GetSweep().GetId() == sweep.GetId() || other.GetSweep().GetSpec().GetTenant() != "speech" {
		t.Errorf("another's key: %v, %v", other, err)
	}
	resp, b := h.call(t, "POST", "/v1/sweeps", `{"spec":{"name":"rest","metric":"loss","mode":"min",
		"space":{"x":{"int":{"low":1,"high":9}}},"tuner":{"sobol":{"max_steps":2}},"limits":{"trials":4},
		"program":{"shell":"train {x}"}}}`, "Authorization", "Bearer "+token("root"))
	if !bytes.Contains(b, []byte(`"seed":"`)) {
		t.Errorf("the seed that was left out was not drawn: %s", b)
	}
	if resp.StatusCode != http.StatusOK || !bytes.Contains(b, []byte(`"tenant":"default"`)) {
		t.Errorf("REST: status %d: %s", resp.StatusCode, b)
	}
}

func TestSubmitRefuses(t *testing.T) {
	t.Parallel()
	h := serve(t, func(c *Config) { c.Tokens = testTokens(t) })
	h.store.data[objects.BlobKey(strings.Repeat("ab", 32))] = []byte("x")
	function := func(blob string) func(*outbidv1.SweepSpec) {
		return func(s *outbidv1.SweepSpec) {
			s.Workload = &outbidv1.SweepSpec_Function{Function: &outbidv1.Function{Blob: blob}}
		}
	}
	for name, tc := range map[string]struct {
		token       string
		change      func(*outbidv1.SweepSpec)
		code        codes.Code
		field, says string
	}{
		"ok":          {token("ann"), func(*outbidv1.SweepSpec) {}, codes.OK, "", ""},
		"own tenant":  {token("ann"), func(s *outbidv1.SweepSpec) { s.Tenant = "vision" }, codes.OK, "", ""},
		"known blob":  {token("ann"), function(strings.Repeat("ab", 32)), codes.OK, "", ""},
		"admin":       {token("root"), func(s *outbidv1.SweepSpec) { s.Tenant = "speech" }, codes.OK, "", ""},
		"viewer":      {token("eve"), func(*outbidv1.SweepSpec) {}, codes.PermissionDenied, "", "viewer"},
		"no metric":   {token("ann"), func(s *outbidv1.SweepSpec) { s.Metric = "" }, codes.InvalidArgument, "metric", "metric"},
		"wrong mode":  {token("ann"), func(s *outbidv1.SweepSpec) { s.Mode = "up" }, codes.InvalidArgument, "mode", `"up"`},
		"lost blob":   {token("ann"), function(strings.Repeat("cd", 32)), codes.InvalidArgument, "function.blob", "PutBlob"},
		"no such one": {token("bob"), func(s *outbidv1.SweepSpec) { s.Tenant = "vision" }, codes.PermissionDenied, "", "speech"},
		"plugin": {token("ann"), func(s *outbidv1.SweepSpec) {
			s.Tuner.Kind = &outbidv1.Tuner_Plugin{Plugin: &outbidv1.PluginTuner{Command: []string{"x"}, MaxSteps: 3}}
		}, codes.PermissionDenied, "", "tuner.plugin"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := okSpec()
			tc.change(s)
			_, err := h.dial(t, tc.token).SubmitSweep(t.Context(), &outbidv1.SubmitSweepRequest{Spec: s})
			e := newJSONError(status.Convert(err))
			if status.Code(err) != tc.code || e.Field != tc.field || !strings.Contains(e.Message, tc.says) {
				t.Errorf("%+v, want %v, field %q, saying %q", e, tc.code, tc.field, tc.says)
			}
		})
	}
	_, err := h.dial(t, token("ann")).SubmitSweep(t.Context(), &outbidv1.SubmitSweepRequest{})
	if e := newJSONError(status.Convert(err)); e.Field != "spec" {
		t.Errorf("no spec: %+v", e)
	}
}

func TestExtendSweep(t *testing.T) {
	t.Parallel()
	h := serve(t, nil)
	h.control.add("digits-1", "", 1)
	client := h.dial(t, "")
	req := &outbidv1.ExtendSweepRequest{Sweep: "digits-1", Trials: proto.Int32(9)}
	if resp, err := client.ExtendSweep(t.Context(), req); err != nil || resp.GetSweep().GetId() != "digits-1" {
		t.Errorf("%v, %v", resp, err)
	}
	req.Trials = nil
	if _, err := client.ExtendSweep(t.Context(), req); status.Code(err) != codes.InvalidArgument {
		t.Errorf("nothing to extend: %v", err)
	}
}

func TestErrorsOfControl(t *testing.T) {
	t.Parallel()
	h := serve(t, nil)
	h.control.add("digits-1", "", 1)
	client := h.dial(t, "")
	for name, tc := range map[string]struct {
		err  error
		code codes.Code
		want jsonError
	}{
		"conflict": {
			fmt.Errorf("digits-1 is running: %w", state.ErrConflict), codes.FailedPrecondition,
			jsonError{Code: "FAILED_PRECONDITION", Message: "digits-1 is running"},
		},
		"invalid": {
			fmt.Errorf("%w: trials: 3 is too few", state.ErrInvalid), codes.InvalidArgument,
			jsonError{Code: "INVALID_ARGUMENT", Message: "trials: 3 is too few"},
		},
		"spec": {
			fmt.Errorf("extend: %w", &spec.Error{Field: "space.lr", Problem: "is narrower"}), codes.InvalidArgument,
			jsonError{Code: "INVALID_ARGUMENT", Message: "space.lr: is narrower", Field: "space.lr"},
		},
		"store away": {
			fmt.Errorf("x: %w", objects.ErrUnavailable), codes.Unavailable,
			jsonError{Code: "UNAVAILABLE", Message: "object store is unavailable; retry later"},
		},
		"ours": {errors.New("secret path"), codes.Internal, jsonError{Code: "INTERNAL"}},
	} {
		h.control.mu.Lock()
		h.control.fail = tc.err
		h.control.mu.Unlock()
		err := pause(t.Context(), client)
		got := newJSONError(status.Convert(err))
		if tc.code == codes.Internal {
			if strings.Contains(got.Message, "secret") || !strings.Contains(got.Message, "under id ") {
				t.Errorf("%s: %+v", name, got)
			}
			got.Message = ""
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	node := func(trusted bool, types ...string) *outbidv1.Node {
		n := &outbidv1.Node{State: outbidv1.NodeState_NODE_STATE_UP, Info: &outbidv1.NodeInfo{
			Trusted: trusted, Cpus: 8, MemoryBytes: 16 << 30,
		}}
		for i, kind := range types {
			n.Info.Devices = append(n.Info.Devices, &outbidv1.Device{Index: int32(i), Type: kind})
		}
		return n
	}
	lost := node(true, "h200")
	lost.State = outbidv1.NodeState_NODE_STATE_LOST
	nodes := []*outbidv1.Node{node(true, "cpu", "cpu"), node(false, "v100", "v100", "v100", "k80"), lost}
	program := &outbidv1.SweepSpec_Program{Program: &outbidv1.Program{Shell: "x"}}
	for name, tc := range map[string]struct {
		spec  *outbidv1.SweepSpec
		nodes []*outbidv1.Node
		want  string
	}{
		"fits":     {&outbidv1.SweepSpec{Workload: program}, nodes, ""},
		"external": {okSpec(), nil, ""},
		"no nodes": {&outbidv1.SweepSpec{Workload: program}, []*outbidv1.Node{lost}, "no worker is connected"},
		"type": {
			&outbidv1.SweepSpec{Workload: program, Resources: &outbidv1.Resources{Types: []string{"h200"}}}, nodes,
			"no node has a device of type h200; there are: cpu, k80, v100",
		},
		"three": {&outbidv1.SweepSpec{Workload: program, Resources: &outbidv1.Resources{
			Devices: &outbidv1.DeviceCount{Min: 3},
		}}, nodes, ""},
		"four": {&outbidv1.SweepSpec{Workload: program, Resources: &outbidv1.Resources{
			Devices: &outbidv1.DeviceCount{Min: 4},
		}}, nodes, "needs 4 such devices on one node; the largest node has 3"},
		"excluded": {&outbidv1.SweepSpec{Workload: program, Resources: &outbidv1.Resources{
			Devices: &outbidv1.DeviceCount{Min: 3}, ExcludeTypes: []string{"v100"},
		}}, nodes, "the largest node has 2"},
		"memory": {
			&outbidv1.SweepSpec{Workload: program, Resources: &outbidv1.Resources{Memory: "64GiB"}}, nodes,
			"64GiB of memory",
		},
		"cpus": {&outbidv1.SweepSpec{Workload: program, Resources: &outbidv1.Resources{Cpus: 9}}, nodes, "9 CPUs"},
		"untrusted": {
			&outbidv1.SweepSpec{Workload: &outbidv1.SweepSpec_Function{Function: &outbidv1.Function{}}},
			nodes[1:2], "outbid worker join",
		},
		"function": {&outbidv1.SweepSpec{
			Workload:  &outbidv1.SweepSpec_Function{Function: &outbidv1.Function{}},
			Resources: &outbidv1.Resources{Devices: &outbidv1.DeviceCount{Min: 3}},
		}, nodes, "the largest node has 2"},
	} {
		got := strings.Join(warnings(tc.spec, tc.nodes), "; ")
		if (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestPreviewSweep(t *testing.T) {
	t.Parallel()
	h := serve(t, func(c *Config) { c.Tokens = testTokens(t) })
	client := h.dial(t, token("eve")) // a viewer may preview
	hyperband := okSpec()
	hyperband.Tuner.Kind = &outbidv1.Tuner_Hyperband{Hyperband: &outbidv1.Hyperband{MaxSteps: 81}}
	hyperband.Limits = nil
	resp, err := client.PreviewSweep(t.Context(), &outbidv1.PreviewSweepRequest{Spec: hyperband, StepSeconds: 3.6})
	if err != nil {
		t.Fatal(err)
	}
	o := resp.GetOutlook()
	steps := int64(0)
	for _, r := range o.GetRungs() {
		steps += r.GetSteps()
	}
	if o.GetTrials() != 143 || len(o.GetRungs()) != 15 || steps != o.GetSteps() {
		t.Errorf("Hyperband with R = 81: %v", o)
	}
	if want := float64(o.GetSteps()) / 1000; math.Abs(resp.GetDeviceHours()-want) > 1e-9 {
		t.Errorf("%v device-hours, want %v", resp.GetDeviceHours(), want)
	}
	if len(resp.GetExamples()) != 5 || resp.GetExamples()[0].GetFields()["lr"].GetNumberValue() < 0.001 {
		t.Errorf("examples %v", resp.GetExamples())
	}
	if len(h.control.order) != 0 {
		t.Error("a preview started a sweep")
	}
	for name, tc := range map[string]struct {
		change func(*outbidv1.SweepSpec)
		want   string
	}{
		"bounded":   {func(*outbidv1.SweepSpec) {}, ""},
		"no end":    {func(s *outbidv1.SweepSpec) { s.Limits = &outbidv1.Limits{Target: proto.Float64(0.9)} }, "reaches its target"},
		"by itself": {func(s *outbidv1.SweepSpec) { s.Tuner.GetRandom().MaxSteps = 0 }, "steps are not known"},
		"cut":       {func(s *outbidv1.SweepSpec) { s.Limits.Steps = 10 }, "after 10 of the 24 steps"},
		"hours":     {func(s *outbidv1.SweepSpec) { s.Limits.DeviceHours = 0.01 }, "after 0.01 of the 0.024 device-hours"},
		"enough":    {func(s *outbidv1.SweepSpec) { s.Limits.DeviceHours = 0.025 }, ""},
	} {
		s := okSpec()
		tc.change(s)
		resp, err := client.PreviewSweep(t.Context(), &outbidv1.PreviewSweepRequest{Spec: s, StepSeconds: 3.6})
		got := strings.Join(resp.GetWarnings(), "; ")
		if err != nil || (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %q, %v; want %q", name, got, err, tc.want)
		}
	}
	spoken := okSpec()
	spoken.Agent = &outbidv1.Agent{Plugin: "patient"}
	if _, err := client.PreviewSweep(t.Context(), &outbidv1.PreviewSweepRequest{Spec: spoken}); err != nil {
		t.Error(err)
	}
	unspoken := okSpec()
	unspoken.Agent = &outbidv1.Agent{Plugin: "nobody"}
	for _, req := range []*outbidv1.PreviewSweepRequest{{}, {Spec: okSpec(), StepSeconds: -1}, {Spec: unspoken}} {
		if _, err := client.PreviewSweep(t.Context(), req); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v: %v", req, err)
		}
	}
}

func TestPreviewNamesWhatCannotBeDrawn(t *testing.T) {
	t.Parallel()
	s := okSpec()
	s.Constraints = []string{"lr > 2"}
	h := serve(t, nil)
	_, err := h.dial(t, "").PreviewSweep(t.Context(), &outbidv1.PreviewSweepRequest{Spec: s})
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "constraint") {
		t.Errorf("a space without a configuration: %v", err)
	}
}
