package trace

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// reader is the state of reading one file.
type reader struct {
	file  string
	opts  Options
	in    *bufio.Reader
	trace *Trace
	seen  map[string]bool
}

// fault handles a broken row: it returns the error, or nil if reading is lenient.
func (r *reader) fault(err *RowError) error {
	err.File = r.file
	if !r.opts.Lenient {
		return err
	}
	report := &r.trace.Report
	report.Broken++
	if len(report.Errors) < keptErrors {
		report.Errors = append(report.Errors, *err)
	}
	return nil
}

// add adds a valid job.
func (r *reader) add(line int, job Job) error {
	if err := r.check(line, &job); err != nil {
		return r.fault(err)
	}
	r.seen[job.ID] = true
	r.trace.Jobs = append(r.trace.Jobs, job)
	return nil
}

func (r *reader) check(line int, job *Job) *RowError {
	if err := job.Validate(); err != nil {
		if bad, ok := errors.AsType[*FieldError](err); ok {
			return badValue(line, bad.Field, bad.Value, "want "+bad.Want)
		}
		return &RowError{Line: line, Reason: err.Error()}
	}
	if r.seen[job.ID] {
		return badValue(line, "job id", job.ID, "is a duplicate: want unique ids")
	}
	return nil
}

// table reads delimited text row by row.
type table struct {
	*reader
	// columns maps names to indices.
	columns map[string]int
	width   int
	next    func() (cells []string, line int, err error)
}

// csvTable reads comma-separated text. header is nil if the first row has the names.
func (r *reader) csvTable(header []string) (*table, error) {
	in := csv.NewReader(r.in)
	in.ReuseRecord = true
	in.FieldsPerRecord = -1
	t := &table{reader: r}
	t.next = func() ([]string, int, error) {
		cells, err := in.Read()
		var broken *csv.ParseError
		if errors.As(err, &broken) {
			return nil, broken.Line, broken.Err
		}
		if err != nil {
			return nil, 0, err
		}
		line, _ := in.FieldPos(0)
		return cells, line, nil
	}
	if header == nil {
		first, line, err := t.next()
		if err != nil {
			return nil, &RowError{File: r.file, Line: max(1, line), Reason: "the header cannot be read: " + err.Error()}
		}
		header = make([]string, len(first))
		for i, name := range first {
			header[i] = strings.TrimSpace(strings.TrimPrefix(name, "\ufeff"))
		}
	}
	t.name(header)
	return t, nil
}

// tsvTable reads tab-separated text without header and quotes.
func (r *reader) tsvTable(header []string) *table {
	lines := bufio.NewScanner(r.in)
	lines.Buffer(nil, 1<<20)
	t, line := &table{reader: r}, 0
	t.next = func() ([]string, int, error) {
		for lines.Scan() {
			line++
			if text := strings.TrimSuffix(lines.Text(), "\r"); strings.TrimSpace(text) != "" {
				return strings.Split(text, "\t"), line, nil
			}
		}
		if err := lines.Err(); err != nil {
			return nil, line + 1, err
		}
		return nil, 0, io.EOF
	}
	t.name(header)
	return t
}

func (t *table) name(header []string) {
	t.columns, t.width = make(map[string]int, len(header)), len(header)
	for i, name := range header {
		t.columns[name] = i
	}
}

// each calls take for every row until the end or an error.
func (t *table) each(take func(*row) error) error {
	for {
		cells, line, err := t.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil && line == 0 {
			return fmt.Errorf("read %s: %w", t.file, err)
		}
		t.trace.Report.Rows++
		current := &row{table: t, cells: cells, line: line}
		switch {
		case errors.Is(err, bufio.ErrTooLong):
			return &RowError{File: t.file, Line: line, Reason: "the line is longer than 1 MiB"}
		case err != nil && !recoverable(err):
			return fmt.Errorf("read %s: line %d: %w", t.file, line, err)
		case err != nil:
			err = t.fault(&RowError{Line: line, Reason: err.Error()})
		case len(cells) != t.width:
			reason := fmt.Sprintf("the row has %d columns, want %d", len(cells), t.width)
			err = t.fault(&RowError{Line: line, Reason: reason})
		default:
			err = take(current)
		}
		if err != nil {
			return err
		}
	}
}

// recoverable reports whether the next row can be read after this error.
func recoverable(err error) bool {
	return errors.Is(err, csv.ErrBareQuote) || errors.Is(err, csv.ErrQuote) || errors.Is(err, csv.ErrFieldCount)
}

// row reads the cells of one row and keeps its first error.
type row struct {
	*table
	cells []string
	line  int
	err   *RowError
}

// text returns a column's text, or "" if the file does not have the column.
func (w *row) text(column string) string {
	i, ok := w.columns[column]
	if !ok || i >= len(w.cells) {
		return ""
	}
	return strings.TrimSpace(w.cells[i])
}

// bad records an error for a column's value.
func (w *row) bad(column, want string) {
	if w.err == nil {
		w.err = badValue(w.line, column, w.text(column), "want "+want)
	}
}

// optional returns a number of at least 0, or 0 if the cell is empty.
func (w *row) optional(column string) float64 {
	if w.text(column) == "" {
		return 0
	}
	return w.number(column)
}

// number returns a number of at least 0.
func (w *row) number(column string) float64 {
	v, err := strconv.ParseFloat(w.text(column), 64)
	if err != nil || !(v >= 0 && v <= MaxSeconds) {
		w.bad(column, "a number, 0 or more")
		return 0
	}
	return v
}

// signed returns any finite number.
func (w *row) signed(column string) float64 {
	v, err := strconv.ParseFloat(w.text(column), 64)
	if err != nil || !Finite(v) {
		w.bad(column, "a number")
		return 0
	}
	return v
}

// whole returns an integer of at least least; numbers such as 8.0 count as integers.
func (w *row) whole(column string, least int) int {
	v, err := strconv.ParseFloat(w.text(column), 64)
	if err != nil || v != math.Trunc(v) || !(v >= float64(least) && v <= MaxGPUs) {
		w.bad(column, fmt.Sprintf("a whole number, %d to %d", least, MaxGPUs))
		return 0
	}
	return int(v)
}

// steps returns an integer of at least 0.
func (w *row) steps(column string) int64 {
	v, err := strconv.ParseInt(w.text(column), 10, 64)
	if err != nil || v < 0 || v > maxSteps {
		w.bad(column, "a whole number of steps, 0 or more")
		return 0
	}
	return v
}

// finish adds the job, or handles the row's first error.
func (w *row) finish(job Job) error {
	if w.err != nil {
		return w.fault(w.err)
	}
	return w.add(w.line, job)
}
