package program

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/sanitize"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// record is one line of a report file.
type record struct {
	step       int64 // -1 if the line has none
	metrics    map[string]float64
	checkpoint string
	end        int64 // offset after the line in the report file
}

// parseLine parses one line: a JSON object whose numbers are metrics, with NaN, Infinity and -Infinity as Python
// prints them. "step" and "checkpoint" have their own meanings. Other strings and other values that are not numbers
// are ignored.
func parseLine(line []byte) (record, error) {
	dec := json.NewDecoder(bytes.NewReader(quoteSpecials(line)))
	dec.UseNumber()
	var object map[string]any
	if err := dec.Decode(&object); err != nil {
		return record{}, explain(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return record{}, errors.New("more than one JSON value; want one object per line")
	}
	if object == nil {
		return record{}, errors.New(`null; want an object such as {"step": 1, "loss": 0.5}`)
	}
	r := record{step: -1, metrics: make(map[string]float64, len(object))}
	for key, value := range object {
		if err := r.set(key, value); err != nil {
			return record{}, err
		}
	}
	if len(r.metrics) == 0 && r.checkpoint == "" {
		return record{}, errors.New(`no metric; want one or more numbers, such as {"step": 1, "loss": 0.5}`)
	}
	if n := proto.Size(&outbidv1.Report{Metrics: r.metrics}); n > maxMetrics {
		return record{}, fmt.Errorf("too large for one report; its %d metrics take %d bytes, at most %d are allowed", len(r.metrics), n, maxMetrics)
	}
	return r, nil
}

// maxMetrics is how much the encoded metrics of a report may take; the other fields take the rest of limits.Report.
const maxMetrics = limits.Report - 100

// shownText is how many bytes of a wrong value are quoted in an error.
const shownText = 80

func (r *record) set(key string, value any) error {
	switch key {
	case "step":
		step, err := stepOf(value)
		r.step = step
		return err
	case "checkpoint":
		path, ok := value.(string)
		if !ok || path == "" {
			return fmt.Errorf("checkpoint is %s; want the path of a file or directory", shown(value))
		}
		r.checkpoint = path
		return nil
	}
	switch v := value.(type) {
	case json.Number:
		f, err := strconv.ParseFloat(v.String(), 64)
		if err != nil && !errors.Is(err, strconv.ErrRange) { // out of range: an infinity
			return fmt.Errorf("metric %q is %s, which is not a number", sanitize.Line(key, shownText), shown(v))
		}
		return r.addMetric(key, f)
	case string:
		if f, ok := special(v); ok {
			return r.addMetric(key, f)
		}
	}
	return nil
}

// addMetric adds a metric.
func (r *record) addMetric(name string, value float64) error {
	if err := sanitize.Check(name, limits.Name); err != nil {
		return fmt.Errorf("metric %q; its name %w", sanitize.Line(name, shownText), err)
	}
	r.metrics[name] = value
	return nil
}

// shown returns a value as a short line.
func shown(value any) string { return sanitize.Line(fmt.Sprint(value), shownText) }

func stepOf(value any) (int64, error) {
	number, ok := value.(json.Number)
	if ok {
		if n, err := strconv.ParseInt(number.String(), 10, 64); err == nil && n >= 0 {
			return n, nil
		}
		// 3.0 and 1e3 are whole numbers too.
		f, err := strconv.ParseFloat(number.String(), 64)
		if err == nil && f >= 0 && f < 1<<53 && f == math.Trunc(f) {
			return int64(f), nil
		}
	}
	if text, ok := value.(string); ok {
		value = strings.TrimPrefix(text, mark)
	}
	return 0, fmt.Errorf("step is %s; want a whole number from 0", shown(value))
}

func explain(err error) error {
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) {
		return fmt.Errorf(`%s; want an object such as {"step": 1, "loss": 0.5}`, kind.Value)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("not JSON: it ends too early")
	}
	return fmt.Errorf("not JSON: %w", err)
}

// mark is the prefix of the strings that stand for NaN and the infinities, which JSON cannot express.
const mark = "\x00"

func special(text string) (float64, bool) {
	switch text {
	case mark + "NaN":
		return math.NaN(), true
	case mark + "Infinity":
		return math.Inf(1), true
	case mark + "-Infinity":
		return math.Inf(-1), true
	}
	return 0, false
}

// quoteSpecials quotes NaN, Infinity and -Infinity where they are not part of a string.
func quoteSpecials(line []byte) []byte {
	if !bytes.Contains(line, []byte("NaN")) && !bytes.Contains(line, []byte("Infinity")) {
		return line
	}
	out := make([]byte, 0, len(line)+32)
	quoted := false
	for i := 0; i < len(line); {
		c := line[i]
		if quoted && c == '\\' && i+1 < len(line) {
			out = append(out, c, line[i+1])
			i += 2
			continue
		}
		if c == '"' {
			quoted = !quoted
		}
		if !quoted {
			if word := specialAt(line[i:]); word != "" {
				out = append(out, `"\u0000`+word+`"`...)
				i += len(word)
				continue
			}
		}
		out = append(out, c)
		i++
	}
	return out
}

func specialAt(rest []byte) string {
	for _, word := range []string{"NaN", "-Infinity", "Infinity"} {
		if bytes.HasPrefix(rest, []byte(word)) {
			return word
		}
	}
	return ""
}
