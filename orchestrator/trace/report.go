package trace

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/outbid-dev/outbid/orchestrator/sanitize"
)

// keptErrors is how many broken rows a report holds in full; the rest are only counted.
const keptErrors = 20

// RowError is a row that could not be read.
type RowError struct {
	// File and Line say where; Line counts from 1.
	File string
	Line int
	// Column is the name of the column, or of the job's field; empty if the row as a whole is broken.
	Column string
	// Value is what stood there, shortened to 40 bytes; nil if no one value is wrong.
	Value *string
	// Reason says what would be right, or what is wrong.
	Reason string
}

// Error names file, line, column, value and reason.
func (e *RowError) Error() string {
	text := fmt.Sprintf("%s:%d: ", e.File, e.Line)
	if e.Column != "" {
		text += "column " + e.Column + ": "
	}
	if e.Value != nil {
		text += fmt.Sprintf("%q: ", *e.Value)
	}
	return text + e.Reason
}

// badValue is the error of a value.
func badValue(line int, column, value, reason string) *RowError {
	short := sanitize.Line(value, 40)
	return &RowError{Line: line, Column: column, Value: &short, Reason: reason}
}

// FieldError is a value that a job cannot have.
type FieldError struct {
	// Field of the job, its Value, and what it Wants.
	Field, Value, Want string
}

// Error names the field, its value and what would be right.
func (e *FieldError) Error() string {
	if e.Value == "" {
		return fmt.Sprintf("%s is empty: want %s", e.Field, e.Want)
	}
	return fmt.Sprintf("%s %s: want %s", e.Field, e.Value, e.Want)
}

// Report says what became of a file's rows.
type Report struct {
	// Format is the name of the format that was found.
	Format string
	// Rows that were read, headers not counted, good or not.
	Rows int
	// Broken is how many rows were skipped because they were broken (lenient reading only), and Errors the first of them.
	Broken int
	Errors []RowError
	// LeftOut counts good rows that make no job, by reason: a job that never ran has neither GPUs nor duration.
	LeftOut map[string]int
}

// String is one line: the format, the rows and what was left out.
func (r *Report) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s: %d rows", r.Format, r.Rows)
	if r.Broken > 0 {
		fmt.Fprintf(&s, ", %d broken and skipped", r.Broken)
	}
	for _, reason := range slices.Sorted(maps.Keys(r.LeftOut)) {
		fmt.Fprintf(&s, ", %d left out (%s)", r.LeftOut[reason], reason)
	}
	return s.String()
}

func (r *Report) leaveOut(reason string) {
	if r.LeftOut == nil {
		r.LeftOut = make(map[string]int)
	}
	r.LeftOut[reason]++
}
