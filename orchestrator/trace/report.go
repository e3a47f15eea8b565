package trace

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// keptErrors is how many broken rows a report holds in full; the rest are only counted.
const keptErrors = 20

// RowError is a row that could not be read.
type RowError struct {
	// File and Line say where; Line counts from 1.
	File string
	Line int
	// Column is the name of the column; empty if the row as a whole is broken.
	Column string
	// Reason says what is wrong and what would be right.
	Reason string
}

// Error names file, line, column and reason.
func (e *RowError) Error() string {
	if e.Column == "" {
		return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Reason)
	}
	return fmt.Sprintf("%s:%d: column %s: %s", e.File, e.Line, e.Column, e.Reason)
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
