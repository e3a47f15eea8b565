package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/outbid-dev/outbid/orchestrator/spec"
)

// input is one argument of a tool.
type input struct {
	name, about string
	// kind is string, integer, number, boolean or array (of strings).
	kind     string
	required bool
	// least and most limit a number, the characters of a string, or the strings of an array, if most is not 0.
	least, most float64
	// words are the allowed strings, or nil for any.
	words []string
	// otherwise is the value that is used if the argument is absent, or nil.
	otherwise any
}

// inputSchema returns the JSON schema of a tool's arguments.
func inputSchema(inputs []input) *jsonschema.Schema {
	s := &jsonschema.Schema{
		Type: "object", Properties: map[string]*jsonschema.Schema{},
		AdditionalProperties: &jsonschema.Schema{Not: &jsonschema.Schema{}},
	}
	for _, in := range inputs {
		s.Properties[in.name] = in.schema()
		s.PropertyOrder = append(s.PropertyOrder, in.name)
		if in.required {
			s.Required = append(s.Required, in.name)
		}
	}
	return s
}

func (in input) schema() *jsonschema.Schema {
	s := &jsonschema.Schema{Type: in.kind, Description: in.about}
	if in.otherwise != nil {
		s.Default = json.RawMessage(fmt.Sprint(in.otherwise))
		if text, ok := in.otherwise.(string); ok {
			s.Default = json.RawMessage(strconv.Quote(text))
		}
	}
	for _, word := range in.words {
		s.Enum = append(s.Enum, word)
	}
	if in.kind == "array" {
		s.Items = &jsonschema.Schema{Type: "string"}
	}
	if in.most == 0 {
		return s
	}
	switch in.kind {
	case "string":
		s.MinLength, s.MaxLength = new(int(in.least)), new(int(in.most))
	case "array":
		s.MinItems, s.MaxItems = new(int(in.least)), new(int(in.most))
	default:
		s.Minimum, s.Maximum = &in.least, &in.most
	}
	return s
}

// want describes the allowed values.
func (in input) want() string {
	between := ""
	if in.most != 0 {
		between = fmt.Sprintf(" from %s to %s", plainNumber(in.least), plainNumber(in.most))
	}
	switch in.kind {
	case "string":
		if in.words != nil {
			return "one of " + strings.Join(in.words, ", ")
		}
		if in.most != 0 {
			return fmt.Sprintf("a string of %s to %s characters", plainNumber(in.least), plainNumber(in.most))
		}
		return "a string"
	case "array":
		return fmt.Sprintf("a list of %s to %s strings", plainNumber(in.least), plainNumber(in.most))
	case "boolean":
		return "true or false"
	case "integer":
		return "an integer" + between
	}
	return "a number" + between
}

func plainNumber(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// readArguments checks a call's arguments and decodes them. An error names the argument, its value and the valid ones.
func readArguments(tool string, inputs []input, arguments json.RawMessage, into any) error {
	given := map[string]json.RawMessage{}
	if len(bytes.TrimSpace(arguments)) > 0 {
		if err := json.Unmarshal(arguments, &given); err != nil {
			return fmt.Errorf("arguments: must be a JSON object, got %s", shortJSON(arguments))
		}
	}
	var names []string
	for _, in := range inputs {
		names = append(names, in.name)
		value, ok := given[in.name]
		if !ok || string(value) == "null" {
			delete(given, in.name)
			if in.required {
				return fmt.Errorf("%s: is missing, must be %s: %s", in.name, in.want(), in.about)
			}
			if in.otherwise != nil {
				given[in.name] = in.schema().Default
			}
			continue
		}
		if !in.allows(value) {
			return fmt.Errorf("%s: must be %s, got %s", in.name, in.want(), shortJSON(value))
		}
	}
	for name := range given {
		if !slices.Contains(names, name) {
			return unknownArgument(tool, name, names)
		}
	}
	checked, err := json.Marshal(given)
	if err != nil {
		return fmt.Errorf("arguments: %w", err)
	}
	if err := json.Unmarshal(checked, into); err != nil {
		return fmt.Errorf("arguments: %w", err)
	}
	return nil
}

func unknownArgument(tool, name string, names []string) error {
	hint := fmt.Sprintf("%s takes %s", tool, strings.Join(names, ", "))
	if len(names) == 0 {
		hint = tool + " takes no arguments"
	}
	if near := spec.Nearest(name, names); near != "" {
		hint = fmt.Sprintf("did you mean %q? %s", near, hint)
	}
	return fmt.Errorf("%s: is not an argument: %s", cleanLine(name, 80), hint)
}

// allows reports whether a value has the input's type and is within its limits.
func (in input) allows(value json.RawMessage) bool {
	within := func(v float64) bool { return in.most == 0 || v >= in.least && v <= in.most }
	switch in.kind {
	case "string":
		var s string
		if json.Unmarshal(value, &s) != nil {
			return false
		}
		return within(float64(utf8.RuneCountInString(s))) && (in.words == nil || slices.Contains(in.words, s))
	case "boolean":
		var b bool
		return json.Unmarshal(value, &b) == nil
	case "integer":
		var n int64
		return json.Unmarshal(value, &n) == nil && within(float64(n))
	case "array":
		var list []string
		return json.Unmarshal(value, &list) == nil && within(float64(len(list)))
	}
	var v float64
	return json.Unmarshal(value, &v) == nil && within(v)
}

// shortJSON returns a value for an error message.
func shortJSON(value json.RawMessage) string { return cleanLine(string(value), 80) }
