package cluster_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
)

func node(name string, trusted bool, devices ...string) cluster.Node {
	n := cluster.Node{Name: name, Trusted: trusted}
	for i, d := range devices {
		dev := cluster.Device{Index: i, Type: strings.TrimSuffix(d, "!"), Speed: 1, Holder: cluster.Free}
		if strings.HasSuffix(d, "!") {
			dev.Holder = 0
		}
		n.Devices = append(n.Devices, dev)
	}
	return n
}

func TestPlace(t *testing.T) {
	t.Parallel()
	slow := node("a", true, "v100", "v100")
	for i := range slow.Devices {
		slow.Devices[i].Speed = 0.5
	}
	for name, tc := range map[string]struct {
		nodes  []cluster.Node
		demand cluster.Demand
		want   cluster.Placement
		none   bool
	}{
		"the tightest fit, so that large holes stay": {
			nodes:  []cluster.Node{node("a", true, "v100", "v100", "v100"), node("b", true, "v100", "v100!")},
			demand: cluster.Demand{Min: 1, Max: 1}, want: cluster.Placement{Node: "b", Type: "v100", Devices: []int{0}},
		},
		"the first by name of equals": {
			nodes:  []cluster.Node{node("a", true, "v100"), node("b", true, "v100")},
			demand: cluster.Demand{Min: 1, Max: 1}, want: cluster.Placement{Node: "a", Type: "v100", Devices: []int{0}},
		},
		"speed before tightness": {
			nodes:  []cluster.Node{slow, node("b", true, "v100", "v100", "v100")},
			demand: cluster.Demand{Min: 1, Max: 1}, want: cluster.Placement{Node: "b", Type: "v100", Devices: []int{0}},
		},
		"a gang on one node and of one type": {
			nodes:  []cluster.Node{node("a", true, "v100", "k80", "k80"), node("b", true, "v100")},
			demand: cluster.Demand{Min: 2, Max: 2}, want: cluster.Placement{Node: "a", Type: "k80", Devices: []int{1, 2}},
		},
		"no gang across nodes": {
			nodes:  []cluster.Node{node("a", true, "v100"), node("b", true, "v100")},
			demand: cluster.Demand{Min: 2, Max: 2}, none: true,
		},
		"as many as are free up to the most": {
			nodes:  []cluster.Node{node("a", true, "v100", "v100!", "v100", "v100")},
			demand: cluster.Demand{Min: 1, Max: 2}, want: cluster.Placement{Node: "a", Type: "v100", Devices: []int{0, 2}},
		},
		"wanted and excluded types": {
			nodes:  []cluster.Node{node("a", true, "k80"), node("b", true, "v100")},
			demand: cluster.Demand{Min: 1, Max: 1, Types: []string{"k80", "v100"}, Exclude: []string{"k80"}},
			want:   cluster.Placement{Node: "b", Type: "v100", Devices: []int{0}},
		},
		"functions only where they are trusted": {
			nodes:  []cluster.Node{node("a", false, "v100"), node("b", true, "v100", "v100")},
			demand: cluster.Demand{Min: 1, Max: 1, NeedsTrust: true}, want: cluster.Placement{Node: "b", Type: "v100", Devices: []int{0}},
		},
		"not on a draining node": {
			nodes:  []cluster.Node{{Name: "a", Draining: true, Devices: node("", true, "v100").Devices}},
			demand: cluster.Demand{Min: 1, Max: 1}, none: true,
		},
	} {
		got, ok := cluster.NewCapacity(tc.nodes, nil).Place(tc.demand)
		if ok == tc.none || ok && !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: placed at %+v, %v; want %+v", name, got, ok, tc.want)
		}
	}
}

func TestCoresAndMemoryBoundPlacement(t *testing.T) {
	t.Parallel()
	n := node("a", true, "cpu", "cpu", "cpu", "cpu")
	n.CPUs, n.Memory = 8, 16<<30
	c := cluster.NewCapacity([]cluster.Node{n}, []cluster.Use{{Node: "a", CPUs: 2, Memory: 4 << 30}})
	d := cluster.Demand{Min: 1, Max: 1, CPUs: 2, Memory: 5 << 30}
	if got := c.Slots(d, 10); got != 2 {
		t.Fatalf("%d slots, memory leaves room for 2", got)
	}
	for range 2 {
		p, ok := c.Place(d)
		if !ok {
			t.Fatal("no place where there was a slot")
		}
		c.Take(p, d)
	}
	if p, ok := c.Place(d); ok {
		t.Fatalf("a third was placed at %+v", p)
	}
}

// Of all ways to choose devices, the greedy growth finds one that is linked as well as the best, on an NVLink ring.
func TestGangsGetTheBestLinks(t *testing.T) {
	t.Parallel()
	n := node("a", true, "v100", "v100", "v100!", "v100", "v100", "v100")
	link := func(a, b int) int {
		for _, l := range n.Links {
			if l.A == min(a, b) && l.B == max(a, b) {
				return l.Rank
			}
		}
		return 0
	}
	n.Links = []cluster.Link{{0, 1, 2}, {0, 4, 5}, {1, 3, 1}, {3, 5, 9}, {4, 5, 3}, {2, 3, 100}}
	p, ok := cluster.NewCapacity([]cluster.Node{n}, nil).Place(cluster.Demand{Min: 2, Max: 2})
	if !ok {
		t.Fatal("not placed")
	}
	best := 0
	free := []int{0, 1, 3, 4, 5}
	for _, a := range free {
		for _, b := range free {
			if a < b {
				best = max(best, link(a, b))
			}
		}
	}
	if got := link(p.Devices[0], p.Devices[1]); got != best {
		t.Fatalf("devices %v are linked at %d, the best pair at %d", p.Devices, got, best)
	}
}

func TestImpossibleSaysWhy(t *testing.T) {
	t.Parallel()
	big := node("a", true, "v100", "v100")
	big.CPUs, big.Memory = 4, 8<<30
	for name, tc := range map[string]struct {
		nodes  []cluster.Node
		demand cluster.Demand
		want   string
	}{
		"nobody there":  {nil, cluster.Demand{Min: 1}, "no worker is connected"},
		"too many":      {[]cluster.Node{big}, cluster.Demand{Min: 3, Max: 3}, "no node has 3 devices; the most is 2"},
		"no such type":  {[]cluster.Node{big}, cluster.Demand{Min: 1, Types: []string{"h100"}}, "no node has 1 device of type h100; the most is 0"},
		"cores":         {[]cluster.Node{big}, cluster.Demand{Min: 1, CPUs: 8}, "no fitting node has 8 CPU cores"},
		"memory":        {[]cluster.Node{big}, cluster.Demand{Min: 1, Memory: 100 << 40}, "no fitting node has 102400.0 GiB of memory"},
		"trust":         {[]cluster.Node{node("a", false, "cpu")}, cluster.Demand{Min: 1, NeedsTrust: true}, "join token"},
		"busy only now": {[]cluster.Node{node("a", true, "cpu!")}, cluster.Demand{Min: 1}, ""},
	} {
		got := cluster.Impossible(tc.nodes, tc.demand)
		if (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// What is taken and released again leaves the capacity as it was, and a slot is there exactly if a place is.
func TestTakeAndReleaseAreInverse(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var nodes []cluster.Node
		for i := range rapid.IntRange(1, 4).Draw(t, "nodes") {
			types := rapid.SliceOfN(rapid.SampledFrom([]string{"v100", "k80", "v100!"}), 0, 5).Draw(t, "devices")
			nodes = append(nodes, node(string(rune('a'+i)), true, types...))
		}
		least := rapid.IntRange(1, 3).Draw(t, "min")
		d := cluster.Demand{Min: least, Max: least + rapid.IntRange(0, 2).Draw(t, "more")}
		c := cluster.NewCapacity(nodes, nil)
		free, slots := c.FreeDevices(), c.Slots(d, 100)
		p, ok := c.Place(d)
		if ok != (slots > 0) {
			t.Fatalf("%d slots, but placed: %v", slots, ok)
		}
		if !ok {
			return
		}
		c.Take(p, d)
		if c.FreeDevices() != free-len(p.Devices) {
			t.Fatalf("%d free after taking %d of %d", c.FreeDevices(), len(p.Devices), free)
		}
		if q, ok := c.Place(d); ok && q.Node == p.Node && slices.ContainsFunc(q.Devices, func(x int) bool { return slices.Contains(p.Devices, x) }) {
			t.Fatalf("%v was given twice: %v", p, q)
		}
		c.Release(p, d)
		if again, _ := c.Place(d); !reflect.DeepEqual(again, p) || c.Slots(d, 100) != slots {
			t.Fatalf("after the release %v, before %v", again, p)
		}
	})
}
