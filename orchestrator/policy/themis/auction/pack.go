package auction

import (
	"cmp"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/bidder"
)

// piece is a number of devices of one type that must be on one node.
type piece struct {
	bidder int
	gangs  bidder.Gangs
}

// repack changes rows until all fit the nodes, which is needed only if the counts do not guarantee it: a bidder whose
// piece does not fit gets the best of its other rows that does.
func (s *solver) repack() bool {
	untouched := true
	for {
		loser := s.misfit(s.best)
		if loser < 0 {
			break
		}
		untouched = false
		old := s.best[loser]
		s.best[loser] = -1
		for r := s.start[loser]; r < s.start[loser+1]; r++ {
			if r == old || s.problem.worth[r] >= s.problem.worth[old] {
				continue
			}
			s.best[loser] = r
			if s.misfit(s.best) < 0 && (!s.grouped || s.isFeasible(s.best)) {
				break
			}
			s.best[loser] = -1
		}
	}
	copy(s.choice, s.best)
	s.worth = s.value()
	return untouched
}

// isFeasible reports whether a choice satisfies all constraints.
func (s *solver) isFeasible(choice []int) bool {
	copy(s.choice, choice)
	s.recount()
	return !slices.ContainsFunc(s.roomLeft, func(left int32) bool { return left < 0 })
}

// misfit packs the pieces of a choice on the nodes, the most restricted and the largest first, and returns the first
// bidder with a piece that does not fit, or -1.
func (s *solver) misfit(choice []int) int {
	var pieces []piece
	for b, row := range choice {
		if row >= 0 {
			for _, g := range s.gangs[row] {
				pieces = append(pieces, piece{b, g})
			}
		}
	}
	bound := func(g bidder.Gangs) int {
		switch {
		case g.Node != "":
			return 0
		case g.Rack != "":
			return 1
		}
		return 2
	}
	slices.SortStableFunc(pieces, func(a, b piece) int {
		return cmp.Or(cmp.Compare(bound(a.gangs), bound(b.gangs)), cmp.Compare(b.gangs.Devices, a.gangs.Devices))
	})
	free := make([]int, len(s.lots))
	for i := range s.lots {
		free[i] = s.lots[i].Free
	}
	for _, p := range pieces {
		for range p.gangs.Count * p.gangs.Machines {
			at := -1
			for i := range s.lots {
				l := &s.lots[i]
				if l.Type == p.gangs.Type && free[i] >= p.gangs.Devices && (at < 0 || free[i] < free[at]) &&
					(p.gangs.Rack == "" || l.Rack == p.gangs.Rack) && (p.gangs.Node == "" || l.Node == p.gangs.Node) {
					at = i
				}
			}
			if at < 0 {
				return p.bidder
			}
			free[at] -= p.gangs.Devices
		}
	}
	return -1
}
