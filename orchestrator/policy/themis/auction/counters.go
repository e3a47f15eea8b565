package auction

import (
	"cmp"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/bidder"
)

// counters are the constraints: for every scope that a row names, and every size of its type, the number of pieces of
// that size that fit.
type counters struct {
	scopes []scope
	room   []int32
	byKey  map[key]int
}

// key identifies a scope: a node, a rack, or everything of a type.
type key struct{ kind, rack, node string }

// scope is a set of lots of one type, with one constraint for each size, from index first on.
type scope struct {
	key   key
	sizes []int
	first int
}

func newCounters(lots []bidder.Lot, bidders []Bidder) *counters {
	c := &counters{byKey: map[key]int{}}
	sizes := map[string][]int{}
	for i := range bidders {
		for _, row := range bidders[i].Rows {
			for _, g := range row.Gangs {
				if g.Count <= 0 || g.Machines <= 0 || g.Devices <= 0 {
					continue
				}
				if !slices.Contains(sizes[g.Type], g.Devices) {
					sizes[g.Type] = append(sizes[g.Type], g.Devices)
				}
				c.scope(key{kind: g.Type})
				if g.Rack != "" {
					c.scope(key{kind: g.Type, rack: g.Rack})
				}
				if g.Node != "" {
					c.scope(key{kind: g.Type, node: g.Node})
				}
			}
		}
	}
	for i := range c.scopes {
		s := &c.scopes[i]
		all := sizes[s.key.kind]
		slices.Sort(all)
		if !divisible(all) && all[0] > 1 {
			all = append([]int{1}, all...)
			sizes[s.key.kind] = all
		}
		s.sizes, s.first = all, len(c.room)
		for _, size := range all {
			room := 0
			for k := range lots {
				if s.holds(&lots[k]) {
					room += lots[k].Free / size
				}
			}
			c.room = append(c.room, int32(room))
		}
	}
	return c
}

func (c *counters) scope(k key) {
	if _, ok := c.byKey[k]; !ok {
		c.byKey[k] = len(c.scopes)
		c.scopes = append(c.scopes, scope{key: k})
	}
}

func (s *scope) holds(l *bidder.Lot) bool {
	return l.Type == s.key.kind && (s.key.rack == "" || l.Rack == s.key.rack) && (s.key.node == "" || l.Node == s.key.node)
}

// exact reports whether every choice within the counts fits.
func (c *counters) exact() bool {
	for i := range c.scopes {
		if k := c.scopes[i].key; k.rack != "" || k.node != "" || !divisible(c.scopes[i].sizes) {
			return false
		}
	}
	return true
}

// divisible reports whether each of the ascending sizes divides the next.
func divisible(sizes []int) bool {
	for i := 1; i < len(sizes); i++ {
		if sizes[i]%sizes[i-1] != 0 {
			return false
		}
	}
	return true
}

// rowUses returns what a row uses, sorted by constraint, or false if a constraint is too small for the row alone.
func (c *counters) rowUses(gangs []bidder.Gangs) ([]use, bool) {
	uses := make([]use, 0, 4)
	for _, g := range gangs {
		if g.Count <= 0 || g.Machines <= 0 || g.Devices <= 0 || max(g.Count, g.Machines, g.Devices) > 1<<20 {
			return nil, false // limit that keeps products within range
		}
		keys := [...]key{{kind: g.Type}, {kind: g.Type, rack: g.Rack}, {kind: g.Type, node: g.Node}}
		for i, k := range keys {
			if i == 1 && g.Rack == "" || i == 2 && g.Node == "" {
				continue
			}
			s := &c.scopes[c.byKey[k]]
			for at, size := range s.sizes {
				if size > g.Devices {
					break
				}
				n := g.Count * g.Machines * (g.Devices / size)
				if n > int(c.room[s.first+at]) {
					return nil, false
				}
				uses = add(uses, use{int32(s.first + at), int32(n)})
			}
		}
	}
	slices.SortFunc(uses, func(a, b use) int { return cmp.Compare(a.constraint, b.constraint) })
	for _, u := range uses {
		if u.n > c.room[u.constraint] {
			return nil, false
		}
	}
	return uses, len(uses) > 0
}

func add(uses []use, u use) []use {
	for i := range uses {
		if uses[i].constraint == u.constraint {
			uses[i].n += u.n
			return uses
		}
	}
	return append(uses, u)
}

// addGroupUse adds the row's use of its bidder's group, and returns false if the row exceeds the group's limit.
func (c *counters) addGroupUse(group int, gangs []bidder.Gangs, uses []use) ([]use, bool) {
	n := 0
	for _, g := range gangs {
		n += g.Size()
	}
	return append(uses, use{int32(group), int32(n)}), n <= int(c.room[group])
}
