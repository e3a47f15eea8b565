package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// configColumn is a column for one parameter of the configuration.
type configColumn struct {
	column
	path []string
}

// configColumns flattens a search space: one column per parameter, named config.PATH with dots between groups.
func configColumns(space map[string]*outbidv1.Parameter) []configColumn {
	return appendColumns(nil, nil, space)
}

func appendColumns(list []configColumn, above []string, space map[string]*outbidv1.Parameter) []configColumn {
	for _, name := range sortedKeys(space) {
		path := append(append([]string{}, above...), name)
		p := space[name]
		if g := p.GetGroup(); g != nil {
			list = appendColumns(list, path, g.GetSpace())
			continue
		}
		list = append(list, configColumn{column{"config." + strings.Join(path, "."), kindOf(p)}, path})
	}
	return list
}

// kindOf returns the kind of column that fits every value of a parameter.
func kindOf(p *outbidv1.Parameter) columnKind {
	switch k := p.GetKind().(type) {
	case *outbidv1.Parameter_Float, *outbidv1.Parameter_Normal:
		return kindFloat
	case *outbidv1.Parameter_Int:
		return kindInt
	case *outbidv1.Parameter_Choice:
		return kindOfValues(k.Choice.GetValues())
	case *outbidv1.Parameter_Constant:
		return kindOfValues([]*structpb.Value{k.Constant})
	default:
		return kindText
	}
}

// kindOfValues returns the kind that fits all values. Text always fits; lists and objects are JSON text.
func kindOfValues(values []*structpb.Value) columnKind {
	kinds := map[columnKind]bool{}
	for _, v := range values {
		switch k := v.GetKind().(type) {
		case *structpb.Value_NumberValue:
			if k.NumberValue == math.Trunc(k.NumberValue) && math.Abs(k.NumberValue) < 1<<53 {
				kinds[kindInt] = true
			} else {
				kinds[kindFloat] = true
			}
		case *structpb.Value_BoolValue:
			kinds[kindBool] = true
		case *structpb.Value_NullValue:
		default:
			return kindText
		}
	}
	switch {
	case len(kinds) == 1:
		for k := range kinds {
			return k
		}
	case len(kinds) == 2 && !kinds[kindBool]:
		return kindFloat
	}
	return kindText
}

// configCells returns a configuration's values in the order of the columns. A parameter that a condition excluded is
// absent.
func configCells(config json.RawMessage, columns []configColumn) ([]cell, error) {
	dec := json.NewDecoder(bytes.NewReader(config))
	dec.UseNumber()
	var root map[string]any
	if err := dec.Decode(&root); err != nil {
		return nil, fmt.Errorf("configuration %s: %w", config, err)
	}
	cells := make([]cell, len(columns))
	for i, c := range columns {
		value, err := convert(lookup(root, c.path), c.kind)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		cells[i] = value
	}
	return cells, nil
}

// lookup follows a path through groups, and returns nil if it does not exist.
func lookup(root map[string]any, path []string) any {
	for _, name := range path[:len(path)-1] {
		next, ok := root[name].(map[string]any)
		if !ok {
			return nil
		}
		root = next
	}
	return root[path[len(path)-1]]
}

// convert converts a JSON value for a column.
func convert(v any, kind columnKind) (cell, error) {
	if v == nil {
		return nil, nil //nolint:nilnil // an absent cell is nil
	}
	number, isNumber := v.(json.Number)
	switch {
	case kind == kindFloat && isNumber:
		return number.Float64()
	case kind == kindInt && isNumber:
		f, err := number.Float64()
		if err != nil || f != math.Trunc(f) {
			return nil, fmt.Errorf("%s is not a whole number", number)
		}
		if n, err := number.Int64(); err == nil {
			return n, nil
		}
		return int64(f), nil
	case kind == kindBool:
		if b, ok := v.(bool); ok {
			return b, nil
		}
		return nil, fmt.Errorf("%v is neither true nor false", v)
	}
	return setting{value: v}.exact(), nil
}
