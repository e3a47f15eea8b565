// Package spec defines the schema of a sweep for YAML files, the SDK and the API: fields, defaults, validation and
// extension.
//
// Parse, Default and Check return one error for the first problem: the field, its value and the allowed values, with
// the line for YAML.
package spec

import (
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/tuner/space"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// An Error describes what is wrong with one field.
type Error struct {
	// Line and Column are the position in the YAML text, from 1, or 0 if unknown.
	Line, Column int
	// Field is the path of the field, such as "space.lr.float.low", or "" for the whole spec.
	Field string
	// Problem names the value and describes the error.
	Problem string
	// lines is the line within the field's text, from 1, or 0 if unknown.
	lines int
}

func (e *Error) Error() string {
	var b strings.Builder
	switch {
	case e.Column > 0:
		fmt.Fprintf(&b, "line %d, column %d: ", e.Line, e.Column)
	case e.Line > 0:
		fmt.Fprintf(&b, "line %d: ", e.Line)
	}
	if e.Field != "" {
		b.WriteString(e.Field + ": ")
	}
	b.WriteString(e.Problem)
	return b.String()
}

func wrong(field, format string, args ...any) *Error {
	return &Error{Field: field, Problem: fmt.Sprintf(format, args...)}
}

// maxSize is the maximum size in bytes of a spec's text.
const maxSize = 4 << 20

// Parse reads a spec from YAML or JSON, fills in the defaults and checks it. Unknown fields and duplicate keys are
// errors. An error is an *Error with the line.
func Parse(data []byte) (*outbidv1.SweepSpec, error) {
	if len(data) > maxSize {
		return nil, wrong("", "the spec has %d bytes; at most %d are read", len(data), maxSize)
	}
	root, err := parseYAML(data)
	if err != nil {
		return nil, err
	}
	moveSecrets(root)
	r := newReader()
	spec := &outbidv1.SweepSpec{}
	if err := decode(r, root, spec); err != nil {
		return nil, err
	}
	Default(spec)
	if err := Check(spec); err != nil {
		return nil, r.locate(err)
	}
	return spec, nil
}

// ParseSpace reads only parameters, in the form of a spec's space, with or without the key "space" above them. An error
// is an *Error with the line.
func ParseSpace(data []byte) (map[string]*outbidv1.Parameter, error) {
	root, err := parseYAML(data)
	if err != nil {
		return nil, err
	}
	if child(root, "space") == nil || len(root.Content) > 2 {
		key := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: "space", Line: root.Line}
		root = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: root.Line, Content: []*yaml.Node{key, root}}
	}
	r := newReader()
	spec := &outbidv1.SweepSpec{}
	if err := decode(r, root, spec); err != nil {
		return nil, err
	}
	if len(spec.GetSpace()) == 0 {
		return nil, wrong("space", "has no parameters")
	}
	return spec.GetSpace(), nil
}

// Locate adds the field's position in the YAML text to a server's error about a spec, such as "resources.devices.min:
// must be ...". It returns the error unchanged if the text does not have the field.
func Locate(data []byte, answer string) string {
	field, problem, ok := strings.Cut(answer, ": ")
	if !ok || strings.ContainsAny(field, " \n") {
		return answer
	}
	root, err := parseYAML(data)
	if err != nil {
		return answer
	}
	moveSecrets(root)
	r := newReader()
	if err := decode(r, root, &outbidv1.SweepSpec{}); err != nil {
		return answer
	}
	return r.locate(&Error{Field: field, Problem: problem}).Error()
}

// decode converts YAML to a message via its JSON form.
func decode(r *reader, root *yaml.Node, into proto.Message) error {
	tree, err := r.message("", root, into.ProtoReflect().Descriptor())
	if err != nil {
		return err
	}
	text, err := tree.MarshalJSON()
	if err != nil {
		return fmt.Errorf("write the spec as JSON: %w", err)
	}
	if err := protojson.Unmarshal(text, into); err != nil {
		return fmt.Errorf("read the spec: %w", err)
	}
	return nil
}

// fromSpace converts an error of the search space to one of the spec.
func fromSpace(err error) error {
	if e, ok := errors.AsType[*space.Error](err); ok {
		return &Error{Field: e.Field, Problem: e.Problem}
	}
	return err
}
