package cluster_test

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
)

// occupied returns a capacity that is partly held by jobs.
func occupied(t *rapid.T) *cluster.Capacity {
	nodes := drawNodes(t)
	for i := range nodes {
		if n := len(nodes[i].Devices); n > 1 && rapid.Bool().Draw(t, "links") {
			a := rapid.IntRange(0, n-2).Draw(t, "link")
			nodes[i].Links = []cluster.Link{{A: a, B: a + 1, Rank: 1}}
			for d := range nodes[i].Devices { // links take precedence over speeds
				nodes[i].Devices[d].Speed = 1
			}
		}
	}
	c := cluster.NewCapacity(nodes)
	for range rapid.IntRange(0, 3).Draw(t, "jobs") {
		if d := drawDemand(t); d.Max > 0 {
			if g, ok := c.Best(d); ok {
				c.Take(g, d)
			}
		}
	}
	return c
}

// fastest returns the speeds of a node's free devices of a type, the fastest first.
func fastest(c *cluster.Capacity, node int, kind string) []float64 {
	var speeds []float64
	for i, dev := range c.Nodes()[node].Devices {
		if dev.Type == kind && c.IsFree(cluster.Gang{on(node, i)}) {
			speeds = append(speeds, dev.Speed)
		}
	}
	slices.Sort(speeds)
	slices.Reverse(speeds)
	return speeds
}

// Of all nodes and types that a job may run on, it gets those whose slowest device is the fastest, then the most
// devices, then the node with the fewest remaining devices, then the first node.
func TestBestIsTheBestThereIs(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c, d := occupied(t), drawDemand(t)
		d.MultiNode = false
		type choice struct {
			speed      float64
			take, left int
			node       int
			kind       string
		}
		var all []choice
		for i := range c.Nodes() {
			for _, kind := range c.Types() {
				speeds := fastest(c, i, kind)
				if len(speeds) < d.Min || !d.Accepts(kind) || !c.Admits(i, d) {
					continue
				}
				take := min(d.Max, len(speeds))
				all = append(all, choice{speeds[take-1], take, len(speeds) - take, i, kind})
			}
		}
		slices.SortStableFunc(all, func(a, b choice) int {
			switch {
			case a.speed > b.speed, a.speed == b.speed && a.take > b.take, a.speed == b.speed && a.take == b.take && a.left < b.left:
				return -1
			case a.speed == b.speed && a.take == b.take && a.left == b.left:
				return 0
			}
			return 1
		})
		g, ok := c.Best(d)
		if ok != (len(all) > 0) {
			t.Fatalf("placed at %v: %t, though there are %v", g, ok, all)
		}
		if !ok {
			return
		}
		checkGang(t, c, g, d, d.Min, d.Max)
		slowest := math.Inf(1)
		for _, i := range g[0].Devices {
			slowest = min(slowest, c.Nodes()[g[0].Node].Devices[i].Speed)
		}
		if want := all[0]; g[0].Node != want.node || g.Size() != want.take || cluster.TypeOf(c.Nodes(), g) != want.kind || slowest != want.speed {
			t.Fatalf("%v at speed %g, want %v", g, slowest, want)
		}
	})
}

// A node has room for a job if one accepted type has enough free devices there.
func TestPlaceAtFindsRoom(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c, d := occupied(t), drawDemand(t)
		n, kind := rapid.IntRange(1, 4).Draw(t, "n"), rapid.SampledFrom([]string{"", "v100", "k80"}).Draw(t, "kind")
		for i := range c.Nodes() {
			want := false
			for _, name := range c.Types() {
				want = want || (kind == "" || kind == name) && d.Accepts(name) && c.FreeAt(i, name) >= n && c.Admits(i, d)
			}
			g, ok := c.PlaceAt(i, d, n, kind)
			if ok != want {
				t.Fatalf("%d of %q on node %d at %v: %t, want %t", n, kind, i, g, ok, want)
			}
			if ok {
				checkGang(t, c, g, d, n, n)
				if g[0].Node != i || kind != "" && cluster.TypeOf(c.Nodes(), g) != kind {
					t.Fatalf("%d of %q on node %d: placed at %v", n, kind, i, g)
				}
			}
		}
	})
}

// The number of slots equals the number of jobs of the least size that can be placed one after another.
func TestSlotsAreJobsThatCanBePlaced(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c, d := occupied(t), drawDemand(t)
		if d.MultiNode = d.MultiNode && d.CPUs == 0 && d.Memory == 0; d.MultiNode {
			// Without cores and memory, only devices count.
			want, all := 0, 0
			for _, kind := range c.Types() {
				free := 0
				for i := range c.Nodes() {
					if d.Accepts(kind) && c.Admits(i, d) {
						free += c.FreeAt(i, kind)
					}
				}
				want, all = want+free/d.Min, all+free
			}
			if d.Mixed {
				want = all / d.Min
			}
			if got := c.Slots(d, 100); got != want {
				t.Fatalf("%d slots, want %d", got, want)
			}
			return
		}
		want := c.Slots(d, 100)
		for limit := range want + 2 {
			if got := c.Slots(d, limit); got != min(want, limit) {
				t.Fatalf("%d slots of at most %d, want %d", got, limit, min(want, limit))
			}
		}
		placed := 0
		for {
			g, ok := c.Place(d, d.Min, "")
			if !ok {
				break
			}
			c.Take(g, d)
			placed++
		}
		if placed != want {
			t.Fatalf("%d jobs were placed, and there were %d slots", placed, want)
		}
	})
}

func TestANodesCoresAndMemoryAreShared(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		cpus   float64
		memory int64
		demand cluster.Demand
		want   int
	}{
		"nothing is asked for":      {4, 16, cluster.Demand{}, 5},
		"as many as cores":          {4, 16, cluster.Demand{CPUs: 2}, 2},
		"all of its cores":          {4, 16, cluster.Demand{CPUs: 4}, 1},
		"more than it has":          {4, 16, cluster.Demand{CPUs: 4.5}, 0},
		"parts of a core":           {0.3, 16, cluster.Demand{CPUs: 0.1}, 3},
		"as many as its memory has": {4, 16, cluster.Demand{Memory: 5}, 3},
		"all of its memory":         {4, 16, cluster.Demand{Memory: 16}, 1},
		"more memory than it has":   {4, 16, cluster.Demand{Memory: 17}, 0},
		"the scarcer of both":       {4, 16, cluster.Demand{CPUs: 1, Memory: 8}, 2},
		"nobody knows its cores":    {0, 16, cluster.Demand{CPUs: 2, Memory: 4}, 4},
		"nobody knows its memory":   {4, 0, cluster.Demand{CPUs: 1, Memory: 40}, 4},
	} {
		n := node("a", "cpu", "cpu", "cpu", "cpu", "cpu")
		n.CPUs, n.Memory = tc.cpus, tc.memory
		tc.demand.Min, tc.demand.Max = 1, 1
		c := capacity([]cluster.Node{n})
		if got := c.Slots(tc.demand, 100); got != tc.want {
			t.Errorf("%s: %d slots, want %d", name, got, tc.want)
		}
		placed := 0
		for g, ok := c.Best(tc.demand); ok; g, ok = c.Best(tc.demand) {
			c.Take(g, tc.demand)
			placed++
		}
		if placed != tc.want {
			t.Errorf("%s: %d were placed, want %d", name, placed, tc.want)
		}
		if why := cluster.Impossible([]cluster.Node{n}, tc.demand); (why == "") != (tc.want > 0) {
			t.Errorf("%s: impossible, as %q", name, why)
		}
	}
}

func TestFreeSlots(t *testing.T) {
	t.Parallel()
	c := capacity([]cluster.Node{node("a"), node("b", "v100/0", "v100/2", "k80/2", "v100/2", "v100/-1", "v100/99", "v100/70")}, on(1, 3))
	for kind, want := range map[string][]int{"": {2, 2, 2}, "v100": {2, 1, 2}, "k80": {1}, "h100": nil} {
		// Negative slots count as the first one, and slots beyond the last counted one as the last.
		if got := c.FreeSlots(1, kind, []int{7}); !slices.Equal(got, append([]int{7}, want...)) {
			t.Errorf("slots of %q: %v, want 7 and %v", kind, got, want)
		}
	}
	if got := c.FreeSlots(0, "", nil); len(got) != 0 {
		t.Errorf("slots of a node without devices: %v", got)
	}
}

// A job over nodes takes the rack with the least sufficient room, or several racks if no rack has enough.
func TestTheTightestRack(t *testing.T) {
	t.Parallel()
	nodes := []cluster.Node{
		inRack("r1", node("a", "v100", "v100")), inRack("r1", node("b", "v100", "v100")),
		inRack("r2", node("c", "v100", "v100")), inRack("r2", node("d", "v100")),
		inRack("r3", node("e", "v100")), inRack("r3", node("f", "v100")),
	}
	for n, want := range map[int]cluster.Gang{
		3: {on(2, 0, 1), on(3, 0)}, 4: {on(0, 0, 1), on(1, 0, 1)}, 5: {on(0, 0, 1), on(1, 0, 1), on(2, 0)},
	} {
		d := cluster.Demand{Min: n, Max: n, MultiNode: true}
		if g, ok := capacity(nodes).Place(d, n, ""); !ok || !g.Equal(want) {
			t.Errorf("%d devices at %v, want %v", n, g, want)
		}
	}
}

func TestPlainDemands(t *testing.T) {
	t.Parallel()
	for _, d := range []cluster.Demand{{}, {Min: 1, Max: 4, MultiNode: true, Mixed: true}} {
		if !d.Plain() {
			t.Errorf("%+v is not plain", d)
		}
	}
	for _, d := range []cluster.Demand{{Types: []string{"a"}}, {Exclude: []string{"a"}}, {CPUs: 1}, {Memory: 1}, {NeedsTrust: true}} {
		if d.Plain() {
			t.Errorf("%+v is plain", d)
		}
	}
}

func TestGangsAreEqual(t *testing.T) {
	t.Parallel()
	g := cluster.Gang{on(0, 1, 2), on(1, 3)}
	for _, tc := range []struct {
		other cluster.Gang
		want  bool
	}{
		{cluster.Gang{on(0, 1, 2), on(1, 3)}, true},
		{cluster.Gang{on(0, 1, 2), on(2, 3)}, false},
		{cluster.Gang{on(0, 1, 2), on(1, 4)}, false},
		{cluster.Gang{on(0, 1, 2)}, false},
		{cluster.Gang{on(2, 1, 2), on(3, 3)}, false},
	} {
		if got := g.Equal(tc.other); got != tc.want {
			t.Errorf("%v and %v are equal: %t", g, tc.other, got)
		}
	}
}

// A speed measured at a far locality is higher at a close one. Unknown values have their defaults.
func TestRatesAtOtherLocalities(t *testing.T) {
	t.Parallel()
	apart := &cluster.Speeds{Measured: []cluster.Speed{{Type: "v100", Devices: 4, Locality: cluster.AcrossRacks, Rate: 12}}, S: [...]float64{0, 0, 2, 4}}
	for _, tc := range []struct {
		n    int
		at   cluster.Locality
		want float64
	}{{4, cluster.SameMachine, 48}, {4, cluster.SameRack, 24}, {8, cluster.SameRack, 48}, {4, cluster.AcrossRacks, 12}, {2, cluster.SameSlot, 24}} {
		if got := apart.Rate("v100", tc.n, tc.at); math.Abs(got-tc.want) > 1e-9 {
			t.Errorf("%d devices on %v: %g steps/s, want %g", tc.n, tc.at, got, tc.want)
		}
	}
	unsaid := node("a", "v100", "v100")
	unsaid.Devices[0].Speed = 0 // full speed
	if got := cluster.RateOf([]cluster.Node{unsaid}, cluster.Gang{on(0, 0, 1)}, nil); got != 2 {
		t.Errorf("two devices at %g steps/s, want 2", got)
	}
	if _, ok := capacity([]cluster.Node{unsaid}).Best(cluster.Demand{Min: 2, Max: 2}); !ok {
		t.Error("a device whose speed nobody said was not placed")
	}
}
