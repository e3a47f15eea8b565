package trace

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/outbid-dev/outbid/orchestrator/sanitize"
)

// keptErrors is the number of broken rows that a report contains; further ones are only counted.
const keptErrors = 20

// RowError is an error about a row.
type RowError struct {
	// File and Line are the position; Line counts from 1.
	File string
	Line int
	// Column is the name of the column, or of the job's field; empty for the whole row.
	Column string
	// Value is the wrong value, shortened to 40 bytes, or nil if the error is not about a single value.
	Value *string
	// Reason describes the error or the correct value.
	Reason string
}

// Error returns file, line, column, value and reason.
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

// badValue returns the error for a value.
func badValue(line int, column, value, reason string) *RowError {
	short := sanitize.Line(value, 40)
	return &RowError{Line: line, Column: column, Value: &short, Reason: reason}
}

// FieldError is an invalid value of a job's field.
type FieldError struct {
	// Field of the job, its Value, and the values that are wanted.
	Field, Value, Want string
}

// Error returns the field, its value and the correct values.
func (e *FieldError) Error() string {
	if e.Value == "" {
		return fmt.Sprintf("%s is empty: want %s", e.Field, e.Want)
	}
	return fmt.Sprintf("%s %s: want %s", e.Field, e.Value, e.Want)
}

// Report describes the rows of a file.
type Report struct {
	// Format is the name of the detected format.
	Format string
	// Rows is the number of rows that were read, without headers, good or not.
	Rows int
	// Broken is the number of broken rows that were skipped (only if lenient), and Errors the first of them.
	Broken int
	Errors []RowError
	// LeftOut counts good rows that give no job, by reason: a job that never ran has neither GPUs nor duration.
	LeftOut map[string]int
	// Rescaled counts the jobs whose batch size, and so whose speed, changes while they run. Simulations keep their speed
	// constant.
	Rescaled int
}

// String returns one line: the format, the rows and the skipped rows.
func (r *Report) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s: %d rows", r.Format, r.Rows)
	if r.Broken > 0 {
		fmt.Fprintf(&s, ", %d broken and skipped", r.Broken)
	}
	for _, reason := range slices.Sorted(maps.Keys(r.LeftOut)) {
		fmt.Fprintf(&s, ", %d left out (%s)", r.LeftOut[reason], reason)
	}
	if r.Rescaled > 0 {
		fmt.Fprintf(&s, ", %d with a changing batch size (simulated at a constant speed)", r.Rescaled)
	}
	return s.String()
}

// countRescaled counts a job by its change of the batch size.
func (w *row) countRescaled(mode string) {
	if mode != "static" {
		w.trace.Report.Rescaled++
	}
}

func (r *Report) leaveOut(reason string) {
	if r.LeftOut == nil {
		r.LeftOut = make(map[string]int)
	}
	r.LeftOut[reason]++
}
