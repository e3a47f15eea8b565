package cluster_test

import (
	"math"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
)

func TestSpreadOfAndTypeOf(t *testing.T) {
	t.Parallel()
	nodes := []cluster.Node{
		inRack("r1", node("a", "v100/0", "v100/0", "v100/1", "k80/1")), inRack("r1", node("b", "v100")), inRack("r2", node("c", "v100")),
	}
	for _, tc := range []struct {
		gang   cluster.Gang
		spread cluster.Locality
		kind   string
	}{
		{nil, cluster.SameSlot, ""},
		{cluster.Gang{on(0, 0)}, cluster.SameSlot, "v100"},
		{cluster.Gang{on(0, 0, 1)}, cluster.SameSlot, "v100"},
		{cluster.Gang{on(0, 1, 2)}, cluster.SameMachine, "v100"},
		{cluster.Gang{on(0, 2, 3)}, cluster.SameSlot, ""},
		{cluster.Gang{on(0, 0), on(1, 0)}, cluster.SameRack, "v100"},
		{cluster.Gang{on(0, 3), on(1, 0)}, cluster.SameRack, ""},
		{cluster.Gang{on(0, 0), on(1, 0), on(2, 0)}, cluster.AcrossRacks, "v100"},
	} {
		if got := cluster.LocalityOf(nodes, tc.gang); got != tc.spread {
			t.Errorf("spread of %v is %v, want %v", tc.gang, got, tc.spread)
		}
		if got := cluster.TypeOf(nodes, tc.gang); got != tc.kind {
			t.Errorf("type of %v is %q, want %q", tc.gang, got, tc.kind)
		}
	}
	for s := cluster.SameSlot; s <= cluster.AcrossRacks; s++ {
		if again, ok := cluster.ParseLocality(s.String()); !ok || again != s {
			t.Errorf("%v read as %v, %v", s, again, ok)
		}
	}
	if s, ok := cluster.ParseLocality("planet"); ok {
		t.Errorf("planet read as %v", s)
	}
}

func TestRate(t *testing.T) {
	t.Parallel()
	measured := &cluster.Speeds{Measured: []cluster.Speed{
		{Type: "v100", Devices: 1, Locality: cluster.SameMachine, Rate: 10},
		{Type: "v100", Devices: 4, Locality: cluster.SameMachine, Rate: 32},
		{Type: "v100", Devices: 4, Locality: cluster.AcrossRacks, Rate: 12},
		{Type: "k80", Devices: 1, Locality: cluster.SameMachine, Rate: 2},
	}}
	network := &cluster.Speeds{S: [...]float64{0, 0, 2, 4}}
	anything := &cluster.Speeds{Measured: []cluster.Speed{{Devices: 1, Locality: cluster.SameMachine, Rate: 5}}}
	for name, tc := range map[string]struct {
		s      *cluster.Speeds
		kind   string
		n      int
		spread cluster.Locality
		want   float64
	}{
		"unknown model":                     {nil, "v100", 3, cluster.SameMachine, 3},
		"unknown model across machines":     {nil, "v100", 11, cluster.SameRack, 10},
		"own slowdown":                      {network, "v100", 8, cluster.AcrossRacks, 2},
		"as measured":                       {measured, "v100", 4, cluster.SameMachine, 32},
		"as measured across racks":          {measured, "v100", 4, cluster.AcrossRacks, 12},
		"in proportion to the nearest":      {measured, "v100", 2, cluster.SameMachine, 20},
		"beyond the largest":                {measured, "v100", 8, cluster.SameMachine, 64},
		"the number counts before spread":   {measured, "v100", 1, cluster.AcrossRacks, 10 / 1.3},
		"nearest spread of the same number": {measured, "v100", 4, cluster.SameSlot, 32},
		"another type":                      {measured, "k80", 1, cluster.SameMachine, 2},
		"a type that was not measured":      {measured, "h100", 1, cluster.SameMachine, 10},
		"measured on any type":              {anything, "h100", 2, cluster.SameMachine, 10},
	} {
		if got := tc.s.Rate(tc.kind, tc.n, tc.spread); math.Abs(got-tc.want) > 1e-9 {
			t.Errorf("%s: %g steps/s, want %g", name, got, tc.want)
		}
	}
	if !measured.Knows("k80") || measured.Knows("h100") || !anything.Knows("h100") || (*cluster.Speeds)(nil).Knows("v100") {
		t.Error("Knows is off")
	}
}

// The slowest device of a gang determines the pace.
func TestRateOf(t *testing.T) {
	t.Parallel()
	nodes := []cluster.Node{node("a", "v100", "v100"), node("b", "k80", "v100")}
	nodes[1].Devices[1].Speed = 0.5
	s := &cluster.Speeds{Measured: []cluster.Speed{
		{Type: "v100", Devices: 1, Locality: cluster.SameMachine, Rate: 10}, {Type: "k80", Devices: 1, Locality: cluster.SameMachine, Rate: 2},
	}, S: [...]float64{1, 1, 1, 1}}
	for _, tc := range []struct {
		gang cluster.Gang
		want float64
	}{
		{nil, 0},
		{cluster.Gang{on(0, 0, 1)}, 20},
		{cluster.Gang{on(0, 0), on(1, 0)}, 4},
		{cluster.Gang{on(0, 0), on(1, 1)}, 10},
	} {
		if got := cluster.RateOf(nodes, tc.gang, s); math.Abs(got-tc.want) > 1e-9 {
			t.Errorf("rate on %v is %g, want %g", tc.gang, got, tc.want)
		}
	}
}
