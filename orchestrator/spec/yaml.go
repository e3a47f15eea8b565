package spec

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
)

const (
	// maxDepth and maxNodes limit the expansion of nested aliases.
	maxDepth = 100
	maxNodes = 1_000_000
)

// parseYAML returns the only document of a text.
func parseYAML(data []byte) (*yaml.Node, error) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, more yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, wrong("", "the spec is empty")
	case err != nil:
		return nil, notYAML(data, err)
	}
	switch err := dec.Decode(&more); {
	case err == nil:
		return nil, &Error{Line: more.Line, Column: more.Column, Problem: "a second document starts here; write one sweep per file"}
	case !errors.Is(err, io.EOF):
		return nil, notYAML(data, err)
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 {
		return nil, wrong("", "the spec is empty")
	}
	return doc.Content[0], nil
}

// An object is a JSON object under construction.
type object map[string]any

// MarshalJSON implements json.Marshaler.
func (o object) MarshalJSON() ([]byte, error) { return json.Marshal(map[string]any(o)) }

// A reader walks YAML along the schema. Unlike protojson it reports the line and path of an error, suggests the nearest
// name, and rejects duplicate keys.
type reader struct {
	// found is the position of each field.
	found map[string]position
	nodes int
	depth int
}

// A position is the position of a field's key, or of a list item.
type position struct {
	line, column int
	// text is the line on which a literal block (written with |) begins, or 0 if the value is not one.
	text int
}

func newReader() *reader { return &reader{found: map[string]position{}} }

// enter resolves aliases and records the position, unless that of the field's key is recorded already.
func (r *reader) enter(field string, node *yaml.Node) (*yaml.Node, error) {
	at, noted := r.found[field]
	if !noted {
		at = position{line: node.Line, column: node.Column}
	}
	if node.Style&yaml.LiteralStyle != 0 {
		at.text = node.Line + 1
	}
	r.found[field] = at
	for node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	r.nodes++
	r.depth++
	if r.nodes > maxNodes || r.depth > maxDepth {
		return nil, r.wrong(field, "is nested too deep or repeats itself through aliases too often")
	}
	if tag := node.Tag; tag != "" && node.Style&yaml.TaggedStyle != 0 && !coreTag(tag) {
		return nil, r.wrong(field, "the tag %s is not supported; leave it out", tag)
	}
	return node, nil
}

func (r *reader) leave() { r.depth-- }

func coreTag(tag string) bool {
	switch tag {
	case "!!str", "!!int", "!!float", "!!bool", "!!null", "!!map", "!!seq":
		return true
	default:
		return false
	}
}

func (r *reader) wrong(field, format string, args ...any) *Error {
	e := wrong(field, format, args...)
	e.Line, e.Column = r.found[field].line, r.found[field].column
	return e
}

// at returns an error about a node of the text.
func at(node *yaml.Node, field, format string, args ...any) *Error {
	e := wrong(field, format, args...)
	e.Line, e.Column = node.Line, node.Column
	return e
}

// locate adds the position to an error of Check: that of the field, or of the nearest enclosing field in the text.
func (r *reader) locate(err error) error {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return err
	}
	located := *e
	for field := e.Field; ; {
		if p, found := r.found[field]; found {
			located.Line, located.Column = p.line, p.column
			if p.text > 0 && field == e.Field && e.lines > 0 {
				located.Line, located.Column = p.text+e.lines-1, 0
			}
			return &located
		}
		cut := strings.LastIndexAny(field, ".[")
		if cut < 0 {
			located.Line, located.Column = 0, 0
			return &located
		}
		field = field[:cut]
	}
}

// pairs calls each for the entries of a mapping in order. It returns an error for other nodes and for duplicate keys.
func (r *reader) pairs(field string, node *yaml.Node, each func(key string, k, v *yaml.Node) error) error {
	if node.Kind == yaml.ScalarNode && node.ShortTag() == "!!null" {
		return nil
	}
	if node.Kind != yaml.MappingNode {
		return r.wrong(field, "is %s; must be a mapping (key: value)", describe(node))
	}
	first := map[string]int{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		k, v := node.Content[i], node.Content[i+1]
		for k.Kind == yaml.AliasNode {
			k = k.Alias
		}
		name := join(field, k.Value)
		if k.Kind != yaml.ScalarNode {
			return at(k, field, "has %s as a key; must be a name", describe(k))
		}
		if k.ShortTag() == "!!merge" {
			return at(k, field, "the merge key << is not supported; write the fields out")
		}
		if line, dup := first[k.Value]; dup {
			return at(k, name, "is set twice; the first is on line %d", line)
		}
		first[k.Value] = k.Line
		r.found[name] = position{line: k.Line, column: k.Column}
		if err := each(k.Value, k, v); err != nil {
			return err
		}
	}
	return nil
}

// message reads a mapping as a message of the schema.
func (r *reader) message(field string, node *yaml.Node, md protoreflect.MessageDescriptor) (object, error) {
	node, err := r.enter(field, node)
	if err != nil {
		return nil, err
	}
	defer r.leave()
	if hint := shapeHabit(md, node); hint != "" {
		return nil, r.wrong(field, "is %s; must be a mapping (key: value): %s", describe(node), hint)
	}
	out := object{}
	chosen := map[protoreflect.FullName]string{}
	err = r.pairs(field, node, func(key string, k, v *yaml.Node) error {
		fd := md.Fields().ByName(protoreflect.Name(key))
		if fd == nil {
			fd = md.Fields().ByJSONName(key)
		}
		if fd == nil {
			return at(k, join(field, key), "%s", unknownField(md, key, v))
		}
		name := string(fd.Name())
		if _, dup := out[name]; dup {
			return at(k, join(field, key), "is set twice, also as %s", name)
		}
		if one := fd.ContainingOneof(); one != nil && !one.IsSynthetic() {
			if other, taken := chosen[one.FullName()]; taken {
				return at(k, join(field, key), "is set as well as %s; set only one of them", other)
			}
			chosen[one.FullName()] = name
		}
		value, err := r.field(join(field, name), v, fd)
		out[name] = value
		return err
	})
	return out, err
}

func (r *reader) field(field string, node *yaml.Node, fd protoreflect.FieldDescriptor) (any, error) {
	switch {
	case fd.IsMap():
		return r.mapField(field, node, fd)
	case fd.IsList():
		return r.list(field, node, func(at string, n *yaml.Node) (any, error) { return r.single(at, n, fd) })
	default:
		return r.single(field, node, fd)
	}
}

func (r *reader) mapField(field string, node *yaml.Node, fd protoreflect.FieldDescriptor) (any, error) {
	node, err := r.enter(field, node)
	if err != nil {
		return nil, err
	}
	defer r.leave()
	out := object{}
	err = r.pairs(field, node, func(key string, _, v *yaml.Node) error {
		value, err := r.single(join(field, key), v, fd.MapValue())
		out[key] = value
		return err
	})
	return out, err
}

func (r *reader) list(field string, node *yaml.Node, each func(string, *yaml.Node) (any, error)) (any, error) {
	node, err := r.enter(field, node)
	if err != nil {
		return nil, err
	}
	defer r.leave()
	if node.Kind != yaml.SequenceNode {
		return nil, r.wrong(field, "is %s; must be a list, such as [a, b]", describe(node))
	}
	out := make([]any, len(node.Content))
	for i, n := range node.Content {
		if out[i], err = each(field+"["+itoa(i)+"]", n); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// single reads one value: a message, free JSON, or a scalar.
func (r *reader) single(field string, node *yaml.Node, fd protoreflect.FieldDescriptor) (any, error) {
	if md := fd.Message(); md != nil {
		switch md.FullName() {
		case "google.protobuf.Value":
			return r.free(field, node)
		case "google.protobuf.Struct":
			v, err := r.free(field, node)
			if _, ok := v.(object); !ok && err == nil {
				return nil, r.wrong(field, "must be a mapping (key: value)")
			}
			return v, err
		default:
			return r.message(field, node, md)
		}
	}
	node, err := r.enter(field, node)
	if err != nil {
		return nil, err
	}
	defer r.leave()
	if node.Kind != yaml.ScalarNode || node.ShortTag() == "!!null" {
		return nil, r.wrong(field, "is %s; must be %s%s", describe(node), wanted(fd), braceHint(node))
	}
	return r.scalar(field, node, fd)
}

// free reads any YAML value as JSON.
func (r *reader) free(field string, node *yaml.Node) (any, error) {
	switch node.Kind {
	case yaml.SequenceNode:
		return r.list(field, node, r.free)
	case yaml.AliasNode:
		r.depth++
		defer r.leave()
		if r.depth > maxDepth {
			return nil, r.wrong(field, "is nested too deep")
		}
		return r.free(field, node.Alias)
	}
	node, err := r.enter(field, node)
	if err != nil {
		return nil, err
	}
	defer r.leave()
	if node.Kind == yaml.MappingNode {
		out := object{}
		err := r.pairs(field, node, func(key string, _, v *yaml.Node) error {
			value, err := r.free(join(field, key), v)
			out[key] = value
			return err
		})
		return out, err
	}
	v, err := plain(node)
	if err != nil {
		return nil, r.wrong(field, "%q cannot be read: %v", node.Value, err)
	}
	switch v := v.(type) {
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, r.wrong(field, "%s is not a finite number", node.Value)
		}
	case int64:
		if v > 1<<53 || v < -1<<53 {
			return nil, r.wrong(field, "%s is beyond 2^53, which not every JSON parser can represent; write it in quotes", node.Value)
		}
	case uint64:
		return nil, r.wrong(field, "%s is beyond 2^53, which not every JSON parser can represent; write it in quotes", node.Value)
	}
	return v, nil
}
