package space

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/types/known/structpb"
)

// A Point is a configuration given by a user, possibly incomplete: values of leaves, by their numbers.
type Point struct{ values map[int]any }

// Point reads a configuration whose values are nested like the space's groups, or named by dotted paths. Complete fills
// in missing values. An error names the field and the allowed values.
func (s *Space) Point(field string, given *structpb.Struct) (Point, error) {
	p := Point{values: map[int]any{}}
	return p, s.point(p, field, "", given.GetFields())
}

func (s *Space) point(p Point, field, around string, given map[string]*structpb.Value) error {
	for _, name := range slices.Sorted(maps.Keys(given)) {
		path, at := around+name, field+"."+name
		i, leaf := s.byPath[path]
		if !leaf {
			inner, object := given[name].GetKind().(*structpb.Value_StructValue)
			if group := slices.ContainsFunc(s.groups, func(g *group) bool { return g.path == path }); !group || !object {
				return wrong(at, "%q is not a parameter; must be one of %s", path, s.nameList())
			}
			if err := s.point(p, at, path+".", inner.StructValue.GetFields()); err != nil {
				return err
			}
			continue
		}
		v, err := fromValue(at, given[name], 0)
		if err != nil {
			return err
		}
		if whole, ok := v.(int64); ok && isReal(s.leaves[i].dist) {
			v = float64(whole)
		}
		if problem := s.leaves[i].dist.check(v); problem != "" {
			return wrong(at, "%s", problem)
		}
		p.values[i] = v
	}
	return nil
}

// isReal reports whether the values of a leaf are real numbers.
func isReal(d dist) bool {
	switch d.(type) {
	case floatDist, normalDist:
		return true
	default:
		return false
	}
}

// Complete returns the configuration of a point. Missing values come from the coordinates, as in At. A value whose
// condition does not hold is dropped.
func (s *Space) Complete(p Point, u []float64) Config {
	return s.build(func(l *leaf) any {
		if v, ok := p.values[s.byPath[l.path]]; ok {
			return v
		}
		if l.dim < 0 || l.dim >= len(u) {
			return l.dist.at(0)
		}
		return l.dist.at(clampUnit(u[l.dim]))
	})
}
