// Package setting reads the descriptions of tuners' settings, which are options of their proto fields, and fills in
// defaults and checks values by them. The SDK does the same with the same descriptions.
package setting

import (
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

const (
	// Steps is the setting that limits the steps of a trial; every tuner has it.
	Steps = "max_steps"
	// Sampler is the setting that names how configurations are drawn. It also takes the names of Learning.
	Sampler = "sampler"
)

// Learning returns the names of Optuna's samplers, which learn from results and run in a separate process.
func Learning() []string { return []string{"tpe", "gp", "cmaes", "nsga2"} }

// Of returns the description of a field. It is empty for a field without one.
func Of(fd protoreflect.FieldDescriptor) *outbidv1.Setting {
	if s, _ := proto.GetExtension(fd.Options(), outbidv1.E_Setting).(*outbidv1.Setting); s != nil {
		return s
	}
	return &outbidv1.Setting{}
}

// Tuner returns the settings of the tuner that is set, and its name as written in a spec. They are nil and "" if none
// is set. The settings are those of t, not a copy.
func Tuner(t *outbidv1.Tuner) (protoreflect.Message, string) {
	m := t.ProtoReflect()
	field := m.WhichOneof(m.Descriptor().Oneofs().ByName("kind"))
	if field == nil {
		return nil, ""
	}
	return m.Get(field).Message(), string(field.Name())
}

// SamplerName returns the sampler named in the settings of a tuner, or "" for a tuner without this setting.
func SamplerName(t *outbidv1.Tuner) string {
	m, name := Tuner(t)
	if name == "" {
		return ""
	}
	if field := m.Descriptor().Fields().ByName(Sampler); field != nil {
		return m.Get(field).String()
	}
	return ""
}

// Int returns a whole-number setting, or 0 if the tuner does not have it.
func Int(m protoreflect.Message, name protoreflect.Name) int64 {
	if field := m.Descriptor().Fields().ByName(name); field != nil {
		return m.Get(field).Int()
	}
	return 0
}

// Part returns n if 0 in the setting with a name means one nth of max_steps.
func Part(m protoreflect.Message, name protoreflect.Name) int64 {
	return Of(m.Descriptor().Fields().ByName(name)).GetPart()
}

// Default fills in the settings that are not set.
func Default(m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		if text := Of(field).GetDefault(); text != "" && !m.Has(field) {
			m.Set(field, defaultOf(m, field, text))
		}
	}
}

func defaultOf(m protoreflect.Message, field protoreflect.FieldDescriptor, text string) protoreflect.Value {
	if !field.IsList() {
		return parse(field, text)
	}
	list := m.NewField(field)
	for one := range strings.SplitSeq(text, ",") {
		list.List().Append(parse(field, strings.TrimSpace(one)))
	}
	return list
}

// parse reads a default. A default that is not a value of its field is a mistake in the .proto file; a test finds it.
func parse(field protoreflect.FieldDescriptor, text string) protoreflect.Value {
	switch field.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(text)
	case protoreflect.DoubleKind:
		if v, err := strconv.ParseFloat(text, 64); err == nil {
			return protoreflect.ValueOfFloat64(v)
		}
	case protoreflect.Int64Kind:
		if v, err := strconv.ParseInt(text, 10, 64); err == nil {
			return protoreflect.ValueOfInt64(v)
		}
	case protoreflect.Int32Kind:
		if v, err := strconv.ParseInt(text, 10, 32); err == nil {
			return protoreflect.ValueOfInt32(int32(v))
		}
	}
	panic(fmt.Sprintf("the default %q of %s is not a value of that field", text, field.FullName())) //nolint:forbidigo // the proto file is wrong
}

// List writes names as "a, b or c".
func List(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}
