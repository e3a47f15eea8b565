package cluster_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
)

func drawNodes(t *rapid.T) []cluster.Node {
	var nodes []cluster.Node
	for i := range rapid.IntRange(1, 5).Draw(t, "nodes") {
		kinds := rapid.SliceOfN(rapid.SampledFrom([]string{"v100/0", "v100/1", "k80/0", "k80/1"}), 0, 6).Draw(t, "devices")
		n := inRack(rapid.SampledFrom([]string{"", "r1", "r2"}).Draw(t, "rack"), node(string(rune('a'+i)), kinds...))
		n.Trusted, n.Draining = rapid.Bool().Draw(t, "trusted"), rapid.IntRange(0, 6).Draw(t, "draining") == 0
		n.CPUs = rapid.SampledFrom([]float64{0, 0.3, 4}).Draw(t, "cpus")
		n.Memory = rapid.SampledFrom([]int64{0, 5, 16}).Draw(t, "memory")
		for d := range n.Devices {
			n.Devices[d].Speed = rapid.SampledFrom([]float64{1, 1, 1, 0.5}).Draw(t, "speed")
		}
		nodes = append(nodes, n)
	}
	return nodes
}

func drawDemand(t *rapid.T) cluster.Demand {
	least := rapid.IntRange(1, 4).Draw(t, "min")
	return cluster.Demand{
		Min: least, Max: least + rapid.IntRange(0, 3).Draw(t, "more"),
		Exclude:    rapid.SampledFrom([][]string{nil, nil, {"k80"}}).Draw(t, "exclude"),
		Types:      rapid.SampledFrom([][]string{nil, nil, {"v100"}, {"k80", "v100"}}).Draw(t, "types"),
		CPUs:       rapid.SampledFrom([]float64{0, 0.1, 1}).Draw(t, "cpus"),
		Memory:     rapid.SampledFrom([]int64{0, 2}).Draw(t, "memory"),
		NeedsTrust: rapid.Bool().Draw(t, "trust"), MultiNode: rapid.Bool().Draw(t, "spread"), Mixed: rapid.Bool().Draw(t, "mixed"),
	}
}

// text describes the visible state of a capacity.
func text(c *cluster.Capacity) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d free:", c.FreeDevices())
	for _, kind := range c.Types() {
		fmt.Fprintf(&b, " %s %d", kind, c.FreeOf(kind))
	}
	for i := range c.Nodes() {
		fmt.Fprintf(&b, "\n%d %d", i, c.FreeAt(i, ""))
		for d := range c.Nodes()[i].Devices {
			fmt.Fprintf(&b, " %v", c.IsFree(cluster.Gang{on(i, d)}))
		}
		// The remaining cores and memory are visible in the demands that fit.
		for _, d := range []cluster.Demand{{CPUs: 0.1}, {CPUs: 0.2}, {CPUs: 0.3}, {CPUs: 1}, {CPUs: 3}, {Memory: 2}, {Memory: 4}, {Memory: 9}} {
			fmt.Fprintf(&b, " %v", c.Fits(cluster.Gang{on(i)}, d))
		}
	}
	return b.String()
}

// checkGang fails if a gang violates the demand.
func checkGang(t *rapid.T, c *cluster.Capacity, g cluster.Gang, d cluster.Demand, least, most int) {
	t.Helper()
	nodes := c.Nodes()
	if n := g.Size(); n < least || n > most {
		t.Fatalf("%d devices, want %d to %d", n, least, most)
	}
	if !c.Fits(g, d) {
		t.Fatalf("%v is not free for %+v", g, d)
	}
	if len(g) > 1 && !d.MultiNode {
		t.Fatalf("%v is over nodes", g)
	}
	if kind := cluster.TypeOf(nodes, g); kind == "" && !d.Mixed {
		t.Fatalf("%v is of several types", g)
	}
	seen := map[int]bool{}
	for _, p := range g {
		if seen[p.Node] || len(p.Devices) == 0 || !slices.IsSorted(p.Devices) || len(slices.Compact(slices.Clone(p.Devices))) != len(p.Devices) {
			t.Fatalf("%v is malformed", g)
		}
		seen[p.Node] = true
		for _, i := range p.Devices {
			if !d.Accepts(nodes[p.Node].Devices[i].Type) {
				t.Fatalf("%v has a type that %+v does not accept", g, d)
			}
		}
	}
}

// Every place that is found meets its demand, and Release and Rollback undo all moves exactly.
func TestMovesUndo(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := cluster.NewCapacity(drawNodes(t))
		type held struct {
			gang   cluster.Gang
			demand cluster.Demand
		}
		var all []held
		var marks []int
		var texts []string
		start := text(c)
		for range rapid.IntRange(1, 12).Draw(t, "moves") {
			marks, texts = append(marks, c.Mark()), append(texts, text(c))
			if len(all) > 0 && rapid.IntRange(0, 3).Draw(t, "release") == 0 {
				i := rapid.IntRange(0, len(all)-1).Draw(t, "which")
				c.Release(all[i].gang, all[i].demand)
				all = slices.Delete(all, i, i+1)
				continue
			}
			d := drawDemand(t)
			g, ok := c.Best(d)
			if !ok {
				continue
			}
			checkGang(t, c, g, d, d.Min, d.Max)
			before := c.FreeDevices()
			c.Take(g, d)
			if c.FreeDevices() != before-g.Size() || c.IsFree(g) {
				t.Fatalf("%d free after taking %d of %d", c.FreeDevices(), g.Size(), before)
			}
			all = append(all, held{g, d})
		}
		i := rapid.IntRange(0, len(marks)-1).Draw(t, "mark")
		end := text(c)
		mark := c.Mark()
		for _, h := range all {
			c.Release(h.gang, h.demand)
		}
		if got := text(c); got != start {
			t.Fatalf("after all was released:\n%s\nat first:\n%s", got, start)
		}
		c.Rollback(mark)
		if got := text(c); got != end {
			t.Fatalf("after releasing was rolled back:\n%s\nbefore:\n%s", got, end)
		}
		c.Rollback(marks[i])
		if got := text(c); got != texts[i] {
			t.Fatalf("after rolling back to mark %d:\n%s\nthen:\n%s", i, got, texts[i])
		}
	})
}

// A place is found if and only if one exists, for jobs on one node and over several. Slots gives a consistent result.
func TestPlacesAreFoundWhereThereAre(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		nodes := drawNodes(t)
		c := cluster.NewCapacity(nodes)
		for range rapid.IntRange(0, 4).Draw(t, "held") {
			if d := drawDemand(t); d.Min > 0 {
				if g, ok := c.Best(d); ok {
					c.Take(g, d)
				}
			}
		}
		d := drawDemand(t)
		g, ok := c.Best(d)
		if want := mostFor(c, d); ok != (want >= d.Min) {
			t.Fatalf("placed at %v: %v, though up to %d devices are free for %+v", g, ok, want, d)
		}
		if slots := c.Slots(d, 100); ok && slots == 0 || !ok && slots > 0 && !d.MultiNode {
			t.Fatalf("%d slots, but placed: %v", slots, ok)
		}
		if c.Slots(d, 1) > 1 {
			t.Fatal("more slots than the limit")
		}
		n := rapid.IntRange(d.Min, d.Max).Draw(t, "n")
		kind := rapid.SampledFrom([]string{"", "v100", "k80"}).Draw(t, "kind")
		if g, ok := c.Place(d, n, kind); ok {
			checkGang(t, c, g, d, n, n)
			if kind != "" && cluster.TypeOf(nodes, g) != kind {
				t.Fatalf("%v is not of %s", g, kind)
			}
		}
	})
}

// mostFor returns the size of the largest gang that a demand could have, found by counting.
func mostFor(c *cluster.Capacity, d cluster.Demand) int {
	most, mixed, across := 0, 0, map[string]int{}
	for i, n := range c.Nodes() {
		if n.Draining || d.NeedsTrust && !n.Trusted || !c.Fits(cluster.Gang{on(i)}, d) {
			continue
		}
		for _, kind := range c.Types() {
			if d.Accepts(kind) {
				free := c.FreeAt(i, kind)
				across[kind] += free
				mixed += free
				most = max(most, free)
			}
		}
	}
	for _, free := range across {
		if d.MultiNode {
			most = max(most, free)
		}
	}
	if d.MultiNode && d.Mixed {
		most = max(most, mixed)
	}
	return most
}
