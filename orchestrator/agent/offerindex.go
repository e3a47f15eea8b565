package agent

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

func (m *offerIndex) pool(kind string) *typePool {
	for i := range m.types {
		if m.types[i].kind == kind {
			return &m.types[i]
		}
	}
	m.types = append(m.types, typePool{kind: kind})
	return &m.types[len(m.types)-1]
}

func (s *typePool) rack(rack string) *rackPool {
	for i := range s.racks {
		if s.racks[i].rack == rack {
			return &s.racks[i]
		}
	}
	s.racks = append(s.racks, rackPool{rack: rack})
	return &s.racks[len(s.racks)-1]
}

// copyTo copies the pool to another one, reusing that one's memory.
func (s *typePool) copyTo(to *typePool) {
	racks := to.racks
	*to = *s
	to.racks = racks[:0]
	for i := range s.racks {
		if i < len(racks) {
			holes := append(racks[i].holes[:0], s.racks[i].holes...)
			to.racks = append(to.racks, rackPool{s.racks[i].rack, s.racks[i].free, holes})
		} else {
			to.racks = append(to.racks, rackPool{s.racks[i].rack, s.racks[i].free, slices.Clone(s.racks[i].holes)})
		}
	}
}

// take removes machines pieces of k devices each, all from one rack if together is set, and returns the rack;
// otherwise from any racks. Every piece is cut from the smallest hole that is large enough.
func (s *typePool) take(machines, k int, together bool) (rack string, ok bool) {
	if !together {
		room := 0
		for i := range s.racks {
			room += s.racks[i].room(k)
		}
		if room < machines {
			return "", false
		}
		for range machines {
			s.takeOne(k)
		}
		return "", true
	}
	for i := range s.racks {
		sh := &s.racks[i]
		if sh.room(k) < machines {
			continue
		}
		for range machines {
			sh.cut(k)
		}
		s.free -= machines * k
		return sh.rack, true
	}
	return "", false
}

func (s *typePool) takeOne(k int) {
	for i := range s.racks {
		if s.racks[i].cut(k) {
			s.free -= k
			return
		}
	}
}

// room returns how many pieces of k devices could be cut.
func (sh *rackPool) room(k int) int {
	n := 0
	for size := k; size < len(sh.holes); size++ {
		n += sh.holes[size] * (size / k)
	}
	return n
}

func (sh *rackPool) cut(k int) bool {
	for size := k; size < len(sh.holes); size++ {
		if sh.holes[size] > 0 {
			sh.holes[size]--
			sh.holes[size-k]++
			sh.free -= k
			return true
		}
	}
	return false
}

// pieces returns how many pieces of k devices could be cut, with at most each pieces per machine.
func (s *typePool) pieces(k, each int) int {
	n := 0
	for i := range s.racks {
		for size := k; size < len(s.racks[i].holes); size++ {
			n += s.racks[i].holes[size] * min(size/k, each)
		}
	}
	return n
}
