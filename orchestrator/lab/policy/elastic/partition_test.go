package elastic

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func drawMembers(t *rapid.T, devices int) []member {
	free := devices
	members := make([]member, rapid.IntRange(1, 5).Draw(t, "members"))
	for i := range members {
		m := &members[i]
		m.least = rapid.IntRange(1, 3).Draw(t, "least")
		m.most = m.least + rapid.IntRange(0, 3).Draw(t, "more")
		m.weight = rapid.SampledFrom([]float64{1, 1, 2}).Draw(t, "weight")
		if held := rapid.IntRange(m.least, m.most).Draw(t, "held"); held <= free && rapid.Bool().Draw(t, "runs") {
			m.held = held
			free -= held
		}
	}
	return members
}

// judge returns how many devices the sizes use, how many members they resize, and the fairness loss.
func judge(members []member, sizes []int, fair []float64) (used, changed int, loss float64) {
	for i, n := range sizes {
		used += n
		loss += math.Abs(fair[i] - float64(n))
		if members[i].held > 0 && n != members[i].held {
			changed++
		}
	}
	return used, changed, loss
}

func TestDormsProgramIsExact(t *testing.T) {
	t.Parallel()
	const devices = 8
	rapid.Check(t, func(t *rapid.T) {
		members := drawMembers(t, devices)
		bound := rapid.Float64Range(0, 1).Draw(t, "loss")
		p := &program{members: members, devices: devices, fair: fairShares(members, devices), loss: bound * devices, changes: 1}
		// Over all divisions: the most devices used within the bound, and the least loss.
		most, least, leastAtMost := -1, math.Inf(1), math.Inf(1)
		sizes := make([]int, len(members))
		var try func(i int, judged func())
		try = func(i int, judged func()) {
			if i == len(members) {
				judged()
				return
			}
			p.sizesOf(&members[i], func(n, _ int) {
				sizes[i] = n
				try(i+1, judged)
			})
		}
		allowed := func() (int, float64, bool) {
			used, changed, loss := judge(members, sizes, p.fair)
			return used, loss, used <= devices && changed <= p.changes
		}
		try(0, func() {
			if _, loss, ok := allowed(); ok {
				least = min(least, loss)
			}
		})
		limit := max(p.loss, least) + 1e-6
		try(0, func() {
			used, loss, ok := allowed()
			if ok && loss <= limit && (used > most || used == most && loss < leastAtMost) {
				most, leastAtMost = used, loss
			}
		})
		used, changed, loss := judge(members, p.exact(), p.fair)
		if used != most || changed > p.changes || math.Abs(loss-leastAtMost) > 1e-6 {
			t.Fatalf("uses %d devices at a loss of %g with %d changes, the best %d at %g", used, loss, changed, most, leastAtMost)
		}
		greedy := p.greedy()
		used, changed, _ = judge(members, greedy, p.fair)
		if used > devices || changed > p.changes {
			t.Fatalf("the greedy %v uses %d of %d devices with %d changes", greedy, used, devices, changed)
		}
		for i, n := range greedy {
			if m := members[i]; n > m.most || n < m.least && (n > 0 || m.held > 0) {
				t.Fatalf("the greedy gives %d devices to %+v", n, m)
			}
		}
	})
}

func TestFairSharesAreMaxMin(t *testing.T) {
	t.Parallel()
	got := fairShares([]member{{most: 1, weight: 1}, {most: 9, weight: 1}, {most: 9, weight: 2}}, 10)
	for i, want := range []float64{1, 3, 6} {
		if math.Abs(got[i]-want) > 1e-9 {
			t.Errorf("shares are %v", got)
		}
	}
}
