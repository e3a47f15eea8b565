// Package tsgen writes the messages of the REST API as TypeScript types.
package tsgen

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// Header begins what Types returns.
const Header = "// Generated from proto/outbid/v1 by `make dashboard`. Do not edit.\n\n" +
	"/** A number as JSON of protocol buffers has it. */\nexport type Float = number | \"NaN\" | \"Infinity\" | \"-Infinity\";\n"

// Types returns an interface for each message that the methods of a service take or answer, in the form that the REST
// gateway gives them: field names of the proto files, every field present except those of optional and message kind,
// 64-bit integers as strings, enums as their names.
func Types(service protoreflect.ServiceDescriptor) string {
	w := writer{messages: map[protoreflect.FullName]protoreflect.MessageDescriptor{}, enums: map[protoreflect.FullName]protoreflect.EnumDescriptor{}}
	for i := range service.Methods().Len() {
		m := service.Methods().Get(i)
		w.visit(m.Input())
		w.visit(m.Output())
	}
	var out strings.Builder
	out.WriteString(Header)
	for _, e := range sorted(w.enums) {
		fmt.Fprintf(&out, "\nexport type %s =%s;\n", e.Name(), enumValues(e))
	}
	for _, m := range sorted(w.messages) {
		fmt.Fprintf(&out, "\nexport interface %s {\n", name(m))
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			fmt.Fprintf(&out, "  %s%s: %s;\n", f.Name(), optional(f), fieldType(f))
		}
		out.WriteString("}\n")
	}
	return out.String()
}

type writer struct {
	messages map[protoreflect.FullName]protoreflect.MessageDescriptor
	enums    map[protoreflect.FullName]protoreflect.EnumDescriptor
}

// visit adds a message and everything that it holds.
func (w *writer) visit(m protoreflect.MessageDescriptor) {
	if _, seen := w.messages[m.FullName()]; seen || wellKnown(m) != "" {
		return
	}
	if !m.IsMapEntry() {
		w.messages[m.FullName()] = m
	}
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		if f.Kind() == protoreflect.EnumKind {
			w.enums[f.Enum().FullName()] = f.Enum()
		}
		if f.Message() != nil {
			w.visit(f.Message())
		}
	}
}

func sorted[D protoreflect.Descriptor](all map[protoreflect.FullName]D) []D {
	return slices.SortedFunc(maps.Values(all), func(a, b D) int { return cmp.Compare(a.FullName(), b.FullName()) })
}

func enumValues(e protoreflect.EnumDescriptor) string {
	var out strings.Builder
	for i := range e.Values().Len() {
		fmt.Fprintf(&out, "\n  | %q", e.Values().Get(i).Name())
	}
	return out.String()
}

// name returns a message's name, with those of the messages around it.
func name(m protoreflect.MessageDescriptor) string {
	if parent, ok := m.Parent().(protoreflect.MessageDescriptor); ok {
		return name(parent) + string(m.Name())
	}
	return string(m.Name())
}

// optional returns "?" for a field that an answer may leave out.
func optional(f protoreflect.FieldDescriptor) string {
	switch {
	case f.IsList() || f.IsMap():
		return ""
	case f.HasPresence():
		return "?"
	}
	return ""
}

func fieldType(f protoreflect.FieldDescriptor) string {
	switch {
	case f.IsMap():
		return "Record<string, " + single(f.MapValue()) + ">"
	case f.IsList():
		return single(f) + "[]"
	case f.Message() != nil:
		return single(f) + " | null" // the gateway writes an absent message as null
	}
	return single(f)
}

// wellKnown returns how JSON has a message of Google's, "" for others.
func wellKnown(m protoreflect.MessageDescriptor) string {
	switch m.FullName() {
	case "google.protobuf.Timestamp", "google.protobuf.Duration":
		return "string"
	case "google.protobuf.Struct":
		return "Record<string, unknown>"
	case "google.protobuf.Value":
		return "unknown"
	case "google.protobuf.ListValue":
		return "unknown[]"
	}
	return ""
}

func single(f protoreflect.FieldDescriptor) string {
	switch f.Kind() {
	case protoreflect.BoolKind:
		return "boolean"
	case protoreflect.EnumKind:
		return string(f.Enum().Name())
	case protoreflect.DoubleKind, protoreflect.FloatKind:
		return "Float"
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Uint32Kind, protoreflect.Fixed32Kind, protoreflect.Sfixed32Kind:
		return "number"
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return cmp.Or(wellKnown(f.Message()), name(f.Message()))
	case protoreflect.StringKind, protoreflect.BytesKind,
		protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Uint64Kind, protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind:
		return "string"
	}
	return "unknown"
}
