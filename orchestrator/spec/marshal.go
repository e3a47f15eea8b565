package spec

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Marshal writes a spec as YAML that Parse reads back as the same spec. Fields are in the order of the schema, without
// those that are not set.
func Marshal(s *outbidv1.SweepSpec) ([]byte, error) {
	var buf bytes.Buffer
	enc := yaml.NewEncoder(&buf)
	enc.SetIndent(2)
	if err := enc.Encode(messageNode(s.ProtoReflect())); err != nil {
		return nil, fmt.Errorf("write the spec as YAML: %w", err)
	}
	if err := enc.Close(); err != nil {
		return nil, fmt.Errorf("write the spec as YAML: %w", err)
	}
	return buf.Bytes(), nil
}

func messageNode(m protoreflect.Message) *yaml.Node {
	out := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	fields := m.Descriptor().Fields()
	order := make([]protoreflect.FieldDescriptor, fields.Len())
	for i := range order {
		order[i] = fields.Get(i)
	}
	slices.SortFunc(order, func(a, b protoreflect.FieldDescriptor) int { return int(a.Number() - b.Number()) })
	for _, fd := range order {
		if !m.Has(fd) {
			continue
		}
		out.Content = append(out.Content, stringNode(string(fd.Name())), fieldNode(m.Get(fd), fd))
	}
	if len(out.Content) == 0 {
		out.Style = yaml.FlowStyle
	}
	return out
}

func fieldNode(v protoreflect.Value, fd protoreflect.FieldDescriptor) *yaml.Node {
	switch {
	case fd.IsMap():
		out := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		values := map[string]protoreflect.Value{}
		v.Map().Range(func(k protoreflect.MapKey, inner protoreflect.Value) bool {
			values[k.String()] = inner
			return true
		})
		for _, k := range sortedKeys(values) {
			out.Content = append(out.Content, stringNode(k), singleNode(values[k], fd.MapValue()))
		}
		return out
	case fd.IsList():
		out := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Style: yaml.FlowStyle}
		for i := range v.List().Len() {
			out.Content = append(out.Content, singleNode(v.List().Get(i), fd))
		}
		return out
	default:
		return singleNode(v, fd)
	}
}

func singleNode(v protoreflect.Value, fd protoreflect.FieldDescriptor) *yaml.Node {
	switch fd.Kind() {
	case protoreflect.MessageKind:
		switch m := v.Message().Interface().(type) {
		case *structpb.Value:
			return valueNode(m)
		case *structpb.Struct:
			return structNode(m)
		default:
			return messageNode(v.Message())
		}
	case protoreflect.DoubleKind:
		return numberNode(v.Float())
	case protoreflect.BoolKind:
		return scalarNode("!!bool", strconv.FormatBool(v.Bool()))
	case protoreflect.StringKind:
		return stringNode(v.String())
	default:
		return scalarNode("!!int", v.String())
	}
}

func valueNode(v *structpb.Value) *yaml.Node {
	switch k := v.GetKind().(type) {
	case *structpb.Value_BoolValue:
		return scalarNode("!!bool", strconv.FormatBool(k.BoolValue))
	case *structpb.Value_NumberValue:
		return numberNode(k.NumberValue)
	case *structpb.Value_StringValue:
		return stringNode(k.StringValue)
	case *structpb.Value_ListValue:
		out := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Style: yaml.FlowStyle}
		for _, inner := range k.ListValue.GetValues() {
			out.Content = append(out.Content, valueNode(inner))
		}
		return out
	case *structpb.Value_StructValue:
		return structNode(k.StructValue)
	default:
		return scalarNode("!!null", "null")
	}
}

func structNode(s *structpb.Struct) *yaml.Node {
	out := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Style: yaml.FlowStyle}
	for _, k := range sortedKeys(s.GetFields()) {
		out.Content = append(out.Content, stringNode(k), valueNode(s.GetFields()[k]))
	}
	return out
}

func numberNode(f float64) *yaml.Node {
	if f == math.Trunc(f) && math.Abs(f) <= 1<<53 && !(f == 0 && math.Signbit(f)) {
		return scalarNode("!!int", strconv.FormatInt(int64(f), 10))
	}
	return scalarNode("!!float", strconv.FormatFloat(f, 'g', -1, 64))
}

func scalarNode(tag, text string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: text}
}

func stringNode(s string) *yaml.Node {
	n := scalarNode("!!str", s)
	switch {
	case s == "<<":
		n.Style = yaml.DoubleQuotedStyle // otherwise it would be a merge key
	case isScript(s):
		n.Style = yaml.LiteralStyle
	case strings.Contains(s, "\n"):
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

// isScript reports whether a text can be written verbatim as a YAML block.
func isScript(s string) bool {
	if !strings.HasSuffix(s, "\n") || strings.ContainsFunc(s, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) {
		return false
	}
	return s[0] != '\n' && s[0] != ' '
}
