package redact

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Message replaces values in every string of a message, at any depth, the keys of maps among them.
func (m *Mask) Message(message proto.Message) {
	if m != nil {
		m.message(message.ProtoReflect())
	}
}

func (m *Mask) message(message protoreflect.Message) {
	message.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		text, nested := field.Kind() == protoreflect.StringKind, field.Message() != nil
		switch {
		case field.IsMap():
			m.entries(field, value.Map())
		case field.IsList() && (text || nested):
			for list, i := value.List(), 0; i < list.Len(); i++ {
				if nested {
					m.message(list.Get(i).Message())
				} else {
					list.Set(i, m.value(list.Get(i)))
				}
			}
		case text && !field.IsList():
			message.Set(field, m.value(value))
		case nested:
			m.message(value.Message())
		}
		return true
	})
}

func (m *Mask) value(v protoreflect.Value) protoreflect.Value {
	return protoreflect.ValueOfString(m.Text(v.String()))
}

func (m *Mask) entries(field protoreflect.FieldDescriptor, entries protoreflect.Map) {
	renamed := map[string]protoreflect.MapKey{}
	entries.Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
		if field.MapKey().Kind() == protoreflect.StringKind {
			if clean := m.Text(key.String()); clean != key.String() {
				renamed[clean] = key
			}
		}
		switch {
		case field.MapValue().Kind() == protoreflect.StringKind:
			entries.Set(key, m.value(value))
		case field.MapValue().Message() != nil:
			m.message(value.Message())
		}
		return true
	})
	for clean, key := range renamed {
		value := entries.Get(key)
		entries.Clear(key)
		entries.Set(protoreflect.ValueOfString(clean).MapKey(), value)
	}
}
