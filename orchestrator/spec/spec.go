// Package spec is the one schema of a sweep: what a YAML file, the SDK and the API may say, which defaults hold, what
// is wrong with a spec, and how a sweep may be extended.
//
// Parse, Default and Check answer with one error for the first problem: the field, its value and what would be
// right, with the line for YAML.
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

// An Error says what is wrong with one field.
type Error struct {
	// Line and Column are the position in the YAML text, from 1; 0 if there is none.
	Line, Column int
	// Field is the path of the field, such as "space.lr.float.low"; "" for the whole.
	Field string
	// Problem names the value and what would be right.
	Problem string
	// lines is on which line of the field's text the problem is, from 1; 0 if that is not known.
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

// maxSize bounds the text of a spec.
const maxSize = 4 << 20

// Parse reads a spec from YAML or JSON, fills in the defaults and checks it. Unknown fields and keys that stand twice
// are errors. An error is an *Error with the line.
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

// ParseSpace reads parameters alone, as they are written in the space of a spec, with or without the word "space" above them.
// An error is an *Error with the line.
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
		return nil, wrong("space", "holds no parameter")
	}
	return spec.GetSpace(), nil
}

// Locate returns a server's answer about a spec, such as "resources.devices.min: 9 is ...", with the position of that field in
// the YAML text in front, or as it is if the text has no such field.
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

// decode reads YAML into a message by way of the JSON that the schema defines.
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

// fromSpace turns an error of the search space into one of the spec.
func fromSpace(err error) error {
	if e, ok := errors.AsType[*space.Error](err); ok {
		return &Error{Field: e.Field, Problem: e.Problem}
	}
	return err
}
