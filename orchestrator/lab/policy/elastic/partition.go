package elastic

import (
	"cmp"
	"math"
	"slices"
)

// member is a job in the division of the devices of one type.
type member struct {
	// held is its present devices, or 0 if it waits. It may get none, or least to most; a running one gets at least
	// least.
	held, least, most int
	weight            float64
}

// programWork bounds the steps of the exact program.
const programWork = 500_000

// divide solves Dorm's program: sizes that use the most of the devices, with a fairness loss of at most loss (or the
// least possible) as a fraction of the devices, and at most the fraction resized of the running members, rounded up,
// changed.
func divide(members []member, devices int, loss, resized float64) []int {
	if devices <= 0 || len(members) == 0 {
		return make([]int, len(members))
	}
	running := 0
	for _, m := range members {
		if m.held > 0 {
			running++
		}
	}
	p := &program{
		members: members, devices: devices, fair: fairShares(members, float64(devices)), loss: loss * float64(devices),
		changes: int(math.Ceil(resized * float64(running))),
	}
	options := 0
	for _, m := range members {
		options += m.most - m.least + 2
	}
	if options*(devices+1)*(p.changes+1) <= programWork {
		if sizes := p.exact(); sizes != nil {
			return sizes
		}
	}
	return p.greedy()
}

// fairShares returns the weighted max-min shares of the devices, none above the member's most: the others get what it
// leaves.
func fairShares(members []member, devices float64) []float64 {
	order := make([]int, len(members))
	weight := 0.0
	for i, m := range members {
		order[i] = i
		weight += m.weight
	}
	slices.SortFunc(order, func(a, b int) int {
		if c := cmp.Compare(float64(members[a].most)/members[a].weight, float64(members[b].most)/members[b].weight); c != 0 {
			return c
		}
		return cmp.Compare(a, b)
	})
	shares := make([]float64, len(members))
	for _, i := range order {
		m := members[i]
		shares[i] = min(float64(m.most), devices*m.weight/weight)
		devices -= shares[i]
		weight -= m.weight
	}
	return shares
}

type program struct {
	members []member
	devices int
	// fair shares and the bound on the loss, in devices.
	fair    []float64
	loss    float64
	changes int
}

// sizesOf calls do with each size that a member may have, and with 1 if that resizes it.
func (p *program) sizesOf(m *member, do func(n, change int)) {
	if m.held == 0 {
		do(0, 0)
	} else if m.held < m.least || m.held > m.most {
		do(m.held, 0)
	}
	for n := m.least; n <= min(m.most, p.devices); n++ {
		change := 1
		if m.held == 0 || n == m.held {
			change = 0
		}
		do(n, change)
	}
}

// exact finds the least loss for every number of devices used and members resized, and returns the division within the
// bounds that uses the most, or nil if nothing fits.
func (p *program) exact() []int {
	width := p.devices + 1
	cells := width * (p.changes + 1)
	least := make([]float64, cells)
	for c := range least {
		least[c] = math.Inf(1)
	}
	least[0] = 0
	taken := make([][]int32, len(p.members))
	for i := range p.members {
		next := make([]float64, cells)
		taken[i] = make([]int32, cells)
		for c := range next {
			next[c] = math.Inf(1)
		}
		p.sizesOf(&p.members[i], func(n, change int) {
			off := math.Abs(p.fair[i] - float64(n))
			for k := change; k <= p.changes; k++ {
				for u := n; u < width; u++ {
					c := k*width + u
					if l := least[c-change*width-n] + off; l < next[c]-1e-9 {
						next[c], taken[i][c] = l, int32(n)
					}
				}
			}
		})
		least = next
	}
	fairest := slices.Min(least)
	if math.IsInf(fairest, 1) {
		return nil
	}
	best, bound := -1, max(p.loss, fairest)+1e-9
	for u := width - 1; u >= 0 && best < 0; u-- {
		for k := range p.changes + 1 {
			if c := k*width + u; least[c] <= bound && (best < 0 || least[c] < least[best]-1e-9) {
				best = c
			}
		}
	}
	return p.traceSizes(best, taken, width)
}

// traceSizes follows the choices that led to a cell.
func (p *program) traceSizes(c int, taken [][]int32, width int) []int {
	sizes := make([]int, len(p.members))
	for i := len(p.members) - 1; i >= 0; i-- {
		n := int(taken[i][c])
		sizes[i] = n
		c -= n
		if held := p.members[i].held; held > 0 && held != n {
			c -= width
		}
	}
	return sizes
}

// greedy starts waiting members at their fair share while there is room, makes those furthest above theirs give up
// devices, and then distributes the rest as far as the loss allows.
func (p *program) greedy() []int {
	sizes := make([]int, len(p.members))
	free, changes := p.devices, p.changes
	for i, m := range p.members {
		sizes[i] = m.held
		free -= m.held
	}
	above := p.aboveFair()
	for i, m := range p.members {
		if m.held > 0 {
			continue
		}
		for free < m.least && len(above) > 0 && changes > 0 {
			rich := above[0]
			above = above[1:]
			to := p.fairSize(rich)
			free += sizes[rich] - to
			sizes[rich] = to
			changes--
		}
		if free >= m.least {
			sizes[i] = min(p.fairSize(i), free)
			free -= sizes[i]
		}
	}
	p.distributeRest(sizes, free, changes)
	return sizes
}

// distributeRest gives free devices to members that have some, as far as the loss and the number of changes allow.
func (p *program) distributeRest(sizes []int, free, changes int) {
	loss := 0.0
	for i, n := range sizes {
		loss += math.Abs(p.fair[i] - float64(n))
	}
	for i, m := range p.members {
		if free == 0 {
			break
		}
		if sizes[i] == 0 || m.held > 0 && (sizes[i] != m.held || changes == 0) {
			continue
		}
		before := sizes[i]
		for free > 0 && sizes[i] < m.most {
			more := math.Abs(p.fair[i]-float64(sizes[i]+1)) - math.Abs(p.fair[i]-float64(sizes[i]))
			if more > 0 && loss+more > p.loss {
				break
			}
			loss += more
			sizes[i]++
			free--
		}
		if m.held > 0 && sizes[i] != before {
			changes--
		}
	}
}

// aboveFair lists the members that hold more than their fair size, the largest excess first.
func (p *program) aboveFair() []int {
	var above []int
	for i, m := range p.members {
		if m.held > p.fairSize(i) {
			above = append(above, i)
		}
	}
	slices.SortStableFunc(above, func(a, b int) int {
		return cmp.Compare(p.members[b].held-p.fairSize(b), p.members[a].held-p.fairSize(a))
	})
	return above
}

// fairSize returns a member's fair share in whole devices, within its limits.
func (p *program) fairSize(i int) int {
	m := p.members[i]
	return min(max(int(math.Round(p.fair[i])), m.least), m.most)
}
