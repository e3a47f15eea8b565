package api

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// hiddenValue replaces the value of a variable.
const hiddenValue = "***"

// hideEnv returns a copy of an answer with the values of environment variables hidden.
func hideEnv(m proto.Message) proto.Message {
	own := proto.Clone(m)
	hideEnvIn(own.ProtoReflect())
	return own
}

// hideEnvSent does the same for a message of a stream, which may already be encoded.
func hideEnvSent(m any) (any, error) {
	switch m := m.(type) {
	case *encoded:
		decoded := m.kind.New().Interface()
		if err := proto.Unmarshal(m.data, decoded); err != nil {
			return nil, fmt.Errorf("hide variables: %w", err)
		}
		hideEnvIn(decoded.ProtoReflect())
		return decoded, nil
	case proto.Message:
		return hideEnv(m), nil
	}
	return m, nil
}

func hideEnvIn(m protoreflect.Message) {
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch name := field.FullName(); {
		case name == "outbid.v1.Program.env" || name == "outbid.v1.Function.env":
			entries := value.Map()
			entries.Range(func(key protoreflect.MapKey, _ protoreflect.Value) bool {
				entries.Set(key, protoreflect.ValueOfString(hiddenValue))
				return true
			})
		case field.IsMap() && field.MapValue().Message() != nil:
			value.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool { hideEnvIn(v.Message()); return true })
		case field.IsList() && field.Message() != nil:
			for i := range value.List().Len() {
				hideEnvIn(value.List().Get(i).Message())
			}
		case !field.IsMap() && !field.IsList() && field.Message() != nil:
			hideEnvIn(value.Message())
		}
		return true
	})
}
