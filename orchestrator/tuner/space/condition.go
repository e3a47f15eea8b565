package space

import (
	"fmt"
	"slices"
	"strings"
)

// conditions lists every condition once.
func (s *Space) conditions() []*condition {
	var all []*condition
	for _, l := range s.leaves {
		for _, c := range l.when {
			if !slices.Contains(all, c) {
				all = append(all, c)
			}
		}
	}
	return all
}

// resolve finds the leaf that each condition refers to and checks that the condition can hold.
func (s *Space) resolve() error {
	for _, c := range s.conditions() {
		target, ok := s.byPath[c.param]
		if !ok {
			if slices.ContainsFunc(s.groups, func(g *group) bool { return g.path == c.param }) {
				return wrong(c.field+".param", "%q is a group; name a parameter in it", c.param)
			}
			return wrong(c.field+".param", "%q is not a parameter; must be one of %s", short(c.param), s.nameList())
		}
		c.target = target
		d := s.leaves[target].dist
		if f, ok := d.(floatDist); ok && f.q == 0 {
			return wrong(c.field+".param", "%q is a float without quantum, which never equals a given value; "+
				"use a choice, a constant, an int or a quantised float", c.param)
		}
		if n, ok := d.(normalDist); ok && n.q == 0 {
			return wrong(c.field+".param", "%q is a normal without quantum, which never equals a given value; "+
				"use a choice, a constant, an int or a quantised number", c.param)
		}
		for i, v := range c.in {
			if problem := d.check(v); problem != "" {
				return wrong(fmt.Sprintf("%s.in[%d]", c.field, i), "%s, so %q never has this value", problem, c.param)
			}
		}
	}
	return nil
}

// nameList lists the parameters for an error message.
func (s *Space) nameList() string {
	const most = 10
	names := s.Names()
	if len(names) == 0 {
		return "none"
	}
	if len(names) > most {
		names = append(names[:most:most], "...")
	}
	return strings.Join(names, ", ")
}

// sortConditions orders the leaves so that each comes after the leaves that its conditions refer to. Otherwise leaves
// are ordered by path, so that the result is deterministic.
func (s *Space) sortConditions() error {
	const (
		fresh = iota
		open
		done
	)
	state := make([]int, len(s.leaves))
	var visit func(i int) error
	visit = func(i int) error {
		state[i] = open
		for _, c := range s.leaves[i].when {
			switch state[c.target] {
			case open:
				return wrong(c.field+".param", "%q is present only if %q has a value, and that depends on %q again; "+
					"break the cycle", s.leaves[i].path, c.param, s.leaves[i].path)
			case fresh:
				if err := visit(c.target); err != nil {
					return err
				}
			}
		}
		state[i] = done
		s.order = append(s.order, i)
		return nil
	}
	for i := range s.leaves {
		if state[i] == fresh {
			if err := visit(i); err != nil {
				return err
			}
		}
	}
	return nil
}
