package bidder

import (
	"fmt"
)

// maxGangs limits the kinds of gangs of a row. Sweeps never run that many at once.
const maxGangs = 64

// Check returns why the gangs of a row cannot be granted, because the offer does not have them or the sweep may not
// use them, or nil.
func (o *Offer) Check(s *AppState, gangs []Gangs) error {
	if len(gangs) == 0 || len(gangs) > maxGangs {
		return fmt.Errorf("has %d kinds of gangs; there must be 1 to %d", len(gangs), maxGangs)
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

// checkGang checks one kind of gangs. Two parts of a gang may be on one machine if that has room for both.
func (o *Offer) checkGang(s *AppState, g Gangs) error {
	if g.Count < 1 || g.Machines < 1 || g.Devices < 1 {
		return fmt.Errorf("has %d gangs of %d machines with %d devices each; all must be 1 or more",
			g.Count, g.Machines, g.Devices)
	}
	if g.Node != "" && g.Machines > 1 {
		return fmt.Errorf("wants %d machines called %s; a named machine must be the only one", g.Machines, g.Node)
	}
	p := place{g.Type, g.Node, g.Rack}
	room := 0
	for i := range o.Lots {
		if p.holds(&o.Lots[i]) {
			room += o.freeIn(s, i) / g.Devices
		}
	}
	// Division avoids an overflow, because a plugin may send any number.
	if room/g.Machines < g.Count {
		return fmt.Errorf("wants %d x %d machines with %d %s each, which the offer does not have", g.Count, g.Machines, g.Devices, p)
	}
	return nil
}

// place is where gangs have to be: on any machine with devices of a type, in a rack, or on a named machine.
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

// freeIn returns how many devices of a lot a sweep may use.
func (o *Offer) freeIn(s *AppState, lot int) int {
	if s.Free == nil {
		return o.Lots[lot].Free
	}
	return s.Free[lot]
}
