package auction

import (
	"math"
	"slices"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/bidder"
)

func TestGap(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		result Result
		want   float64
	}{
		"half of what was gained": {Result{Nothing: -3, Log: 1, Bound: 3}, .5},
		"exact":                   {Result{Nothing: -3, Log: 1, Bound: 3, Exact: true}, 0},
		"nothing gained":          {Result{Nothing: 1, Log: 1, Bound: 3}, 0},
		"rounding":                {Result{Nothing: -3, Log: 1, Bound: 1 - 1e-12}, 0},
	} {
		if got := tc.result.Gap(); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

func TestSound(t *testing.T) {
	t.Parallel()
	for rho, want := range map[float64]bool{0: false, -1: false, math.Inf(1): false, math.NaN(): false, 1e-300: true, 1e300: true} {
		if Sound(rho) != want {
			t.Errorf("%v: %t", rho, !want)
		}
	}
}

func TestWithin(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		a, b []use
		want bool
	}{
		"nothing":                  {nil, nil, true},
		"less":                     {[]use{{1, 2}}, []use{{1, 3}}, true},
		"the same":                 {[]use{{1, 2}, {4, 1}}, []use{{1, 2}, {4, 1}}, true},
		"more":                     {[]use{{1, 3}}, []use{{1, 2}}, false},
		"less of fewer":            {[]use{{2, 1}}, []use{{1, 5}, {2, 1}, {3, 5}}, true},
		"another constraint":       {[]use{{2, 1}}, []use{{1, 5}, {3, 5}}, false},
		"one beyond the last":      {[]use{{1, 1}, {4, 1}}, []use{{1, 5}, {3, 5}}, false},
		"more of the second alone": {[]use{{1, 1}, {3, 6}}, []use{{1, 5}, {3, 5}}, false},
	} {
		if got := usesAtMost(tc.a, tc.b); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestDivisible(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		sizes []int
		want  bool
	}{{nil, true}, {[]int{3}, true}, {[]int{1, 2, 4}, true}, {[]int{2, 6, 12}, true}, {[]int{2, 3}, false}, {[]int{1, 4, 6}, false}} {
		if divisible(tc.sizes) != tc.want {
			t.Errorf("%v: %t", tc.sizes, !tc.want)
		}
	}
}

func one(devices int) bidder.Gangs {
	return bidder.Gangs{Count: 1, Machines: 1, Devices: devices, Type: "a"}
}

// TestRowsThatAreLeftOut covers rows that are worth nothing or do not fit the offer.
func TestRowsThatAreLeftOut(t *testing.T) {
	t.Parallel()
	lots := []bidder.Lot{{Node: "n", Type: "a", Free: 4}, {Node: "m", Type: "a", Free: 2}}
	many := func(change func(*bidder.Gangs)) []bidder.Gangs {
		g := one(1)
		change(&g)
		return []bidder.Gangs{g}
	}
	for name, tc := range map[string]struct {
		rho   float64
		gangs []bidder.Gangs
		want  bool
	}{
		"good":                     {1, []bidder.Gangs{one(4)}, true},
		"all there is":             {1, []bidder.Gangs{one(4), one(2)}, true},
		"as good as nothing":       {2, []bidder.Gangs{one(1)}, false},
		"worse than nothing":       {3, []bidder.Gangs{one(1)}, false},
		"no rho":                   {0, []bidder.Gangs{one(1)}, false},
		"no gangs":                 {1, nil, false},
		"more than any machine":    {1, []bidder.Gangs{one(5)}, false},
		"more than there is":       {1, many(func(g *bidder.Gangs) { g.Count = 7 }), false},
		"six":                      {1, many(func(g *bidder.Gangs) { g.Count, g.Machines = 2, 3 }), true},
		"another type":             {1, many(func(g *bidder.Gangs) { g.Type = "b" }), false},
		"no count":                 {1, many(func(g *bidder.Gangs) { g.Count = 0 }), false},
		"no machines":              {1, many(func(g *bidder.Gangs) { g.Machines = 0 }), false},
		"no devices":               {1, many(func(g *bidder.Gangs) { g.Devices = 0 }), false},
		"so many that it overruns": {1, many(func(g *bidder.Gangs) { g.Count, g.Machines = 1<<16, 1<<16 }), false},
		"counts beyond reason":     {1, many(func(g *bidder.Gangs) { g.Count = 1<<32 + 1 }), false},
		"machines beyond reason":   {1, many(func(g *bidder.Gangs) { g.Machines = 1<<32 + 1 }), false},
		"on a machine":             {1, many(func(g *bidder.Gangs) { g.Node, g.Devices = "m", 2 }), true},
		"beyond that machine":      {1, many(func(g *bidder.Gangs) { g.Node, g.Devices = "m", 3 }), false},
	} {
		p := compile(lots, []Bidder{{Nothing: 2, Rows: []bidder.Row{{Rho: tc.rho, Gangs: tc.gangs}}}}, nil)
		if got := len(p.worth) == 1; got != tc.want {
			t.Errorf("%s: taken %t", name, got)
		}
		if tc.want && math.Abs(p.worth[0]-math.Log(2)) > 1e-12 {
			t.Errorf("%s: worth %v", name, p.worth[0])
		}
	}
}

// TestPieces checks counts by size: a node of seven devices has room for three pieces of two, and a piece of four uses
// two of them.
func TestPieces(t *testing.T) {
	t.Parallel()
	lots := []bidder.Lot{{Node: "n", Rack: "r", Type: "a", Free: 7}, {Node: "m", Rack: "q", Type: "a", Free: 3}, {Node: "o", Type: "b", Free: 8}}
	bound := one(4)
	bound.Rack = "r"
	rows := []bidder.Row{{Rho: 1, Gangs: []bidder.Gangs{one(2)}}, {Rho: .5, Gangs: []bidder.Gangs{one(4), one(2)}}, {Rho: .4, Gangs: []bidder.Gangs{bound}}}
	c := newCounters(lots, []Bidder{{Nothing: 2, Rows: rows}})
	if want := []int32{4, 1, 3, 1}; !slices.Equal(c.room, want) || c.exact() {
		t.Errorf("room %v, want %v; exact %t", c.room, want, c.exact())
	}
	for i, want := range [][]use{{{0, 1}}, {{0, 3}, {1, 1}}, {{0, 2}, {1, 1}, {2, 2}, {3, 1}}} {
		if got, ok := c.rowUses(rows[i].Gangs); !ok || !slices.Equal(got, want) {
			t.Errorf("row %d uses %v, %t; want %v", i, got, ok, want)
		}
	}
	// Two does not divide three, so single devices are counted too.
	c = newCounters(lots, []Bidder{{Nothing: 2, Rows: []bidder.Row{{Rho: 1, Gangs: []bidder.Gangs{one(2), one(3)}}}}})
	if want := []int32{10, 4, 3}; !slices.Equal(c.room, want) || c.exact() {
		t.Errorf("room %v, want %v; exact %t", c.room, want, c.exact())
	}
}

// TestCountsThatAreEnough: counts suffice if sizes divide each other and rows name no node and no rack.
func TestCountsThatAreEnough(t *testing.T) {
	t.Parallel()
	lots := []bidder.Lot{{Node: "n", Rack: "r", Type: "a", Free: 1 << 21}}
	with := func(change func(*bidder.Gangs)) bidder.Gangs {
		g := one(2)
		change(&g)
		return g
	}
	for name, tc := range map[string]struct {
		gangs bidder.Gangs
		exact bool
	}{
		"a size that divides":       {one(4), true},
		"one that does not":         {one(3), false},
		"a rack":                    {with(func(g *bidder.Gangs) { g.Rack = "r" }), false},
		"a machine":                 {with(func(g *bidder.Gangs) { g.Node = "n" }), false},
		"a size of no pieces":       {with(func(g *bidder.Gangs) { g.Count, g.Devices = 0, 3 }), true},
		"a size of no machines":     {with(func(g *bidder.Gangs) { g.Machines, g.Devices = 0, 3 }), true},
		"no size":                   {with(func(g *bidder.Gangs) { g.Devices = 0 }), true},
		"another type":              {with(func(g *bidder.Gangs) { g.Type, g.Devices = "b", 3 }), true},
		"less than nothing of each": {with(func(g *bidder.Gangs) { g.Count, g.Machines, g.Devices = -1, -1, -3 }), true},
	} {
		rows := []bidder.Row{{Rho: 1, Gangs: []bidder.Gangs{one(2)}}, {Rho: 1, Gangs: []bidder.Gangs{tc.gangs}}}
		if c := newCounters(lots, []Bidder{{Nothing: 2, Rows: rows}}); c.exact() != tc.exact {
			t.Errorf("%s: exact %t", name, c.exact())
		}
	}
	most := one(1)
	most.Count = 1 << 20
	c := newCounters(lots, []Bidder{{Nothing: 2, Rows: []bidder.Row{{Rho: 1, Gangs: []bidder.Gangs{most}}}}})
	if _, ok := c.rowUses([]bidder.Gangs{most}); !ok {
		t.Error("a million pieces are left out")
	}
	most.Count++
	if _, ok := c.rowUses([]bidder.Gangs{most}); ok {
		t.Error("more than a million pieces are taken")
	}
}

// TestMisfit packs restricted pieces first, then large ones, each where the least is left over.
func TestMisfit(t *testing.T) {
	t.Parallel()
	lots := []bidder.Lot{{Node: "n", Rack: "r", Type: "a", Free: 4}, {Node: "m", Rack: "r", Type: "a", Free: 3}, {Node: "o", Rack: "q", Type: "a", Free: 3}}
	on := func(g bidder.Gangs, node, rack string) bidder.Gangs { g.Node, g.Rack = node, rack; return g }
	for name, tc := range map[string]struct {
		bidders [][]bidder.Gangs
		want    int
	}{
		"all that there is":               {[][]bidder.Gangs{{one(3)}, {one(3)}, {one(4)}}, -1},
		"the large one first":             {[][]bidder.Gangs{{one(1)}, {one(4)}}, -1},
		"the small where least is left":   {[][]bidder.Gangs{{one(3)}, {one(4)}, {one(3)}}, -1},
		"one too many":                    {[][]bidder.Gangs{{one(4)}, {one(4)}}, 1},
		"pieces bound to a node go first": {[][]bidder.Gangs{{one(4)}, {on(one(2), "n", "")}}, 0},
		"then pieces bound to a rack":     {[][]bidder.Gangs{{one(3)}, {one(3)}, {on(one(3), "", "q")}, {on(one(3), "m", "")}}, 1},
		"a rack that has no room":         {[][]bidder.Gangs{{on(one(4), "", "q")}}, 0},
		"no rows":                         {[][]bidder.Gangs{nil, nil}, -1},
	} {
		p := &problem{lots: lots}
		var choice []int
		for i, gangs := range tc.bidders {
			p.gangs = append(p.gangs, gangs)
			choice = append(choice, i)
		}
		if got := (&solver{problem: p}).misfit(choice); got != tc.want {
			t.Errorf("%s: bidder %d is left over, want %d", name, got, tc.want)
		}
	}
}

// TestSettle gives a bidder that does not fit the best of its rows that does.
func TestSettle(t *testing.T) {
	t.Parallel()
	p := compile([]bidder.Lot{{Node: "n", Type: "a", Free: 5}, {Node: "m", Type: "a", Free: 5}}, []Bidder{
		{Nothing: 16, Rows: []bidder.Row{{Rho: 1, Gangs: []bidder.Gangs{one(3)}}}},
		{Nothing: 16, Rows: []bidder.Row{{Rho: 1, Gangs: []bidder.Gangs{one(3)}}}},
		{Nothing: 16, Rows: []bidder.Row{{Rho: 2, Gangs: []bidder.Gangs{one(3)}}, {Rho: 4, Gangs: []bidder.Gangs{one(2)}}, {Rho: 8, Gangs: []bidder.Gangs{one(1)}}}},
	}, nil)
	s := newSolver(p)
	copy(s.best, []int{p.start[0], p.start[1], p.start[2]})
	if s.repack() || !slices.Equal(s.best, []int{p.start[0], p.start[1], p.start[2] + 1}) || math.Abs(s.worth-math.Log(16*16*4)) > 1e-9 {
		t.Errorf("rows %v, worth %v", s.best, s.worth)
	}
	if !s.repack() {
		t.Error("a choice that fits was repacked")
	}
}

// TestSlackConstraints drops constraints that every choice satisfies.
func TestSlackConstraints(t *testing.T) {
	t.Parallel()
	lots := []bidder.Lot{{Node: "n", Type: "a", Free: 4}, {Node: "m", Type: "b", Free: 4}}
	other := one(4)
	other.Type = "b"
	rows := []bidder.Row{{Rho: 1, Gangs: []bidder.Gangs{one(3), other}}, {Rho: 1.5, Gangs: []bidder.Gangs{one(2)}}}
	p := compile(lots, []Bidder{{Nothing: 2, Rows: rows}, {Nothing: 2, Rows: rows[1:]}}, nil)
	// Sizes 1, 2 and 3 of type a: 3 + 2 of its 4 devices may be wanted, and at most 1 + 1 of its 2 pieces of two.
	if len(p.room) != 1 || p.room[0] != 4 || !slices.Equal(p.uses, []use{{0, 3}, {0, 2}, {0, 2}}) || !slices.Equal(p.useStart, []int{0, 1, 2, 3}) {
		t.Errorf("room %v, uses %v from %v", p.room, p.uses, p.useStart)
	}
}
