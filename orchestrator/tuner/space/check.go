package space

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Check returns an error if a configuration is not in the space: every parameter whose condition holds must have a
// value in its range, and other entries are not allowed. Check ignores constraints; see Allowed.
func (s *Space) Check(cfg Config) error {
	values := s.values(cfg)
	for _, i := range s.order {
		l := s.leaves[i]
		_, gone := values[i].(absent)
		wanted := holds(l.when, values)
		switch {
		case gone && wanted:
			return wrong(l.path, "is missing from the configuration")
		case !gone && !wanted:
			return wrong(l.path, "is in the configuration although its condition does not hold")
		case gone:
			continue
		}
		if problem := l.dist.check(values[i]); problem != "" {
			return wrong(l.path, "%s", problem)
		}
	}
	for _, g := range s.groups {
		v, there := lookup(cfg, g.keys)
		if _, isObject := v.(map[string]any); there && !isObject {
			return wrong(g.path, "%s is not an object", short(show(v)))
		}
		if wanted := holds(g.when, values); there != wanted {
			return wrong(g.path, "is %s the configuration, against its condition", map[bool]string{
				true: "in", false: "missing from",
			}[there])
		}
	}
	return s.unknown(nil, cfg)
}

// unknown returns an error for the first entry of a configuration that is not a parameter.
func (s *Space) unknown(around []string, cfg map[string]any) error {
	for _, name := range slices.Sorted(maps.Keys(cfg)) {
		keys := append(slices.Clone(around), name)
		path := strings.Join(keys, ".")
		if _, ok := s.byPath[path]; ok {
			continue
		}
		if !slices.ContainsFunc(s.groups, func(g *group) bool { return g.path == path }) {
			return wrong(path, "is not a parameter; must be one of %s", s.nameList())
		}
		inner, ok := cfg[name].(map[string]any)
		if !ok {
			return wrong(path, "%s is not an object", short(show(cfg[name])))
		}
		if err := s.unknown(keys, inner); err != nil {
			return err
		}
	}
	return nil
}

// Contains returns an error unless this space has every parameter of an older space with all its values, as required
// for extending a sweep. Conditions may only become weaker. The error names the parameter.
func (s *Space) Contains(older *Space) error {
	for _, old := range older.leaves {
		i, ok := s.byPath[old.path]
		if !ok {
			return wrong(old.field, "is missing; the sweep has trials with it")
		}
		l := s.leaves[i]
		if problem := containsDist(l.dist, old.dist); problem != "" {
			return wrong(l.field, "%s", problem)
		}
		for _, c := range l.when {
			if !slices.ContainsFunc(old.when, func(o *condition) bool { return implies(o, c) }) {
				return wrong(c.field, "is narrower than before; a condition may only let a parameter be present more often")
			}
		}
	}
	return nil
}

// implies reports whether the new condition holds whenever the old one does.
func implies(old, now *condition) bool {
	if old.param != now.param {
		return false
	}
	for _, v := range old.in {
		if !contains(now.in, v) {
			return false
		}
	}
	return true
}

// containsDist describes the values of the old distribution that the new one lacks. It returns "" if it has them all.
func containsDist(now, old dist) string {
	switch o := old.(type) {
	case constDist:
		return lacks(now, []any{o.value})
	case choiceDist:
		return lacks(now, o.values)
	case intDist:
		n, ok := now.(intDist)
		switch {
		case !ok:
			return "was an int range and must stay one"
		case n.low > o.low || n.last() < o.last():
			return fmt.Sprintf("%d to %d does not contain %d to %d as before", n.low, n.last(), o.low, o.last())
		case (o.low-n.low)%n.q != 0 || o.q%n.q != 0:
			return fmt.Sprintf("steps of %d from %d leave out earlier values (steps of %d from %d)", n.q, n.low, o.q, o.low)
		}
		return ""
	case floatDist:
		return containsFloat(now, o)
	case normalDist:
		if n, ok := now.(normalDist); !ok || n.q != o.q {
			return "was a normal and must stay one, with the same quantum"
		}
		return ""
	default:
		return "is of an unknown kind"
	}
}

func containsFloat(now dist, o floatDist) string {
	n, ok := now.(floatDist)
	switch {
	case !ok:
		return "was a float range and must stay one"
	case n.low > o.low || n.high < o.high:
		return fmt.Sprintf("%v to %v does not contain %v to %v as before", n.low, n.high, o.low, o.high)
	case n.q > 0 && o.q == 0:
		return fmt.Sprintf("had no quantum before and cannot get one (%v)", n.q)
	case n.q > 0:
		// Two neighbours on the new grid imply that all values are on it.
		for _, v := range []float64{o.value(0), o.value(1), o.value(o.n - 1)} {
			if n.check(v) != "" {
				return fmt.Sprintf("steps of %v from %v leave out the earlier value %v", n.q, n.low, v)
			}
		}
	}
	return ""
}

func lacks(now dist, values []any) string {
	for _, v := range values {
		if problem := now.check(v); problem != "" {
			return problem + ", but was a value before"
		}
	}
	return ""
}
