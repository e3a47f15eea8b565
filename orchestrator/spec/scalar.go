package spec

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
)

func itoa(n int) string { return strconv.Itoa(n) }

func join(field, name string) string {
	if field == "" {
		return name
	}
	return field + "." + name
}

// plain reads a scalar as nil, bool, int64, uint64 (beyond int64), float64 or string. A YAML timestamp stays text.
func plain(node *yaml.Node) (any, error) {
	if tag := node.ShortTag(); tag == "!!timestamp" || tag == "!!str" {
		return node.Value, nil
	}
	var v any
	if err := node.Decode(&v); err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case int:
		return int64(v), nil
	case nil, bool, int64, uint64, float64, string:
		return v, nil
	default:
		return nil, fmt.Errorf("a %T is not allowed here", v)
	}
}

// scalar reads a scalar as the kind of its field.
func (r *reader) scalar(field string, node *yaml.Node, fd protoreflect.FieldDescriptor) (any, error) {
	if fd.Kind() == protoreflect.StringKind {
		// Numbers and booleans are accepted as text: command: [train, --epochs, 3].
		return node.Value, nil
	}
	v, err := plain(node)
	if err != nil {
		return nil, r.wrong(field, "%q cannot be read: %v", node.Value, err)
	}
	bad := r.wrong(field, "%s is %s; must be %s", strconv.Quote(node.Value), describe(node), wanted(fd))
	switch fd.Kind() {
	case protoreflect.BoolKind:
		if b, ok := v.(bool); ok {
			return b, nil
		}
		return nil, bad
	case protoreflect.DoubleKind:
		var f float64
		switch v := v.(type) {
		case float64:
			f = v
		case int64:
			f = float64(v)
		case uint64:
			f = float64(v)
		default:
			return nil, bad
		}
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return nil, r.wrong(field, "%s is not a finite number", node.Value)
		}
		return f, nil
	default:
		n, ok := whole(v, fd)
		if !ok {
			return nil, bad
		}
		return n, nil
	}
}

// whole reads an integer that the field can represent. Text is accepted for 64-bit kinds, which protojson writes in
// quotes.
func whole(v any, fd protoreflect.FieldDescriptor) (json.Number, bool) {
	var text string
	switch v := v.(type) {
	case int64:
		text = strconv.FormatInt(v, 10)
	case uint64:
		text = strconv.FormatUint(v, 10)
	case float64:
		if v != math.Trunc(v) || math.Abs(v) > 1<<53 {
			return "", false
		}
		text = strconv.FormatInt(int64(v), 10)
	case string:
		text = v
	default:
		return "", false
	}
	_, isText := v.(string)
	var err error
	switch fd.Kind() {
	case protoreflect.Int32Kind:
		_, err = strconv.ParseInt(text, 10, 32)
		if isText {
			return "", false
		}
	case protoreflect.Int64Kind:
		_, err = strconv.ParseInt(text, 10, 64)
	case protoreflect.Uint64Kind:
		_, err = strconv.ParseUint(text, 10, 64)
	default:
		return "", false
	}
	return json.Number(strings.TrimPrefix(text, "+")), err == nil
}

// wanted describes the values of a field, for an error.
func wanted(fd protoreflect.FieldDescriptor) string {
	switch fd.Kind() {
	case protoreflect.StringKind:
		return "text"
	case protoreflect.BoolKind:
		return "true or false"
	case protoreflect.DoubleKind:
		return "a number"
	case protoreflect.Uint64Kind:
		return "a whole number from 0"
	case protoreflect.Int32Kind:
		return "a whole number below 2^31"
	default:
		return "a whole number"
	}
}

// describe describes a node, for an error.
func describe(node *yaml.Node) string {
	switch node.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return describe(node.Alias)
	}
	switch node.ShortTag() {
	case "!!null":
		return "empty"
	case "!!bool":
		return "true or false"
	case "!!int", "!!float":
		return "a number"
	default:
		return "text"
	}
}

// braceHint explains the most common mistake in a command: [train, --lr, {lr}] is a mapping in YAML.
func braceHint(node *yaml.Node) string {
	if node.Kind == yaml.MappingNode && len(node.Content) == 2 && node.Content[1].ShortTag() == "!!null" {
		return fmt.Sprintf("; write '{%s}' in quotes", node.Content[0].Value)
	}
	if node.Kind == yaml.MappingNode && child(node, "name") != nil {
		return "; write metric: " + child(node, "name").Value + ", and mode: max or mode: min"
	}
	return ""
}

// unknownField describes an unknown field and suggests the one that was probably meant.
func unknownField(md protoreflect.MessageDescriptor, key string, value *yaml.Node) string {
	if hint := habit(md, key, value); hint != "" {
		return "is not a field here; " + hint
	}
	var names []string
	for i := range md.Fields().Len() {
		names = append(names, string(md.Fields().Get(i).Name()))
	}
	if len(names) == 0 {
		return "is not a field here; no fields are allowed"
	}
	return "is not a field here; " + suggestion(key, names)
}

// Nearest returns the most similar of the names, or "" if none is similar.
func Nearest(name string, names []string) string { return nearest(name, names) }

// nearest returns the name with the smallest edit distance, or "" if all differ much.
func nearest(name string, names []string) string {
	best, least := "", max(2, len(name)/3)+1
	for _, n := range names {
		if d := distance(strings.ToLower(name), n); d < least && d < len(n) {
			best, least = n, d
		}
	}
	return best
}

// distance returns the Levenshtein edit distance.
func distance(a, b string) int {
	if len(a) > 100 {
		return len(a)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// suggestion names the most similar of the names, or lists them.
func suggestion(name string, names []string) string {
	if near := nearest(name, names); near != "" {
		return "did you mean " + near + "?"
	}
	const most = 20
	if len(names) > most {
		names = append(names[:most:most], "...")
	}
	return "use one of " + strings.Join(names, ", ")
}
