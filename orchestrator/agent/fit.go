package agent

import (
	"fmt"
)

// maxGangs bounds the kinds of gangs of a row: no sweep runs so many at once.
const maxGangs = 64

// Check says what is wrong with the gangs of a row: whatever the offer cannot hold, or holds and the app may not use. nil if
// they can be granted.
func (o *Offer) Check(s *AppState, gangs []Gangs) error {
	if len(gangs) == 0 || len(gangs) > maxGangs {
		return fmt.Errorf("has %d kinds of gangs; there may be 1 to %d", len(gangs), maxGangs)
	}
	wanted := map[place]int{}
	for _, g := range gangs {
		if err := o.checkGang(s, g); err != nil {
			return err
		}
		own, all := place{g.Type, g.Node, g.Rack}, place{kind: g.Type}
		wanted[all] += g.Size()
		if own != all {
			wanted[own] += g.Size()
		}
		for _, p := range []place{own, all} {
			if free := p.free(o, s); wanted[p] > free {
				return fmt.Errorf("wants %d %s, and %d were offered", wanted[p], p, free)
			}
		}
	}
	return nil
}

// checkGang looks at one kind of gangs. Two parts of a gang may be on one machine, if it has room for both.
func (o *Offer) checkGang(s *AppState, g Gangs) error {
	if g.Count < 1 || g.Machines < 1 || g.Devices < 1 {
		return fmt.Errorf("has %d gangs of %d machines with %d devices each; all must be 1 or more",
			g.Count, g.Machines, g.Devices)
	}
	if g.Node != "" && g.Machines > 1 {
		return fmt.Errorf("wants %d machines that are all called %s", g.Machines, g.Node)
	}
	p := place{g.Type, g.Node, g.Rack}
	room := 0
	for i := range o.Lots {
		if p.holds(&o.Lots[i]) {
			room += o.freeIn(s, i) / g.Devices
		}
	}
	// Compared by division: a plugin may write any number.
	if room/g.Machines < g.Count {
		return fmt.Errorf("wants %d x %d machines with %d %s each, which the offer does not have", g.Count, g.Machines, g.Devices, p)
	}
	return nil
}

// A place is where gangs want to be: any machine with devices of a type, one of a rack, or a named one.
type place struct{ kind, node, rack string }

func (p place) String() string {
	switch {
	case p.node != "":
		return p.kind + " on " + p.node
	case p.rack != "":
		return p.kind + " in rack " + p.rack
	default:
		return p.kind
	}
}

func (p place) holds(l *Lot) bool {
	return l.Type == p.kind && (p.node == "" || l.Node == p.node) && (p.rack == "" || l.Rack == p.rack)
}

func (p place) free(o *Offer, s *AppState) int {
	n := 0
	for i := range o.Lots {
		if p.holds(&o.Lots[i]) {
			n += o.freeIn(s, i)
		}
	}
	return n
}

// freeIn is what an app may use of a lot.
func (o *Offer) freeIn(s *AppState, lot int) int {
	if s.Free == nil {
		return o.Lots[lot].Free
	}
	return s.Free[lot]
}
