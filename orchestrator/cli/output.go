package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// format is the output format of a listing.
type format string

const (
	formatTable format = "table"
	formatJSON  format = "json"
	formatLines format = "jsonl"
)

// outputUsage describes -o.
const outputUsage = "table, json, or jsonl (one object per line)"

// outputFlag adds -o to a command.
func outputFlag(cmd *cobra.Command, f *format) {
	*f = formatTable
	cmd.Flags().VarP(f, "output", "o", outputUsage)
	complete(cmd, "output", string(formatTable), string(formatJSON), string(formatLines))
}

// String implements pflag.Value.
func (f *format) String() string { return string(*f) }

// Set implements pflag.Value.
func (f *format) Set(s string) error {
	switch format(s) {
	case formatTable, formatJSON, formatLines:
		*f = format(s)
		return nil
	}
	return fmt.Errorf("want table, json or jsonl")
}

// Type implements pflag.Value; help shows it.
func (f *format) Type() string { return "FORMAT" }

// lister prints a list as it arrives: JSON as one array, JSON lines one by one, a table at the end.
type lister[T any] struct {
	w      *bufio.Writer
	format format
	count  int
	table  table
	row    func(T) []string
}

// newLister prints to w; header and row define the table.
func newLister[T any](w io.Writer, f format, header []string, row func(T) []string) *lister[T] {
	return &lister[T]{w: bufio.NewWriter(w), format: f, table: table{header: header}, row: row}
}

// add adds one item.
func (l *lister[T]) add(item T) error {
	l.count++
	if l.format == formatTable {
		l.table.rows = append(l.table.rows, l.row(item))
		return nil
	}
	data, err := encodeJSON(item, false)
	if err != nil {
		return err
	}
	if l.format == formatJSON {
		lead := ",\n "
		if l.count == 1 {
			lead = "[\n "
		}
		_, _ = l.w.WriteString(lead)
		_, err = l.w.Write(data)
		return err
	}
	_, _ = l.w.Write(data)
	return l.w.WriteByte('\n')
}

// close ends the list. It prints empty for a table without rows.
func (l *lister[T]) close(empty string) error {
	switch {
	case l.format == formatTable && l.count == 0:
		_, _ = l.w.WriteString(empty + "\n")
	case l.format == formatTable:
		l.table.write(l.w)
	case l.format == formatJSON && l.count == 0:
		_, _ = l.w.WriteString("[]\n")
	case l.format == formatJSON:
		_, _ = l.w.WriteString("\n]\n")
	}
	return l.w.Flush()
}

// encodeJSON encodes like encoding/json but without HTML escapes.
func encodeJSON(v any, indent bool) ([]byte, error) {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if indent {
		enc.SetIndent("", "  ")
	}
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return []byte(strings.TrimSuffix(b.String(), "\n")), nil
}

// messages are API messages whose JSON is that of protojson. It fits messages without computed fields, enums, times and
// 64-bit numbers.
type messages[M proto.Message] []M

// MarshalJSON implements json.Marshaler.
func (l messages[M]) MarshalJSON() ([]byte, error) {
	all := make([][]byte, len(l))
	for i, m := range l {
		var err error
		if all[i], err = (protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}).Marshal(m); err != nil {
			return nil, fmt.Errorf("encode %s: %w", m.ProtoReflect().Descriptor().Name(), err)
		}
	}
	return slices.Concat([]byte("["), bytes.Join(all, []byte(",")), []byte("]")), nil
}

// number is a float64 in JSON: a number, or one of the strings "NaN", "Infinity" and "-Infinity", as in the API.
type number float64

// MarshalJSON implements json.Marshaler.
func (n number) MarshalJSON() ([]byte, error) {
	f := float64(n)
	switch {
	case math.IsNaN(f):
		return []byte(`"NaN"`), nil
	case math.IsInf(f, 1):
		return []byte(`"Infinity"`), nil
	case math.IsInf(f, -1):
		return []byte(`"-Infinity"`), nil
	}
	return json.Marshal(f)
}

// formatMetric formats a metric with six significant digits.
func formatMetric(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }

// formatCount formats a whole number with separated thousands.
func formatCount(n int64) string {
	s := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// formatDuration formats seconds in common units: 4.2s, 3m05s, 2h07m, 3d4h.
func formatDuration(seconds float64) string {
	switch d := time.Duration(seconds * float64(time.Second)); {
	case seconds < 0 || math.IsNaN(seconds):
		return "-"
	case seconds < 60:
		return strconv.FormatFloat(seconds, 'f', 1, 64) + "s"
	case seconds < 3600:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case seconds < 48*3600:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%dd%02dh", int(seconds/86400), int(seconds/3600)%24)
	}
}

// formatGuess formats an estimate in whole seconds.
func formatGuess(seconds float64) string {
	if seconds < 59.5 {
		return strconv.FormatFloat(math.Ceil(seconds), 'f', 0, 64) + "s"
	}
	return formatDuration(seconds)
}

// formatBytes formats a size in binary units.
func formatBytes(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	v, i := float64(n), 0
	for v >= 1024 && i < len(units)-1 {
		v, i = v/1024, i+1
	}
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", v, units[i])
}

// clean removes control characters, so that the output of a user's program cannot move the cursor.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case r < ' ' || r == 0x7f || (r >= 0x80 && r < 0xa0):
			return -1
		}
		return r
	}, s)
}
