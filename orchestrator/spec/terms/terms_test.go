package terms

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func TestTerms(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		spec *outbidv1.SweepSpec
		want Terms
	}{
		"nothing is said": {
			&outbidv1.SweepSpec{},
			Terms{Demand: cluster.Demand{Min: 1, Max: 1}, SaveEvery: 30 * time.Second, Grace: 10 * time.Second},
		},
		"a program with everything": {
			&outbidv1.SweepSpec{
				Limits: &outbidv1.Limits{WallTime: "2d"}, Checkpoints: &outbidv1.Checkpoints{Every: "90s"}, HangTimeout: "10m",
				Workload: &outbidv1.SweepSpec_Program{Program: &outbidv1.Program{Grace: "1m"}},
				Resources: &outbidv1.Resources{
					Devices: &outbidv1.DeviceCount{Min: 2, Max: 8}, Memory: "4GiB", Cpus: 3, Types: []string{"a100"},
					ExcludeTypes: []string{"k80"}, Spread: true, Mixed: true,
				},
				Throughputs: []*outbidv1.Throughput{{Type: "k80"}, {Type: "p100"}, {Type: "v100", StepsPerSecond: 1}, {Type: "t4", Trial: new(int32(1))}},
			},
			Terms{
				Demand: cluster.Demand{
					Min: 2, Max: 8, Memory: 4 << 30, CPUs: 3, Types: []string{"a100"}, Exclude: []string{"k80", "p100"}, MultiNode: true, Mixed: true,
				},
				WallTime: 48 * time.Hour, SaveEvery: 90 * time.Second, HangTimeout: 10 * time.Minute, Grace: time.Minute,
			},
		},
		"a function": {
			&outbidv1.SweepSpec{Workload: &outbidv1.SweepSpec_Function{Function: &outbidv1.Function{}}},
			Terms{Demand: cluster.Demand{Min: 1, Max: 1, NeedsTrust: true}, SaveEvery: 30 * time.Second, Grace: 10 * time.Second},
		},
		"a utility, and labels that are only labels": {
			&outbidv1.SweepSpec{Utility: &outbidv1.Utility{Priority: 3}, Labels: map[string]string{"utility.priority": "80"}},
			Terms{
				Demand: cluster.Demand{Min: 1, Max: 1}, SaveEvery: 30 * time.Second, Grace: 10 * time.Second,
				Utility: &Utility{Kind: Sigmoid, Worth: 3},
			},
		},
		"clients": {
			&outbidv1.SweepSpec{Workload: &outbidv1.SweepSpec_External{External: &outbidv1.External{Timeout: "1h"}}},
			Terms{Demand: cluster.Demand{Min: 1, Max: 1}, ClientTimeout: time.Hour, SaveEvery: 30 * time.Second, Grace: 10 * time.Second},
		},
	} {
		got, err := Of(tc.spec)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(&tc.want, got, protocmp.Transform()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// Four trials of two devices, two of four, one of eight: the sweep uses the same number of devices in every rung.
func TestDemandGrowsWithTheRung(t *testing.T) {
	t.Parallel()
	halving := &outbidv1.SuccessiveHalving{MaxSteps: 400, MinSteps: 100, Eta: 2, Grow: true}
	s := &outbidv1.SweepSpec{
		Resources: &outbidv1.Resources{Devices: &outbidv1.DeviceCount{Min: 2, Max: 2}},
		Tuner:     &outbidv1.Tuner{Kind: &outbidv1.Tuner_SuccessiveHalving{SuccessiveHalving: halving}},
	}
	for _, grow := range []bool{true, false} {
		halving.Grow = grow
		got, err := Of(s)
		if err != nil {
			t.Fatal(err)
		}
		for until, most := range map[int64]int{0: 2, 100: 2, 200: 4, 400: 8} {
			if !grow {
				most = 2
			}
			if d := got.DemandUntil(until); d.Min != 2 || d.Max != most {
				t.Errorf("grow %v: until step %d it wants %d to %d devices, want 2 to %d", grow, until, d.Min, d.Max, most)
			}
		}
	}
}

func TestTermsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	got, err := Of(&outbidv1.SweepSpec{
		Limits: &outbidv1.Limits{WallTime: "soon"}, Checkpoints: &outbidv1.Checkpoints{Every: "often"}, HangTimeout: "0s",
		Resources: &outbidv1.Resources{Memory: "much"}, Workload: &outbidv1.SweepSpec_Program{Program: &outbidv1.Program{Grace: "1y"}},
	})
	for _, field := range []string{"limits.wall_time: ", "checkpoints.every: ", "hang_timeout: ", "resources.memory: ", "program.grace: "} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("the error does not name %s: %v", field, err)
		}
	}
	want := &Terms{Demand: cluster.Demand{Min: 1, Max: 1}, SaveEvery: 30 * time.Second, Grace: 10 * time.Second}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what cannot be read counts as if nothing was said (-want +got):\n%s", diff)
	}
}
