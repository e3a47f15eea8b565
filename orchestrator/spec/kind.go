package spec

import (
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// TunerKind returns a tuner's name as written in a spec, such as "asha", or "" if none is set.
func TunerKind(t *outbidv1.Tuner) string {
	m := t.ProtoReflect()
	field := m.WhichOneof(m.Descriptor().Oneofs().ByName("kind"))
	if field == nil {
		return ""
	}
	return string(field.Name())
}

// MaxSteps returns the maximum number of steps of a trial, or 0 if the training code decides when to end.
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
