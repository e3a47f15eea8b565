package spec

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/tuner/space"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// CheckSize returns an *Error if the encoded spec has more than most bytes. The error names the largest part.
func CheckSize(s *outbidv1.SweepSpec, most int) error {
	size := proto.Size(s)
	if size <= most {
		return nil
	}
	field, bytes := largestField(s)
	return wrong(field, "has %d bytes, and the whole spec %d; at most %d are allowed. Put large values into a file that "+
		"trials read, and their names into the spec", bytes, size, most)
}

// largestField returns the path and size of the largest field, or of the largest entry of a map field.
func largestField(s *outbidv1.SweepSpec) (path string, bytes int) {
	take := func(name string, n int) {
		if n > bytes {
			path, bytes = name, n
		}
	}
	s.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		name := string(field.Name())
		if !field.IsMap() {
			only := s.ProtoReflect().New()
			only.Set(field, value)
			take(name, proto.Size(only.Interface()))
			return true
		}
		value.Map().Range(func(key protoreflect.MapKey, entry protoreflect.Value) bool {
			n := len(key.String())
			if field.MapValue().Message() != nil {
				n += proto.Size(entry.Message().Interface())
			} else {
				n += len(entry.String())
			}
			take(name+"."+key.String(), n)
			return true
		})
		return true
	})
	return path, bytes
}

// checkConfigSize rejects a space in which some configuration certainly exceeds the limit for a trial.
func checkConfigSize(compiled *space.Space) error {
	bytes, field := compiled.Largest()
	if bytes <= limits.Config {
		return nil
	}
	return wrong(field, "makes configurations of up to %d bytes; at most %d are allowed. Put large values into a file that "+
		"trials read, and their names into the space", bytes, limits.Config)
}

// checkPoints rejects an initial configuration that exceeds the limit for a trial.
func checkPoints(s *outbidv1.SweepSpec) error {
	for i, p := range s.GetTuner().GetPoints() {
		if n := proto.Size(p); n > limits.Config {
			return wrong("tuner.points["+itoa(i)+"]", "has %d bytes; at most %d are allowed", n, limits.Config)
		}
	}
	return nil
}
