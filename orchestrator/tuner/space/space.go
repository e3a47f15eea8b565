// Package space implements search spaces: the configurations that a sweep may try.
//
// A space is compiled from the parameters of a sweep's spec. Its leaves (numbers, choices and constants, nested in
// groups, some present only under a condition) are flattened and sorted by their dotted path. A point of the unit cube
// therefore determines one configuration, and any sampler works on any space. The package is deterministic: randomness
// is an argument, and a compiled Space never changes.
package space

import (
	"maps"
	"math"
	"slices"
	"strings"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// A Config is a configuration: parameter name to float64, int64, string, bool, nil, []any or nested map[string]any.
type Config = map[string]any

// A Space is a compiled search space. It is safe for concurrent use.
type Space struct {
	// leaves are sorted by path; a leaf's number is its index here.
	leaves []*leaf
	// groups are sorted by path, so that a group comes after the one that contains it.
	groups []*group
	// order lists the leaves so that each comes after those that its conditions refer to.
	order       []int
	byPath      map[string]int
	paths       []string
	constraints []*constraint
}

// A leaf is a parameter that holds a value.
type leaf struct {
	path string
	keys []string
	// field is the parameter's path in the spec, for errors.
	field string
	dist  dist
	// dim is the coordinate of the unit cube that decides it, or -1 for a constant.
	dim int
	// when holds its own condition and those of the groups that contain it; all must hold.
	when []*condition
}

// A group is an object in the configuration.
type group struct {
	path string
	keys []string
	when []*condition
}

// A condition holds if the leaf that it refers to is present and has one of the values.
type condition struct {
	param  string
	field  string
	target int
	in     []any
}

// Compile turns the parameters and constraints of a spec into a Space. An error is an *Error with the field's path in
// the spec, the value, and the allowed values.
func Compile(params map[string]*outbidv1.Parameter, constraints []string) (*Space, error) {
	c := compiler{space: &Space{byPath: map[string]int{}}}
	if err := c.params("space", nil, params, nil); err != nil {
		return nil, err
	}
	s := c.space
	slices.SortFunc(s.leaves, func(a, b *leaf) int { return strings.Compare(a.path, b.path) })
	slices.SortFunc(s.groups, func(a, b *group) int { return strings.Compare(a.path, b.path) })
	for i, l := range s.leaves {
		s.byPath[l.path] = i
		if _, fixed := l.dist.(constDist); fixed {
			l.dim = -1
			continue
		}
		l.dim = len(s.paths)
		s.paths = append(s.paths, l.path)
	}
	if err := s.resolve(); err != nil {
		return nil, err
	}
	if err := s.sortConditions(); err != nil {
		return nil, err
	}
	var err error
	s.constraints, err = compileConstraints(s, constraints)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Dims returns the number of dimensions: leaves that are not constants, including conditional ones.
func (s *Space) Dims() int { return len(s.paths) }

// Paths returns the dotted paths of the dimensions, sorted; coordinate i decides Paths()[i].
func (s *Space) Paths() []string { return slices.Clone(s.paths) }

// Names returns the dotted paths of all leaves, constants included, sorted.
func (s *Space) Names() []string {
	names := make([]string, len(s.leaves))
	for i, l := range s.leaves {
		names[i] = l.path
	}
	return names
}

// Always reports whether the parameter with a dotted path is a leaf that is present in every configuration, and whether
// it is a leaf at all.
func (s *Space) Always(path string) (always, exists bool) {
	i, ok := s.byPath[path]
	return ok && len(s.leaves[i].when) == 0, ok
}

// At returns the configuration at a point of the unit cube [0, 1)^Dims. Coordinates are clamped to the cube, and
// missing ones are 0. Parameters whose condition does not hold are absent.
func (s *Space) At(u []float64) Config {
	return s.build(func(l *leaf) any {
		x := 0.0
		if l.dim >= 0 && l.dim < len(u) {
			x = clampUnit(u[l.dim])
		}
		return l.dist.at(x)
	})
}

// absent marks a leaf that is not present.
type absent struct{}

// build makes a configuration by calling value for every leaf that is present, in the order of the conditions.
func (s *Space) build(value func(*leaf) any) Config {
	values := make([]any, len(s.leaves))
	for i := range values {
		values[i] = absent{}
	}
	for _, i := range s.order {
		if holds(s.leaves[i].when, values) {
			values[i] = value(s.leaves[i])
		}
	}
	return s.assemble(values)
}

// assemble nests the values of the leaves. A group whose conditions hold is present even if it is empty.
func (s *Space) assemble(values []any) Config {
	cfg := Config{}
	for _, g := range s.groups {
		if holds(g.when, values) {
			set(cfg, g.keys, map[string]any{})
		}
	}
	for i, l := range s.leaves {
		if _, gone := values[i].(absent); !gone {
			set(cfg, l.keys, clone(values[i]))
		}
	}
	return cfg
}

// values returns the values of the leaves in a configuration, with absent{} for missing ones.
func (s *Space) values(cfg Config) []any {
	values := make([]any, len(s.leaves))
	for i, l := range s.leaves {
		values[i] = absent{}
		if v, ok := lookup(cfg, l.keys); ok {
			values[i] = v
		}
	}
	return values
}

func holds(when []*condition, values []any) bool {
	for _, c := range when {
		v := values[c.target]
		if _, gone := v.(absent); gone || !contains(c.in, v) {
			return false
		}
	}
	return true
}

func set(cfg Config, keys []string, v any) {
	for _, k := range keys[:len(keys)-1] {
		inner, ok := cfg[k].(map[string]any)
		if !ok {
			inner = map[string]any{}
			cfg[k] = inner
		}
		cfg = inner
	}
	cfg[keys[len(keys)-1]] = v
}

func lookup(cfg Config, keys []string) (any, bool) {
	var v any = cfg
	for _, k := range keys {
		m, ok := v.(map[string]any)
		if !ok {
			return nil, false
		}
		if v, ok = m[k]; !ok {
			return nil, false
		}
	}
	return v, true
}

// clone copies lists and objects, so that changing a configuration cannot change the space.
func clone(v any) any {
	switch v := v.(type) {
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = clone(v[i])
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, inner := range v {
			out[k] = clone(inner)
		}
		return out
	default:
		return v
	}
}

func contains(list []any, v any) bool {
	return slices.ContainsFunc(list, func(x any) bool { return equal(x, v) })
}

// equal compares values of configurations: 1 and 1.0 are equal.
func equal(a, b any) bool {
	switch a := a.(type) {
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, equal)
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && maps.EqualFunc(a, b, equal)
	case int64:
		if f, ok := b.(float64); ok {
			return float64(a) == f
		}
	case float64:
		if i, ok := b.(int64); ok {
			return a == float64(i)
		}
	}
	switch b.(type) {
	case []any, map[string]any:
		return false
	}
	return a == b
}

func clampUnit(u float64) float64 {
	switch {
	case u >= 1:
		return math.Nextafter(1, 0)
	case u > 0:
		return u
	default:
		return 0
	}
}
