package space

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

const (
	// maxDepth limits the nesting of groups, and with it every recursion over a space.
	maxDepth = 16
	// maxLeaves is the maximum number of parameters of a space.
	maxLeaves = 1000
	// maxWhole is the largest integer that JSON, Python and float64 can all represent exactly.
	maxWhole = int64(1) << 53
)

// An Error describes what is wrong with one field of a spec.
type Error struct {
	// Field is the path in the spec, such as "space.lr.float.low".
	Field string
	// Problem names the value and describes the error.
	Problem string
}

func (e *Error) Error() string { return e.Field + ": " + e.Problem }

func wrong(field, format string, args ...any) *Error {
	return &Error{Field: field, Problem: fmt.Sprintf(format, args...)}
}

type compiler struct{ space *Space }

// params adds the parameters of one level to the space.
func (c *compiler) params(
	field string, keys []string, params map[string]*outbidv1.Parameter, when []*condition,
) error {
	if len(keys) >= maxDepth {
		return wrong(field, "groups are nested deeper than %d", maxDepth)
	}
	for _, name := range slices.Sorted(maps.Keys(params)) {
		if !IsName(name) {
			return wrong(field, "%q cannot name a parameter; use letters, digits and _, and start with a letter or _", name)
		}
		if err := c.param(field+"."+name, append(slices.Clone(keys), name), params[name], when); err != nil {
			return err
		}
	}
	return nil
}

func (c *compiler) param(field string, keys []string, p *outbidv1.Parameter, when []*condition) error {
	if w := p.GetWhen(); w != nil {
		cond, err := newCondition(field+".when", w)
		if err != nil {
			return err
		}
		when = append(slices.Clone(when), cond)
	}
	if g, ok := p.GetKind().(*outbidv1.Parameter_Group); ok {
		if len(g.Group.GetSpace()) == 0 {
			return wrong(field+".group.space", "is empty; a group needs at least one parameter")
		}
		c.space.groups = append(c.space.groups, &group{path: strings.Join(keys, "."), keys: keys, when: when})
		return c.params(field+".group.space", keys, g.Group.GetSpace(), when)
	}
	d, err := newDist(field, p)
	if err != nil {
		return err
	}
	if len(c.space.leaves) == maxLeaves {
		return wrong("space", "has more than %d parameters", maxLeaves)
	}
	c.space.leaves = append(c.space.leaves, &leaf{
		path: strings.Join(keys, "."), keys: keys, field: field, dist: d, when: when,
	})
	return nil
}

func newDist(field string, p *outbidv1.Parameter) (dist, error) {
	switch k := p.GetKind().(type) {
	case *outbidv1.Parameter_Float:
		return newFloat(field+".float", k.Float)
	case *outbidv1.Parameter_Int:
		return newInt(field+".int", k.Int)
	case *outbidv1.Parameter_Choice:
		return newChoice(field+".choice.values", k.Choice.GetValues())
	case *outbidv1.Parameter_Normal:
		return newNormal(field+".normal", k.Normal)
	case *outbidv1.Parameter_Constant:
		v, err := fromValue(field+".constant", k.Constant, 0)
		return constDist{value: v}, err
	default:
		return nil, wrong(field, "has no kind; set one of float, int, normal, choice, constant or group")
	}
}

func newCondition(field string, w *outbidv1.Condition) (*condition, error) {
	if w.GetParam() == "" {
		return nil, wrong(field+".param", "is empty; name the parameter that decides, such as \"optimizer\"")
	}
	if len(w.GetIn()) == 0 {
		return nil, wrong(field+".in", "is empty; list the values of %q under which the parameter is present", w.GetParam())
	}
	c := &condition{param: w.GetParam(), field: field}
	for i, pv := range w.GetIn() {
		v, err := fromValue(fmt.Sprintf("%s.in[%d]", field, i), pv, 0)
		if err != nil {
			return nil, err
		}
		c.in = append(c.in, v)
	}
	return c, nil
}

// fromValue converts a protobuf value into a configuration value. Integral numbers become int64.
func fromValue(field string, pv *structpb.Value, depth int) (any, error) {
	if depth > maxDepth {
		return nil, wrong(field, "is nested deeper than %d", maxDepth)
	}
	switch k := pv.GetKind().(type) {
	case *structpb.Value_NullValue:
		return nil, nil
	case *structpb.Value_BoolValue:
		return k.BoolValue, nil
	case *structpb.Value_StringValue:
		return k.StringValue, nil
	case *structpb.Value_NumberValue:
		return fromNumber(field, k.NumberValue)
	case *structpb.Value_ListValue:
		out := make([]any, len(k.ListValue.GetValues()))
		for i, inner := range k.ListValue.GetValues() {
			var err error
			if out[i], err = fromValue(fmt.Sprintf("%s[%d]", field, i), inner, depth+1); err != nil {
				return nil, err
			}
		}
		return out, nil
	case *structpb.Value_StructValue:
		fields := k.StructValue.GetFields()
		out := make(map[string]any, len(fields))
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			var err error
			if out[name], err = fromValue(field+"."+name, fields[name], depth+1); err != nil {
				return nil, err
			}
		}
		return out, nil
	default:
		return nil, wrong(field, "has no value")
	}
}

func fromNumber(field string, f float64) (any, error) {
	switch {
	case math.IsNaN(f) || math.IsInf(f, 0):
		return nil, wrong(field, "%v is not a finite number", f)
	case f == math.Trunc(f) && math.Abs(f) <= float64(maxWhole):
		return int64(f), nil
	default:
		return f, nil
	}
}

// IsName reports whether name may be used for a parameter or metric: at most 100 ASCII letters, digits and _, not
// starting with a digit. Such a name is a valid variable in constraints and Python, and a valid name in templates.
func IsName(name string) bool {
	if name == "" || len(name) > 100 || name[0] >= '0' && name[0] <= '9' {
		return false
	}
	for _, r := range name {
		if r != '_' && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') {
			return false
		}
	}
	return true
}
