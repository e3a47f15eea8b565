package bidder

import (
	"cmp"
	"slices"
)

// offerIndex is an offer indexed by type, and by the number of free devices on a machine.
type offerIndex struct {
	types []typePool
}

// typePool is the offer of one type.
type typePool struct {
	kind string
	free int
	// slot is the largest number of free devices behind one fast link.
	slot  int
	racks []rackPool
}

// rackPool is the offer of one type in one rack: holes[k] machines have k free devices.
type rackPool struct {
	rack  string
	free  int
	holes []int
}

// newOfferIndex builds the index. If free is not nil, it limits what the sweep may use of each lot.
func newOfferIndex(o *Offer, free []int) *offerIndex {
	m := &offerIndex{}
	for i := range o.Lots {
		l := &o.Lots[i]
		n := l.Free
		if free != nil {
			n = 0
			if i < len(free) {
				n = min(l.Free, free[i])
			}
		}
		if n <= 0 {
			continue
		}
		s := m.pool(l.Type)
		s.free += n
		if len(l.Slots) == 0 {
			s.slot = max(s.slot, n)
		}
		for _, k := range l.Slots {
			s.slot = max(s.slot, min(k, n))
		}
		sh := s.rack(l.Rack)
		sh.free += n
		for len(sh.holes) <= n {
			sh.holes = append(sh.holes, 0)
		}
		sh.holes[n]++
	}
	slices.SortFunc(m.types, func(a, b typePool) int { return cmp.Compare(a.kind, b.kind) })
	for i := range m.types {
		// Small racks first, so that large ones stay whole for large gangs.
		slices.SortFunc(m.types[i].racks, func(a, b rackPool) int {
			return cmp.Or(cmp.Compare(a.free, b.free), cmp.Compare(a.rack, b.rack))
		})
	}
	return m
}

func (x *offerIndex) pool(kind string) *typePool {
	for i := range x.types {
		if x.types[i].kind == kind {
			return &x.types[i]
		}
	}
	x.types = append(x.types, typePool{kind: kind})
	return &x.types[len(x.types)-1]
}

func (p *typePool) rack(rack string) *rackPool {
	for i := range p.racks {
		if p.racks[i].rack == rack {
			return &p.racks[i]
		}
	}
	p.racks = append(p.racks, rackPool{rack: rack})
	return &p.racks[len(p.racks)-1]
}

// copyTo copies the pool to another one, reusing that one's memory.
func (p *typePool) copyTo(to *typePool) {
	racks := to.racks
	*to = *p
	to.racks = racks[:0]
	for i := range p.racks {
		if i < len(racks) {
			holes := append(racks[i].holes[:0], p.racks[i].holes...)
			to.racks = append(to.racks, rackPool{p.racks[i].rack, p.racks[i].free, holes})
		} else {
			to.racks = append(to.racks, rackPool{p.racks[i].rack, p.racks[i].free, slices.Clone(p.racks[i].holes)})
		}
	}
}

// takePieces removes machines pieces of k devices each, all from one rack if together is set, and returns the rack;
// otherwise from any racks. Every piece is cut from the smallest hole that is large enough.
func (p *typePool) takePieces(machines, k int, together bool) (rack string, ok bool) {
	if !together {
		room := 0
		for i := range p.racks {
			room += p.racks[i].room(k)
		}
		if room < machines {
			return "", false
		}
		for range machines {
			p.takeOne(k)
		}
		return "", true
	}
	for i := range p.racks {
		sh := &p.racks[i]
		if sh.room(k) < machines {
			continue
		}
		for range machines {
			sh.cut(k)
		}
		p.free -= machines * k
		return sh.rack, true
	}
	return "", false
}

func (p *typePool) takeOne(k int) {
	for i := range p.racks {
		if p.racks[i].cut(k) {
			p.free -= k
			return
		}
	}
}

// room returns how many pieces of k devices could be cut.
func (r *rackPool) room(k int) int {
	n := 0
	for size := k; size < len(r.holes); size++ {
		n += r.holes[size] * (size / k)
	}
	return n
}

func (r *rackPool) cut(k int) bool {
	for size := k; size < len(r.holes); size++ {
		if r.holes[size] > 0 {
			r.holes[size]--
			r.holes[size-k]++
			r.free -= k
			return true
		}
	}
	return false
}

// pieces returns how many pieces of k devices could be cut, with at most each pieces per machine.
func (p *typePool) pieces(k, each int) int {
	n := 0
	for i := range p.racks {
		for size := k; size < len(p.racks[i].holes); size++ {
			n += p.racks[i].holes[size] * min(size/k, each)
		}
	}
	return n
}
