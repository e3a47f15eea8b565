package cli

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"

	"github.com/parquet-go/parquet-go"
)

// columnKind is the type of a column in an exported file.
type columnKind int

const (
	kindText columnKind = iota
	kindInt
	kindFloat
	kindBool
	kindTime
)

// column is a column of an exported file. Any cell may be absent.
type column struct {
	name string
	kind columnKind
}

// A cell is nil if absent, or a string, int64, float64, bool or time.Time according to its column's kind.
type cell any

// A tableWriter writes rows one by one and keeps at most one row group in memory.
type tableWriter interface {
	write(row []cell) error
	// close ends the file; the underlying writer stays open.
	close() error
}

// newTableWriter writes CSV or Parquet to w.
func newTableWriter(w io.Writer, kind, name string, columns []column) (tableWriter, error) {
	if kind == "parquet" {
		return newParquetWriter(w, name, columns)
	}
	s := &csvTableWriter{w: csv.NewWriter(w), columns: columns, line: make([]string, len(columns))}
	for i, c := range columns {
		s.line[i] = c.name
	}
	return s, s.w.Write(s.line)
}

// csvTableWriter writes CSV. Absent cells are empty; NaN, inf and -inf are written as such.
type csvTableWriter struct {
	w       *csv.Writer
	columns []column
	line    []string
}

func (s *csvTableWriter) write(row []cell) error {
	for i, c := range row {
		s.line[i] = csvText(c)
	}
	return s.w.Write(s.line)
}

func csvText(c cell) string {
	switch v := c.(type) {
	case nil:
		return ""
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	case bool:
		return strconv.FormatBool(v)
	case time.Time:
		return v.UTC().Format(time.RFC3339Nano)
	case float64:
		switch {
		case math.IsNaN(v):
			return "NaN"
		case math.IsInf(v, 1):
			return "inf"
		case math.IsInf(v, -1):
			return "-inf"
		}
		return strconv.FormatFloat(v, 'g', -1, 64)
	default:
		return fmt.Sprint(v)
	}
}

func (s *csvTableWriter) close() error {
	s.w.Flush()
	return s.w.Error()
}

// parquetTableWriter writes Parquet. Every column is optional, times are in microseconds of UTC, NaN is kept.
type parquetTableWriter struct {
	w       *parquet.GenericWriter[any]
	columns []column
	row     parquet.Row
}

// rowGroup is the number of rows in memory before they are written.
const rowGroup = 50_000

func newParquetWriter(w io.Writer, name string, columns []column) (tableWriter, error) {
	group := parquet.Group{}
	order := map[string]int{}
	for i, c := range columns {
		if _, twice := order[c.name]; twice {
			return nil, fmt.Errorf("two columns are named %q", c.name)
		}
		order[c.name] = i
		group[c.name] = parquet.Optional(parquetNode(c.kind))
	}
	node := orderedGroup{Group: group, fields: make([]parquet.Field, len(columns))}
	for _, f := range group.Fields() {
		node.fields[order[f.Name()]] = f
	}
	config, err := parquet.NewWriterConfig(parquet.NewSchema(name, node), parquet.MaxRowsPerRowGroup(rowGroup),
		parquet.Compression(&parquet.Snappy))
	if err != nil {
		return nil, err
	}
	return &parquetTableWriter{w: parquet.NewGenericWriter[any](w, config), columns: columns, row: make(parquet.Row, len(columns))}, nil
}

// orderedGroup is a group that keeps the order of its columns; parquet.Group sorts them.
type orderedGroup struct {
	parquet.Group
	fields []parquet.Field
}

// Fields implements parquet.Node.
func (g orderedGroup) Fields() []parquet.Field { return g.fields }

func parquetNode(k columnKind) parquet.Node {
	switch k {
	case kindInt:
		return parquet.Int(64)
	case kindFloat:
		return parquet.Leaf(parquet.DoubleType)
	case kindBool:
		return parquet.Leaf(parquet.BooleanType)
	case kindTime:
		return parquet.Timestamp(parquet.Microsecond)
	default:
		return parquet.String()
	}
}

func (s *parquetTableWriter) write(row []cell) error {
	for i, c := range row {
		var v parquet.Value
		level := 1
		switch c := c.(type) {
		case nil:
			v, level = parquet.NullValue(), 0
		case string:
			v = parquet.ByteArrayValue([]byte(c))
		case int64:
			v = parquet.Int64Value(c)
		case float64:
			v = parquet.DoubleValue(c)
		case bool:
			v = parquet.BooleanValue(c)
		case time.Time:
			v = parquet.Int64Value(c.UnixMicro())
		default:
			return fmt.Errorf("column %s: cannot write a %T", s.columns[i].name, c)
		}
		s.row[i] = v.Level(0, level, i)
	}
	_, err := s.w.WriteRows([]parquet.Row{s.row})
	return err
}

func (s *parquetTableWriter) close() error { return s.w.Close() }
