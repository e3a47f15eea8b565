package spec

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func request(t *testing.T, text string) *outbidv1.ExtendSweepRequest {
	t.Helper()
	req := &outbidv1.ExtendSweepRequest{}
	if err := protojson.Unmarshal([]byte(text), req); err != nil {
		t.Fatal(err)
	}
	return req
}

const limited = "limits: {trials: 10, steps: 100, wall_time: 1h, target: 0.9, device_hours: 4, cost: 20}"

func TestExtend(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ title, lines, request, want string }{
		{"trials", "", `{"trials": 20}`, "limits: {trials: 20}"},
		{"trials by limits", "", `{"limits": {"trials": 20}}`, "limits: {trials: 20}"},
		{"the same trials", "", `{"trials": 10}`, ""},
		{
			"every limit", limited, `{"limits": {"steps": 200, "wall_time": "2h", "target": 0.95, "concurrency": 2, "device_hours": 4.5, "cost": 30}}`,
			"limits: {trials: 10, steps: 200, wall_time: 2h, target: 0.95, concurrency: 2, device_hours: 4.5, cost: 30}",
		},
		{"a higher weight", "", `{"weight": 2.5}`, "weight: 2.5"},
		{"a lower weight", "weight: 3", `{"weight": 1}`, "weight: 1"},
		{"longer steps", "tuner: {asha: {max_steps: 9}}", `{"max_steps": 27}`, "tuner: {asha: {max_steps: 27}}"},
		{
			"a wider range", "", `{"space": {"lr": {"float": {"low": 0.0001, "high": 0.1, "log": true}}}}`,
			"space: {lr: {float: {low: 0.0001, high: 0.1, log: true}}}",
		},
		{
			"trials of successive halving", "tuner: {successive_halving: {max_steps: 9}}\nlimits: {}", `{"trials": 30}`,
			"tuner: {successive_halving: {max_steps: 9, trials: 30}}\nlimits: {}",
		},
		{
			"trials of hyperband: whole iterations", "tuner: {hyperband: {max_steps: 9}}\nlimits: {}", `{"trials": 18}`,
			"tuner: {hyperband: {max_steps: 9, iterations: 2}}\nlimits: {}",
		},
		{
			"more trials of hyperband", "tuner: {hyperband: {max_steps: 9}}\nlimits: {}", `{"trials": 40}`,
			"tuner: {hyperband: {max_steps: 9, iterations: 3}}\nlimits: {}",
		},
		{
			"population", "tuner: {pbt: {max_steps: 9, interval: 3}}\nlimits: {}", `{"trials": 12}`,
			"tuner: {pbt: {max_steps: 9, interval: 3, population: 12}}\nlimits: {}",
		},
	} {
		old := mustParse(t, compose(tc.lines))
		before := proto.CloneOf(old)
		got, err := Extend(old, request(t, tc.request))
		if err != nil {
			t.Errorf("%s: %v", tc.title, err)
			continue
		}
		want := tc.want
		if want == "" {
			want = tc.lines
		}
		if diff := cmp.Diff(mustParse(t, compose(want)), got, protocmp.Transform()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.title, diff)
		}
		if !proto.Equal(before, old) {
			t.Errorf("%s: the old spec changed", tc.title)
		}
	}
}

func TestBadExtensions(t *testing.T) {
	t.Parallel()
	const choices = "space: {lr: {choice: {values: [a, b]}}, g: {group: {space: {n: {int: {low: 1, high: 9}}}}}}"
	for _, tc := range []struct{ title, lines, request, want string }{
		{"nothing", "", `{}`, "the extension is empty; set more trials, a higher max_steps, a wider space, other limits or another weight"},
		{"no weight", "", `{"weight": 0}`, "weight: must be a number above 0, got 0; 1 is usual"},
		{"a negative weight", "", `{"weight": -1}`, "weight: must be a number above 0, got -1; 1 is usual"},
		{"no number", "", `{"weight": "NaN"}`, "weight: must be a number above 0, got NaN; 1 is usual"},
		{"an infinite weight", "", `{"weight": "Infinity"}`, "weight: must be a number above 0, got +Inf; 1 is usual"},
		{"fewer trials", "", `{"trials": 9}`, "trials: 9 is less than before (10); an extension can only raise it"},
		{
			"fewer trials by limits", "", `{"limits": {"trials": 9}}`,
			"limits.trials: 9 is less than before (10); an extension can only raise it",
		},
		{
			"two answers", "", `{"trials": 12, "limits": {"trials": 13}}`,
			"limits.trials: 13 differs from trials (12); set only one of them",
		},
		{
			"a new limit", "limits: {steps: 100}", `{"trials": 12}`,
			"trials: 12 would add a limit; an extension can only raise an existing one",
		},
		{
			"fewer steps in all", limited, `{"limits": {"steps": 99}}`,
			"limits.steps: 99 is less than before (100); an extension can only raise it",
		},
		{
			"steps not limited before", "", `{"limits": {"steps": 99}}`,
			"limits.steps: 99 would add a limit; an extension can only raise an existing one",
		},
		{
			"less time", limited, `{"limits": {"wall_time": "59m"}}`,
			"limits.wall_time: 59m is less than before (1h); an extension can only raise it",
		},
		{
			"fewer device-hours", limited, `{"limits": {"device_hours": 3.5}}`,
			"limits.device_hours: 3.5 is less than before (4); an extension can only raise it",
		},
		{
			"a lower cost", limited, `{"limits": {"cost": 19}}`,
			"limits.cost: 19 is less than before (20); an extension can only raise it",
		},
		{
			"cost not limited before", "", `{"limits": {"cost": 3.5}}`,
			"limits.cost: 3.5 would add a limit; an extension can only raise an existing one",
		},
		{
			"device-hours not limited before", "", `{"limits": {"device_hours": 3.5}}`,
			"limits.device_hours: 3.5 would add a limit; an extension can only raise an existing one",
		},
		{
			"no number of device-hours", limited, `{"limits": {"device_hours": "NaN"}}`,
			"limits.device_hours: NaN is less than before (4); an extension can only raise it",
		},
		{"bad time", limited, `{"limits": {"wall_time": "more"}}`, `limits.wall_time: "more" is not a duration above 0; ` +
			"write a number and a unit, such as 90s, 10m, 36h or 2d"},
		{"negative concurrency", "", `{"limits": {"concurrency": -2}}`, "limits.concurrency: -2 is negative"},
		{
			"fewer steps", "tuner: {asha: {max_steps: 9}}", `{"max_steps": 8}`,
			"max_steps: 8 is less than before (9); an extension can only raise it",
		},
		{
			"steps that had no end", "", `{"max_steps": 8}`,
			"max_steps: 8 would add a limit; the trials of this sweep train until their code ends",
		},
		{
			"fewer trials of hyperband", "tuner: {hyperband: {max_steps: 9}}\nlimits: {}", `{"trials": 16}`,
			"trials: 16 is less than before (17); an extension can only raise it",
		},
		{
			"a narrower range", "", `{"space": {"lr": {"float": {"low": 0.01, "high": 0.1, "log": true}}}}`,
			"space.lr: 0.01 to 0.1 does not contain 0.001 to 0.1 as before",
		},
		{
			"another kind", "", `{"space": {"lr": {"int": {"low": 0, "high": 1}}}}`,
			"space.lr: was a float range and must stay one",
		},
		{
			"a new parameter", "", `{"space": {"l2": {"constant": 0}}}`,
			"space.l2: is not a parameter of the sweep, and an extension cannot add one; the parameters are lr",
		},
		{
			"a lost choice", choices, `{"space": {"lr": {"choice": {"values": ["a", "c"]}}}}`,
			`space.lr: "b" is not one of ["a","c"], but was a value before`,
		},
		{
			"a lost parameter", choices, `{"space": {"g": {"group": {"space": {"m": {"constant": 1}}}}}}`,
			"space.g.group.space.n: is missing; the sweep has trials with it",
		},
		{
			"a broken parameter", "", `{"space": {"lr": {}}}`,
			"space.lr: has no kind; set one of float, int, normal, choice, constant or group",
		},
	} {
		_, err := Extend(mustParse(t, compose(tc.lines+"\nprogram: {command: [a]}")), request(t, tc.request))
		got := "no error"
		if err != nil {
			got = err.Error()
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.title, diff)
		}
	}
}
