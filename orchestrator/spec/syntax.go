package spec

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxSearched is how many lines a text may have whose wrong line is searched for.
const maxSearched = 2000

// SyntaxError returns what keeps a text from being YAML, as an *Error with the line from which on it cannot be read; nil if it
// is YAML. Other readers of YAML use it for the same reason as notYAML.
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

// notYAML returns what the YAML library says of a text, with the line from which on the text cannot be read. The library names
// the line where the surrounding block begins, or none.
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

// plainly returns the library's word for a problem of a line as people say it.
func plainly(problem string, line []byte) string {
	switch {
	case bytes.HasPrefix(bytes.TrimLeft(line, " "), []byte{'\t'}):
		return "a tab cannot indent a line; use blanks"
	case problem == "mapping values are not allowed in this context":
		return "a field cannot begin here; does its indentation fit the lines above?"
	case problem == "did not find expected key":
		return problem + "; does the indentation fit the lines above, and do quotes and brackets close?"
	}
	return problem
}

// isYAML reports whether a text can be read as YAML.
func isYAML(data []byte) bool {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var node yaml.Node
		if err := dec.Decode(&node); err != nil {
			return errors.Is(err, io.EOF)
		}
	}
}

// isWord reports whether a line is neither empty nor a comment, nor an item of a list, and has no colon.
func isWord(line []byte) bool {
	line = bytes.TrimSpace(line)
	return len(line) > 0 && line[0] != '#' && line[0] != '-' && !bytes.Contains(line, []byte{':'})
}

// indent returns how many blanks a line begins with.
func indent(line []byte) int { return len(line) - len(bytes.TrimLeft(line, " \t")) }
