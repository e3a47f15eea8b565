package program

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/limits"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func TestParseLine(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]record{
		`{"step": 3, "loss": 0.5, "acc": 1}`:            {step: 3, metrics: map[string]float64{"loss": 0.5, "acc": 1}},
		`{"loss": -1e-3}`:                               {step: -1, metrics: map[string]float64{"loss": -1e-3}},
		`{"loss": NaN, "a": Infinity, "b":-Infinity}`:   {step: -1, metrics: map[string]float64{"loss": math.NaN(), "a": math.Inf(1), "b": math.Inf(-1)}},
		`{"loss": 1e999}`:                               {step: -1, metrics: map[string]float64{"loss": math.Inf(1)}},
		`{"step": 3.0, "loss": 1, "checkpoint": "c/d"}`: {step: 3, metrics: map[string]float64{"loss": 1}, checkpoint: "c/d"},
		`{"checkpoint": "c"}`:                           {step: -1, metrics: map[string]float64{}, checkpoint: "c"},
		`{"loss": 1, "note": "NaN \" Infinity", "ok": true, "n": null, "l": [NaN]}`: {step: -1, metrics: map[string]float64{"loss": 1}},
		`{"NaN": NaN}`: {step: -1, metrics: map[string]float64{"NaN": math.NaN()}},
	} {
		got, err := parseLine([]byte(line))
		if err != nil {
			t.Errorf("%s: %v", line, err)
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(record{}), cmpopts.EquateNaNs()); diff != "" {
			t.Errorf("%s: %s", line, diff)
		}
	}
}

func TestParseLineErrors(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		`loss 0.5`:                   "not JSON: invalid character 'l'",
		`{"loss": 0.5`:               "not JSON: it ends too early",
		`[1]`:                        "array; want an object such as",
		`3`:                          "number; want an object",
		`null`:                       "null; want an object",
		`NaN`:                        "string; want an object",
		`{}`:                         "no metric; want one or more numbers",
		`{"step": 1, "loss": "0.5"}`: "no metric",
		`{"step": -1, "loss": 1}`:    "step is -1; want a whole number from 0",
		`{"step": 1.5, "loss": 1}`:   "step is 1.5",
		`{"step": "1", "loss": 1}`:   "step is 1; want",
		`{"step": NaN, "loss": 1}`:   "step is NaN; want",
		`{"checkpoint": 1}`:          "checkpoint is 1; want the path",
		`{"checkpoint": ""}`:         "checkpoint is ; want the path",
		`{"loss": 1} {"loss": 2}`:    "more than one JSON value",
		`{"loss": 1}}`:               "more than one JSON value",
		`{"step": 1e300, "loss": 1}`: "step is 1e300",
		`{"step": 1, "` + strings.Repeat("x", 257) + `": 1}`: "its name has 257 bytes; at most 256 are allowed",
		`{"l\u202eoss": 1}`: "its name has the control character U+202E",
		`{"checkpoint": ["` + strings.Repeat("x", 9999) + `"]}`: "checkpoint is [xxx",
		`{"step": "` + strings.Repeat("x", 9999) + `"}`:         "step is xxx",
		manyMetrics(5000): "too large for one report; its 5000 metrics take ",
	} {
		_, err := parseLine([]byte(line))
		if err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 300 {
			t.Errorf("%.100s: %v, want %q", line, err, want)
		}
	}
	if r, err := parseLine([]byte(manyMetrics(3000))); err != nil || len(r.metrics) != 3000 {
		t.Errorf("many metrics, but not too many: %v", err)
	}
}

// manyMetrics returns a line with n metrics.
func manyMetrics(n int) string {
	line := `{"step": 1`
	for i := range n {
		line += fmt.Sprintf(`,"m%d":1`, i)
	}
	return line + "}"
}

func FuzzParseLine(f *testing.F) {
	for _, line := range []string{
		`{"step": 3, "loss": 0.5}`, `{"loss": NaN}`, `{"a":-Infinity,"checkpoint":"x"}`, `{"s":"\"NaN"}`, `[NaN`, "{\"\\u0000NaN\":1}",
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := parseLine(line)
		if err != nil {
			if text := err.Error(); len(text) > 1000 || !utf8.ValidString(text) {
				t.Errorf("%q: %q", line, text)
			}
			return
		}
		if r.step < -1 || len(r.metrics) == 0 && r.checkpoint == "" {
			t.Errorf("%q gave %+v", line, r)
		}
		if data, err := proto.Marshal(&outbidv1.Report{Seq: 1 << 60, Step: r.step, Metrics: r.metrics}); err != nil || len(data) > limits.Report {
			t.Errorf("%q gives a report of %d bytes, %v", line, len(data), err)
		}
	})
}

// Lines are the same however they are split into reads.
func FuzzReportFile(f *testing.F) {
	f.Add([]byte("{\"loss\": 1}\n\n{\"loss\": 2}\nbad\n{\"loss\": 3}"), 3)
	f.Add([]byte(strings.Repeat("x", maxLine+5)+"\n{\"loss\": 1}\n"), 1000)
	f.Fuzz(func(t *testing.T, text []byte, size int) {
		if size < 1 {
			size = 1
		}
		read := func(chunk int) (seen []string) {
			r := &reportFile{
				handler: func(rec record) { seen = append(seen, "record") },
				bad:     func(line int, err error) { seen = append(seen, err.Error()) },
			}
			for rest := text; len(rest) > 0; {
				n := min(chunk, len(rest))
				r.addData(rest[:n])
				rest = rest[n:]
			}
			return seen
		}
		if diff := cmp.Diff(read(len(text)+1), read(size)); diff != "" {
			t.Error(diff)
		}
	})
}
