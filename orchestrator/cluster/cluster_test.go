package cluster_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
)

// node returns a node with devices given as "type" or "type/slot".
func node(name string, devices ...string) cluster.Node {
	n := cluster.Node{Name: name, Trusted: true}
	for i, d := range devices {
		kind, slot, _ := strings.Cut(d, "/")
		number, _ := strconv.Atoi(slot) // 0 without a slot
		n.Devices = append(n.Devices, cluster.Device{Index: i, Type: kind, Speed: 1, Slot: number})
	}
	return n
}

func inRack(rack string, n cluster.Node) cluster.Node {
	n.Rack = rack
	return n
}

// capacity returns the capacity of nodes without the devices that are held.
func capacity(nodes []cluster.Node, held ...cluster.Place) *cluster.Capacity {
	c := cluster.NewCapacity(nodes)
	for _, p := range held {
		c.Take(cluster.Gang{p}, cluster.Demand{})
	}
	return c
}

func on(node int, devices ...int) cluster.Place { return cluster.Place{Node: node, Devices: devices} }

func TestBest(t *testing.T) {
	t.Parallel()
	slow := node("a", "v100", "v100")
	for i := range slow.Devices {
		slow.Devices[i].Speed = 0.5
	}
	untrusted, draining := node("a", "v100"), node("a", "v100")
	untrusted.Trusted, draining.Draining = false, true
	one := cluster.Demand{Min: 1, Max: 1}
	for name, tc := range map[string]struct {
		nodes  []cluster.Node
		held   []cluster.Place
		demand cluster.Demand
		want   cluster.Gang
	}{
		"the tightest fit, so that large holes stay": {
			nodes: []cluster.Node{node("a", "v100", "v100", "v100"), node("b", "v100", "v100")}, held: []cluster.Place{on(1, 1)},
			demand: one, want: cluster.Gang{on(1, 0)},
		},
		"the first by name of equals": {
			nodes: []cluster.Node{node("a", "v100"), node("b", "v100")}, demand: one, want: cluster.Gang{on(0, 0)},
		},
		"speed before tightness": {
			nodes: []cluster.Node{slow, node("b", "v100", "v100", "v100")}, demand: one, want: cluster.Gang{on(1, 0)},
		},
		"a gang on one node and of one type": {
			nodes:  []cluster.Node{node("a", "v100", "k80", "k80"), node("b", "v100")},
			demand: cluster.Demand{Min: 2, Max: 2}, want: cluster.Gang{on(0, 1, 2)},
		},
		"no gang across nodes unless the demand says so": {
			nodes: []cluster.Node{node("a", "v100"), node("b", "v100")}, demand: cluster.Demand{Min: 2, Max: 2},
		},
		"a gang across nodes": {
			nodes:  []cluster.Node{node("a", "v100"), node("b", "v100")},
			demand: cluster.Demand{Min: 2, Max: 2, MultiNode: true}, want: cluster.Gang{on(0, 0), on(1, 0)},
		},
		"one node rather than two": {
			nodes:  []cluster.Node{node("a", "v100"), node("b", "v100"), node("c", "v100", "v100", "v100")},
			demand: cluster.Demand{Min: 2, Max: 2, MultiNode: true}, want: cluster.Gang{on(2, 0, 1)},
		},
		"one rack rather than two": {
			nodes: []cluster.Node{
				inRack("r1", node("a", "v100", "v100")), inRack("r2", node("b", "v100")), inRack("r2", node("c", "v100", "v100")),
			},
			demand: cluster.Demand{Min: 3, Max: 3, MultiNode: true}, want: cluster.Gang{on(2, 0, 1), on(1, 0)},
		},
		"the fewest nodes over racks": {
			nodes: []cluster.Node{
				inRack("r1", node("a", "v100")), inRack("r2", node("b", "v100", "v100")), inRack("r3", node("c", "v100", "v100")),
			},
			demand: cluster.Demand{Min: 4, Max: 4, MultiNode: true}, want: cluster.Gang{on(1, 0, 1), on(2, 0, 1)},
		},
		"several types only if mixed": {
			nodes:  []cluster.Node{node("a", "v100"), node("b", "k80")},
			demand: cluster.Demand{Min: 2, Max: 2, MultiNode: true},
		},
		"several types": {
			nodes:  []cluster.Node{node("a", "v100"), node("b", "k80")},
			demand: cluster.Demand{Min: 2, Max: 2, MultiNode: true, Mixed: true}, want: cluster.Gang{on(0, 0), on(1, 0)},
		},
		"as many as are free up to the most": {
			nodes: []cluster.Node{node("a", "v100", "v100", "v100", "v100")}, held: []cluster.Place{on(0, 1)},
			demand: cluster.Demand{Min: 1, Max: 2}, want: cluster.Gang{on(0, 0, 2)},
		},
		"more devices before a tighter fit": {
			nodes:  []cluster.Node{node("a", "v100"), node("b", "v100", "v100", "v100")},
			demand: cluster.Demand{Min: 1, Max: 2}, want: cluster.Gang{on(1, 0, 1)},
		},
		"wanted and excluded types": {
			nodes:  []cluster.Node{node("a", "k80"), node("b", "v100")},
			demand: cluster.Demand{Min: 1, Max: 1, Types: []string{"k80", "v100"}, Exclude: []string{"k80"}},
			want:   cluster.Gang{on(1, 0)},
		},
		"functions only where they are trusted": {
			nodes:  []cluster.Node{untrusted, node("b", "v100", "v100")},
			demand: cluster.Demand{Min: 1, Max: 1, NeedsTrust: true}, want: cluster.Gang{on(1, 0)},
		},
		"not on a draining node": {nodes: []cluster.Node{draining}, demand: one},
		"the slot that fits": {
			nodes:  []cluster.Node{node("a", "v100/0", "v100/1", "v100/1", "v100/2", "v100/2", "v100/2")},
			demand: cluster.Demand{Min: 2, Max: 2}, want: cluster.Gang{on(0, 1, 2)},
		},
		"one device from the smallest hole": {
			nodes: []cluster.Node{node("a", "v100/0", "v100/0", "v100/1")}, demand: one, want: cluster.Gang{on(0, 2)},
		},
		"the fullest slots if none is enough": {
			nodes:  []cluster.Node{node("a", "v100/0", "v100/1", "v100/1", "v100/2", "v100/2")},
			demand: cluster.Demand{Min: 4, Max: 4}, want: cluster.Gang{on(0, 1, 2, 3, 4)},
		},
	} {
		got, ok := capacity(tc.nodes, tc.held...).Best(tc.demand)
		if diff := cmp.Diff(tc.want, got); diff != "" || ok != (tc.want != nil) {
			t.Errorf("%s: placed: %v (-want +got)\n%s", name, ok, diff)
		}
	}
}

func TestPlaceAndPlaceAtObeyNumberAndType(t *testing.T) {
	t.Parallel()
	nodes := []cluster.Node{node("a", "k80", "v100"), node("b", "v100", "v100", "k80")}
	c := capacity(nodes)
	d := cluster.Demand{Min: 1, Max: 4, MultiNode: true}
	if g, ok := c.Place(d, 3, "v100"); !ok || !g.Equal(cluster.Gang{on(1, 0, 1), on(0, 1)}) {
		t.Errorf("three v100s at %v, %v", g, ok)
	}
	if g, ok := c.Place(d, 4, "v100"); ok {
		t.Errorf("four v100s at %v, there are three", g)
	}
	if g, ok := c.PlaceAt(1, d, 1, "k80"); !ok || !g.Equal(cluster.Gang{on(1, 2)}) {
		t.Errorf("a k80 of b at %v, %v", g, ok)
	}
	if g, ok := c.PlaceAt(0, d, 2, ""); ok {
		t.Errorf("two of one type on a at %v, there are none", g)
	}
	c.Take(cluster.Gang{on(1, 0, 1)}, d)
	if c.FreeOf("v100") != 1 || c.FreeOf("h100") != 0 || c.FreeAt(1, "") != 1 || c.FreeAt(1, "v100") != 0 || c.FreeDevices() != 3 {
		t.Errorf("counts are off: %d v100s, %d on b", c.FreeOf("v100"), c.FreeAt(1, ""))
	}
	if got := c.Types(); !slices.Equal(got, []string{"k80", "v100"}) {
		t.Errorf("types %v", got)
	}
}

func TestCoresAndMemoryBoundPlacement(t *testing.T) {
	t.Parallel()
	n := node("a", "cpu", "cpu", "cpu", "cpu")
	n.CPUs, n.Memory = 8, 16<<30
	c := capacity([]cluster.Node{n})
	c.Take(cluster.Gang{on(0, 3)}, cluster.Demand{CPUs: 2, Memory: 4 << 30})
	d := cluster.Demand{Min: 1, Max: 1, CPUs: 2, Memory: 5 << 30}
	if got := c.Slots(d, 10); got != 2 {
		t.Fatalf("%d slots, memory leaves room for 2", got)
	}
	for range 2 {
		g, ok := c.Best(d)
		if !ok {
			t.Fatal("no place where there was a slot")
		}
		c.Take(g, d)
	}
	if g, ok := c.Best(d); ok {
		t.Fatalf("a third was placed at %+v", g)
	}
	if c.Fits(cluster.Gang{on(0, 2)}, d) || !c.IsFree(cluster.Gang{on(0, 2)}) {
		t.Fatal("the device is free and its memory is not")
	}
}

// Tenths do not add up in binary: 0.3 - 0.1 - 0.1 is less than 0.1.
func TestPartsOfACoreAddUp(t *testing.T) {
	t.Parallel()
	n := node("a", "cpu", "cpu", "cpu")
	n.CPUs = 0.3
	c := capacity([]cluster.Node{n})
	d := cluster.Demand{Min: 1, Max: 1, CPUs: 0.1}
	for i := range 3 {
		g, ok := c.Best(d)
		if !ok {
			t.Fatalf("no room for tenth %d of three", i+1)
		}
		c.Take(g, d)
	}
}

// The greedy growth finds the best linked pair of devices.
func TestGangsGetTheBestLinks(t *testing.T) {
	t.Parallel()
	n := node("a", "v100", "v100", "v100", "v100", "v100", "v100")
	n.Links = []cluster.Link{{0, 1, 2}, {0, 4, 5}, {1, 3, 1}, {3, 5, 9}, {4, 5, 3}, {2, 3, 100}}
	g, ok := capacity([]cluster.Node{n}, on(0, 2)).Best(cluster.Demand{Min: 2, Max: 2})
	if !ok || !g.Equal(cluster.Gang{on(0, 3, 5)}) {
		t.Fatalf("placed at %v, the best free link is between 3 and 5", g)
	}
}

func TestImpossibleSaysWhy(t *testing.T) {
	t.Parallel()
	big, stranger, draining := node("a", "v100", "v100"), node("a", "cpu"), node("a", "v100", "v100")
	big.CPUs, big.Memory = 4, 8<<30
	stranger.Trusted, draining.Draining = false, true
	two := []cluster.Node{node("a", "v100", "v100"), node("b", "v100", "k80")}
	for name, tc := range map[string]struct {
		nodes  []cluster.Node
		demand cluster.Demand
		want   string
	}{
		"nobody there": {nil, cluster.Demand{Min: 1}, "no worker is connected"},
		"too many":     {[]cluster.Node{big}, cluster.Demand{Min: 3, Max: 3}, "no node has 3 devices; the most is 2"},
		"no such type": {[]cluster.Node{big}, cluster.Demand{Min: 1, Types: []string{"h100"}}, "no node has 1 device of type h100; the most is 0"},
		"cores":        {[]cluster.Node{big}, cluster.Demand{Min: 1, CPUs: 8}, "no fitting node has 8 CPU cores"},
		"memory":       {[]cluster.Node{big}, cluster.Demand{Min: 1, Memory: 100 << 40}, "no fitting node has 102400.0 GiB of memory"},
		"trust":        {[]cluster.Node{stranger}, cluster.Demand{Min: 1, NeedsTrust: true}, "have joined this server"},
		"draining":     {[]cluster.Node{draining}, cluster.Demand{Min: 1}, "draining"},
		"fits":         {two, cluster.Demand{Min: 2}, ""},
		"not together": {two, cluster.Demand{Min: 3}, "no node has 3 devices; the most is 2"},
		"over nodes":   {two, cluster.Demand{Min: 3, MultiNode: true}, ""},
		"over nodes, too many of one type": {
			two, cluster.Demand{Min: 4, MultiNode: true}, "the cluster does not have 4 devices; the most is 3",
		},
		"over nodes and types": {two, cluster.Demand{Min: 4, MultiNode: true, Mixed: true}, ""},
		"over nodes and types, too many": {
			two, cluster.Demand{Min: 5, MultiNode: true, Mixed: true}, "the cluster does not have 5 devices; the most is 4",
		},
	} {
		got := cluster.Impossible(tc.nodes, tc.demand)
		if (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
