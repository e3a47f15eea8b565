package themis

import (
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// A Division has the apps of a round bid in groups, such as those of a tenant, for a part each of what is on offer. With one group
// everybody bids for everything, which is Themis. Within a group all is as it is among all apps: the worst 1-f of its own are
// asked, and one auction, in which no group can win more than its part, decides about all. What groups leave of their parts goes
// to their own other apps, and then, gang by gang in turns, to whoever can use it.
type Division struct {
	// Groups is how many there are, those that come first first, and Of says which one an app is of.
	Groups int
	Of     func(*policy.App) int
	// All of a group's apps are asked, not the worst 1-f alone.
	All bool
	// Parts are how many devices each group may have, when so many are on offer and the groups keep so many beside them.
	Parts func(offered int, keeps []int) []int
}

// parts are a round's, as far as they are not used up.
type parts struct {
	// of each app, in the order of rank, its group.
	of []int
	// members of each group, by index in the order of rank, the worst off first.
	members [][]int
	// all of a group's apps are asked.
	all bool
	// limits are what the groups may have in the auction, and left what they may still have of that.
	limits, left []int
}

// divide makes the parts of a round; nil if all bid for everything.
func (d *Division) divide(order []ranked, offered int) *parts {
	if d == nil || d.Groups <= 1 {
		return nil
	}
	p := &parts{of: make([]int, len(order)), members: make([][]int, d.Groups), all: d.All}
	keeps := make([]int, d.Groups)
	for i := range order {
		g := d.Of(order[i].app)
		p.of[i], p.members[g] = g, append(p.members[g], i)
		keeps[g] += order[i].keeps
	}
	p.limits = d.Parts(offered, keeps)
	p.left = slices.Clone(p.limits)
	return p
}

// ask picks those that the offer is made to: of each group that has a part all, or its worst, as Themis does of all.
func (p *parts) ask(order []ranked, offer []offered, set *settings) []int {
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

// group of an app by its index in the order of rank, and the limits of an auction.
func (p *parts) group(i int) int {
	if p == nil {
		return 0
	}
	return p.of[i]
}

func (p *parts) bounds() []int {
	if p == nil {
		return nil
	}
	return p.limits
}

// spend takes so many devices off what an app's group may still have.
func (p *parts) spend(i, devices int) {
	if p != nil {
		p.left[p.of[i]] -= devices
	}
}

// own are those of a turn that are of a group.
func (p *parts) own(turn []int, group int) []int {
	var own []int
	for _, i := range turn {
		if p.of[i] == group {
			own = append(own, i)
		}
	}
	return own
}

// within shares out what groups have left of their parts, to their own apps in the order of turns.
func (p *placing) within(turns [][]int) {
	p.bounded = true
	for g := range p.parts.members {
		for _, turn := range turns {
			if p.parts.left[g] > 0 {
				p.share(p.parts.own(turn, g))
			}
		}
	}
	p.bounded = false
}

// lend shares out what is left then: a gang to a group in turns, within it in the order of turns.
func (p *placing) lend(turns [][]int) {
	lines := make([][]int, len(p.parts.members))
	wanting := 0
	for g := range lines {
		for _, turn := range turns {
			lines[g] = append(lines[g], p.parts.own(turn, g)...)
		}
		for _, i := range lines[g] {
			wanting += len(p.shares[i].open)
		}
	}
	if wanting == 0 {
		return
	}
	each := p.onOffer() / wanting
	var none policy.Unplaceable
	for some := true; some; {
		some = false
		for g := range lines {
			for len(lines[g]) > 0 {
				if p.plan.Free().FreeDevices() == 0 && (p.reclaimed || len(p.lost) == 0) {
					return
				}
				i := lines[g][0]
				lines[g] = lines[g][1:]
				if p.takeOne(i, each, &none) {
					lines[g], some = append(lines[g], i), true
					break
				}
			}
		}
	}
}

// may is how many devices of n an app may have: all, or while parts hold no more than its group has left.
func (p *placing) may(i, n int) int {
	if !p.bounded {
		return n
	}
	return min(n, p.parts.left[p.parts.of[i]])
}
