package themis

import (
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// A Division makes the sweeps of a round bid in groups, for example by tenant, each for a part of the offer. With one
// group all sweeps bid for everything, which is Themis. Within a group the rules are Themis's: its worst 1-f are asked.
// One auction, in which no group can win more than its part, decides for all. The rest of a group's part goes to its
// other sweeps first, and then, gang by gang in turns, to any sweep that can use it.
type Division struct {
	// Groups is the number of groups, in order of precedence. Of returns the group of a sweep.
	Groups int
	Of     func(*policy.App) int
	// All means that all sweeps of a group are asked, not only the worst 1-f.
	All bool
	// Parts returns how many devices each group may win, given the number on offer and the devices that each group
	// keeps.
	Parts func(offered int, keeps []int) []int
}

// parts holds the parts of a round that are not yet used up.
type parts struct {
	// groupOf is the group of each sweep in the ranking.
	groupOf []int
	// members lists the sweeps of each group as indexes into the ranking, worst off first.
	members [][]int
	// all means that all sweeps of a group are asked.
	all bool
	// limits holds what the groups may win in the auction, and remaining what is left of that.
	limits, remaining []int
}

// divide returns the parts of a round, or nil if all sweeps bid for everything.
func (d *Division) divide(order []ranked, offered int) *parts {
	if d == nil || d.Groups <= 1 {
		return nil
	}
	p := &parts{groupOf: make([]int, len(order)), members: make([][]int, d.Groups), all: d.All}
	keeps := make([]int, d.Groups)
	for i := range order {
		g := d.Of(order[i].app)
		p.groupOf[i], p.members[g] = g, append(p.members[g], i)
		keeps[g] += order[i].keeps
	}
	p.limits = d.Parts(offered, keeps)
	p.remaining = slices.Clone(p.limits)
	return p
}

// askGroups returns the sweeps that receive the offer: of each group with a part, all sweeps or the worst ones by
// Themis's rule.
func (p *parts) askGroups(order []ranked, offer []offered, set *settings) []int {
	if p == nil {
		return ask(order, offer, set)
	}
	within := *set
	if p.all {
		within.knob = 0
	}
	var asked []int
	for g, members := range p.members {
		if p.limits[g] <= 0 {
			continue
		}
		own := make([]ranked, len(members))
		for k, i := range members {
			own[k] = order[i]
		}
		for _, k := range ask(own, offer, &within) {
			asked = append(asked, members[k])
		}
	}
	slices.Sort(asked)
	return asked
}

// group returns the group of a sweep by its index in the ranking, and bounds the limits of an auction.
func (p *parts) group(i int) int {
	if p == nil {
		return 0
	}
	return p.groupOf[i]
}

func (p *parts) bounds() []int {
	if p == nil {
		return nil
	}
	return p.limits
}

// spend deducts devices from the rest of the part of a sweep's group.
func (p *parts) spend(i, devices int) {
	if p != nil {
		p.remaining[p.groupOf[i]] -= devices
	}
}

// ofGroup returns the entries of a turn that belong to a group.
func (p *parts) ofGroup(turn []int, group int) []int {
	var own []int
	for _, i := range turn {
		if p.groupOf[i] == group {
			own = append(own, i)
		}
	}
	return own
}

// distributeParts distributes what groups have left of their parts to their own sweeps, in the order of turns.
func (al *allocator) distributeParts(turns [][]int) {
	al.bounded = true
	for g := range al.parts.members {
		for _, turn := range turns {
			if al.parts.remaining[g] > 0 {
				al.distribute(al.parts.ofGroup(turn, g))
			}
		}
	}
	al.bounded = false
}

// distributeRest distributes the rest: one gang to each group in turn, within a group in the order of turns.
func (al *allocator) distributeRest(turns [][]int) {
	lines := make([][]int, len(al.parts.members))
	wanting := 0
	for g := range lines {
		for _, turn := range turns {
			lines[g] = append(lines[g], al.parts.ofGroup(turn, g)...)
		}
		for _, i := range lines[g] {
			wanting += len(al.shares[i].open)
		}
	}
	if wanting == 0 {
		return
	}
	each := al.devicesOnOffer() / wanting
	var none policy.Unplaceable
	for some := true; some; {
		some = false
		for g := range lines {
			for len(lines[g]) > 0 {
				if al.plan.Free().FreeDevices() == 0 && (al.reclaimed || len(al.lost) == 0) {
					return
				}
				i := lines[g][0]
				lines[g] = lines[g][1:]
				if al.giveOne(i, each, &none) {
					lines[g], some = append(lines[g], i), true
					break
				}
			}
		}
	}
}

// limitToPart returns how many of n devices a sweep may have: all, or at most what its group has left while parts
// apply.
func (al *allocator) limitToPart(i, n int) int {
	if !al.bounded {
		return n
	}
	return min(n, al.parts.remaining[al.parts.groupOf[i]])
}
