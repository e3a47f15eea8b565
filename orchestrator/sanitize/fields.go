package sanitize

import (
	"fmt"
	"strconv"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Rule is what Fields does with a string.
type Rule int

const (
	// Refuse returns an error for text that Check rejects, at any length: for names and other text that users type.
	Refuse Rule = iota
	// RefuseBidi returns an error for bidirectional controls but accepts other control characters: for commands,
	// environment values and other text for programs.
	RefuseBidi
	// Repair replaces the string by the result of Text: for text that a program wrote, such as an error.
	Repair
)

// FieldError reports which string of a message is invalid, and why.
type FieldError struct {
	// Field is the path of the string, such as spec.labels["team"] or spec.program.command[1].
	Field string
	// Problem is the error of Check.
	Problem string
}

// Error implements error.
func (e *FieldError) Error() string { return e.Field + ": " + e.Problem }

// Fields applies a rule to every string of m at any depth; key is true for map keys. The error is a *FieldError that
// names an invalid string.
func Fields(m proto.Message, rule func(field protoreflect.FieldDescriptor, key bool) Rule) error {
	w := fieldWalk{rule: rule}
	return w.message(m.ProtoReflect(), nil)
}

type fieldWalk struct {
	rule func(field protoreflect.FieldDescriptor, key bool) Rule
}

// place is one element of a path: a field, a list index, or a map key. Its text is built only for errors.
type place struct {
	above *place
	field protoreflect.FieldDescriptor
	index int
	key   protoreflect.MapKey
}

func (w fieldWalk) message(m protoreflect.Message, above *place) (err error) {
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.IsMap():
			err = w.entries(field, value.Map(), &place{above: above, field: field, index: -1})
		case isScalar(field):
		case field.IsList():
			err = w.list(field, value.List(), &place{above: above, field: field, index: -1})
		case field.Message() != nil:
			err = w.message(value.Message(), &place{above: above, field: field, index: -1})
		default:
			here := place{above: above, field: field, index: -1}
			err = w.text(field, false, value.String(), here, func(text string) { m.Set(field, protoreflect.ValueOfString(text)) })
		}
		return err == nil
	})
	return err
}

// isScalar reports whether values of a field cannot contain text.
func isScalar(kind protoreflect.FieldDescriptor) bool {
	return kind.Kind() != protoreflect.StringKind && kind.Message() == nil
}

func (w fieldWalk) list(field protoreflect.FieldDescriptor, list protoreflect.List, above *place) (err error) {
	for i := 0; i < list.Len() && err == nil; i++ {
		if here := (place{above: above, index: i}); field.Message() != nil {
			err = w.message(list.Get(i).Message(), &here)
		} else {
			err = w.text(field, false, list.Get(i).String(), here, func(text string) { list.Set(i, protoreflect.ValueOfString(text)) })
		}
	}
	return err
}

func (w fieldWalk) entries(field protoreflect.FieldDescriptor, entries protoreflect.Map, above *place) (err error) {
	var renamed map[string]protoreflect.MapKey
	words, values := field.MapKey().Kind() == protoreflect.StringKind, field.MapValue()
	if !words && isScalar(values) {
		return nil
	}
	entries.Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
		here := place{above: above, index: -1, key: key}
		if words {
			err = w.text(field, true, key.String(), here, func(text string) {
				if renamed == nil {
					renamed = map[string]protoreflect.MapKey{}
				}
				renamed[text] = key
			})
		}
		switch {
		case err != nil || isScalar(values):
		case values.Message() != nil:
			err = w.message(value.Message(), &here)
		default:
			err = w.text(field, false, value.String(), here, func(text string) { entries.Set(key, protoreflect.ValueOfString(text)) })
		}
		return err == nil
	})
	for name, key := range renamed {
		value := entries.Get(key)
		entries.Clear(key)
		entries.Set(protoreflect.ValueOfString(name).MapKey(), value)
	}
	return err
}

// RepairFields repairs every string of m at any depth, for a message that a program wrote.
func RepairFields(m proto.Message) {
	_ = Fields(m, func(protoreflect.FieldDescriptor, bool) Rule { return Repair }) // this rule never returns an error
}

func (w fieldWalk) text(field protoreflect.FieldDescriptor, key bool, s string, here place, set func(string)) error {
	if isPlain(s) {
		return nil
	}
	switch w.rule(field, key) {
	case Repair:
		if clean := Text(s, utf8.UTFMax*len(s)); clean != s {
			set(clean)
		}
		return nil
	case RefuseBidi:
		for i, r := range s {
			if IsBidi(r) {
				return &FieldError{here.String(), forbidden(r, i)}
			}
		}
		return nil
	default:
		if err := Check(s, len(s)); err != nil {
			return &FieldError{here.String(), err.Error()}
		}
		return nil
	}
}

// String returns the path without the inner fields of google.protobuf.Struct and Value, which are JSON for users.
func (p *place) String() string {
	if p == nil {
		return ""
	}
	above := p.above.String()
	switch {
	case p.key.IsValid():
		return above + "[" + strconv.QuoteToASCII(p.key.String()) + "]"
	case p.index >= 0:
		return above + "[" + strconv.Itoa(p.index) + "]"
	case p.field.ContainingMessage().FullName().Parent() == "google.protobuf":
		return above
	case above == "":
		return p.field.TextName()
	}
	return above + "." + p.field.TextName()
}

func forbidden(r rune, at int) string {
	return fmt.Sprintf("has the control character U+%04X at byte %d; remove it", r, at)
}
