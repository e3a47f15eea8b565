package cluster_test

import (
	"math"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
)

func single(kind string, memory int64, pcie int) cluster.Node {
	return cluster.Node{Name: kind, Devices: []cluster.Device{{Type: kind, Memory: memory, PCIe: pcie}}}
}

// The paper's five-node clusters: V100, 2 K80, 2 T4; Titan RTX, T4, T400, RTX 3090, RTX A2000. An A2000 has little
// memory, which improves its estimate.
func TestEstimatesOrderThePapersNodes(t *testing.T) {
	t.Parallel()
	for name, order := range map[string][]string{
		"AWS": {"v100", "t4", "k80"},
		"lab": {"rtx3090", "a2000", "titanrtx", "t4", "t400"},
		"new": {"b200", "h100", "a100", "v100", "p100"},
	} {
		var nodes []cluster.Node
		for _, kind := range order {
			nodes = append(nodes, single(kind, 0, 0), single("cpu", 0, 0))
		}
		got := cluster.Estimates(nodes)
		if got[order[0]] != 1 || len(got) != len(order) {
			t.Errorf("%s: %v", name, got)
		}
		for i, kind := range order[1:] {
			if !(got[kind] > 0 && got[kind] < got[order[i]]) {
				t.Errorf("%s: %s is not slower than %s: %v", name, kind, order[i], got)
			}
		}
	}
}

// The driver's values override the table, and devices of one type are averaged.
func TestEstimatesTakeWhatTheDriverTells(t *testing.T) {
	t.Parallel()
	of := func(nodes ...cluster.Node) float64 {
		return cluster.Estimates(append(nodes, single("h100", 0, 0)))["v100"]
	}
	table, large, slow := of(single("v100", 0, 0)), of(single("v100", 64<<30, 0)), of(single("v100", 0, 2))
	if math.Abs(large-table/2) > 1e-12 || math.Abs(slow-.9*table) > 1e-12 {
		t.Errorf("by the table %v, with four times the memory %v, one generation back %v", table, large, slow)
	}
	if both := of(single("v100", 0, 0), single("v100", 64<<30, 0)); math.Abs(both-.75*table) > 1e-12 {
		t.Errorf("of both %v", both)
	}
	if none := cluster.Estimates([]cluster.Node{single("cpu", 0, 0)}); len(none) != 0 {
		t.Errorf("of CPUs %v", none)
	}
}

// Missing measurements are estimated in proportion to existing ones.
func TestRatesThatWereNotMeasured(t *testing.T) {
	t.Parallel()
	guess := map[string]float64{"h100": 1, "v100": .25}
	for name, tc := range map[string]struct {
		speeds *cluster.Speeds
		kind   string
		want   float64
	}{
		"nothing was":                 {&cluster.Speeds{Estimated: guess}, "v100", .25},
		"nothing was, two of them":    {&cluster.Speeds{Estimated: guess}, "h100", 1},
		"another type was":            {&cluster.Speeds{Measured: []cluster.Speed{{Type: "h100", Devices: 1, Rate: 80}}, Estimated: guess}, "v100", 20},
		"this one was":                {&cluster.Speeds{Measured: []cluster.Speed{{Type: "v100", Devices: 1, Rate: 7}}, Estimated: guess}, "v100", 7},
		"no estimate of this":         {&cluster.Speeds{Measured: []cluster.Speed{{Type: "h100", Devices: 1, Rate: 80}}, Estimated: guess}, "cpu", 80},
		"no estimate of this nor any": {&cluster.Speeds{Estimated: guess}, "cpu", 1},
		"of every type":               {&cluster.Speeds{Measured: []cluster.Speed{{Devices: 1, Rate: 5}}, Estimated: guess}, "v100", 5},
		"the first has no estimate": {
			&cluster.Speeds{Measured: []cluster.Speed{{Type: "cpu", Devices: 1, Rate: 1}, {Type: "h100", Devices: 1, Rate: 80}}, Estimated: guess},
			"v100", 20,
		},
	} {
		if got := tc.speeds.Rate(tc.kind, 1, cluster.SameMachine); math.Abs(got-tc.want) > 1e-12 {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}
