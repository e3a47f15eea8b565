package spec

import (
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// TunerKind is a tuner's name as it is written in a sweep's file: "asha"; "" for none.
func TunerKind(t *outbidv1.Tuner) string {
	m := t.ProtoReflect()
	field := m.WhichOneof(m.Descriptor().Oneofs().ByName("kind"))
	if field == nil {
		return ""
	}
	return string(field.Name())
}

// MaxSteps is how far the tuner trains a trial at the most; 0 if it leaves that to the training code.
func MaxSteps(t *outbidv1.Tuner) int64 {
	m := t.ProtoReflect()
	kind := m.WhichOneof(m.Descriptor().Oneofs().ByName("kind"))
	if kind == nil {
		return 0
	}
	settings := m.Get(kind).Message()
	field := settings.Descriptor().Fields().ByName("max_steps")
	if field == nil {
		return 0
	}
	return settings.Get(field).Int()
}
