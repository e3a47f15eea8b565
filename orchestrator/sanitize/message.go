package sanitize

import (
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Message repairs every string of m, at any depth, that is not valid UTF-8, and reports whether there was one. Protocol
// buffers cannot encode such strings. It is the last line of defence: code that accepts text should call Text or Line,
// where the limit is known.
func Message(m proto.Message) (changed bool) {
	return message(m.ProtoReflect())
}

func message(m protoreflect.Message) (changed bool) {
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.IsMap():
			changed = mapField(field, value.Map()) || changed
		case field.IsList():
			changed = listField(field, value.List()) || changed
		case field.Kind() == protoreflect.StringKind:
			if text, bad := valid(value); bad {
				m.Set(field, text)
				changed = true
			}
		case field.Message() != nil:
			changed = message(value.Message()) || changed
		}
		return true
	})
	return changed
}

func listField(field protoreflect.FieldDescriptor, list protoreflect.List) (changed bool) {
	for i := range list.Len() {
		switch {
		case field.Kind() == protoreflect.StringKind:
			if text, bad := valid(list.Get(i)); bad {
				list.Set(i, text)
				changed = true
			}
		case field.Message() != nil:
			changed = message(list.Get(i).Message()) || changed
		}
	}
	return changed
}

func mapField(field protoreflect.FieldDescriptor, entries protoreflect.Map) (changed bool) {
	type entry struct {
		old, key protoreflect.MapKey
		value    protoreflect.Value
	}
	var wrong []entry
	entries.Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
		e := entry{old: key, key: key, value: value}
		bad := false
		if field.MapKey().Kind() == protoreflect.StringKind {
			var text protoreflect.Value
			if text, bad = valid(key.Value()); bad {
				e.key = text.MapKey()
			}
		}
		switch {
		case field.MapValue().Kind() == protoreflect.StringKind:
			text, badValue := valid(value)
			e.value, bad = text, bad || badValue
		case field.MapValue().Message() != nil:
			changed = message(value.Message()) || changed
		}
		if bad {
			wrong = append(wrong, e)
		}
		return true
	})
	for _, e := range wrong {
		entries.Clear(e.old)
		entries.Set(e.key, e.value)
	}
	return changed || len(wrong) > 0
}

// valid returns a string value as valid UTF-8, and whether it was invalid.
func valid(value protoreflect.Value) (text protoreflect.Value, bad bool) {
	s := value.String()
	if utf8.ValidString(s) {
		return value, false
	}
	return protoreflect.ValueOfString(Text(s, 2*len(s)+len(s))), true
}
