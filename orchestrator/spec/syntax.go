package spec

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxSearched is the maximum number of lines of a text that is searched for the wrong line.
const maxSearched = 2000

// SyntaxError returns an *Error with the first line that cannot be parsed, or nil if the text is YAML. It is exported
// so that other parsers of YAML files give the same errors.
func SyntaxError(data []byte) error {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var node yaml.Node
		switch err := dec.Decode(&node); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return notYAML(data, err)
		}
	}
}

// notYAML converts an error of the YAML library to one with the first line that cannot be parsed. The library reports
// the line where the surrounding block begins, or no line.
func notYAML(data []byte, err error) *Error {
	problem := strings.TrimPrefix(err.Error(), "yaml: ")
	bad := &Error{Problem: problem}
	if _, scanErr := fmt.Sscanf(problem, "line %d:", &bad.Line); scanErr == nil {
		_, bad.Problem, _ = strings.Cut(problem, ": ")
	}
	lines := bytes.SplitAfter(data, []byte{'\n'})
	if len(lines) > maxSearched {
		return bad
	}
	readable := len(lines) - 1
	for readable > 0 && !isYAML(bytes.Join(lines[:readable], nil)) {
		readable--
	}
	if readable > 0 && bad.Problem == "mapping values are not allowed in this context" && isWord(lines[readable-1]) {
		return &Error{Line: readable, Column: indent(lines[readable-1]) + 1, Problem: "has no colon after the field's name"}
	}
	bad.Line, bad.Column = readable+1, indent(lines[readable])+1
	bad.Problem = plainly(bad.Problem, lines[readable])
	return bad
}

// plainly rewords an error of the YAML library about a line.
func plainly(problem string, line []byte) string {
	switch {
	case bytes.HasPrefix(bytes.TrimLeft(line, " "), []byte{'\t'}):
		return "a line must not be indented with a tab; use spaces"
	case problem == "mapping values are not allowed in this context":
		return "a field must not begin here; check the indentation against the lines above"
	case problem == "did not find expected key":
		return problem + "; check the indentation against the lines above, and that quotes and brackets are closed"
	}
	return problem
}

// isYAML reports whether a text can be parsed as YAML.
func isYAML(data []byte) bool {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var node yaml.Node
		if err := dec.Decode(&node); err != nil {
			return errors.Is(err, io.EOF)
		}
	}
}

// isWord reports whether a line has no colon and is not empty, a comment or a list item.
func isWord(line []byte) bool {
	line = bytes.TrimSpace(line)
	return len(line) > 0 && line[0] != '#' && line[0] != '-' && !bytes.Contains(line, []byte{':'})
}

// indent returns the number of blanks at the start of a line.
func indent(line []byte) int { return len(line) - len(bytes.TrimLeft(line, " \t")) }
