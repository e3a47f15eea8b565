package suggest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
)

const begin = `{"start": {"sampler": "bayes", "seed": 1, "spec": {"space": {"x": {"float": {"low": 0, "high": 1}}}}}}`

// A sampler learns from the costs that it receives, and a new start forgets them.
func TestServe(t *testing.T) {
	t.Parallel()
	lines := []string{begin}
	for i := range 12 {
		cost := "0.5"
		if i == 5 {
			cost = "null" // a failed trial
		}
		lines = append(lines, `{"ask": true}`, `{"tell": {"trial": `+strconv.Itoa(i)+`, "cost": `+cost+`}}`)
	}
	lines = append(lines, begin, `{"ask": true}`)
	var out bytes.Buffer
	if err := Serve(strings.NewReader(strings.Join(lines, "\n")), &out); err != nil {
		t.Fatal(err)
	}
	replies := json.NewDecoder(&out)
	var xs []float64
	for replies.More() {
		var r struct{ Config struct{ X float64 } }
		if err := replies.Decode(&r); err != nil {
			t.Fatal(err)
		}
		xs = append(xs, r.Config.X)
	}
	if len(xs) != 13 || xs[12] != xs[0] {
		t.Errorf("configurations: %v", xs)
	}
}

// A sampler that gets earlier trials begins with the best of them.
func TestServePast(t *testing.T) {
	t.Parallel()
	var trials []string
	for i := range 12 {
		x := float64(i) / 12
		trials = append(trials, fmt.Sprintf(`{"config": {"x": %v}, "cost": %v}`, x, (x-0.25)*(x-0.25)))
	}
	lines := strings.TrimSuffix(begin, "}}") + `, "past": [[` + strings.Join(trials, ", ") + "]]}}\n" + `{"ask": true}`
	var out bytes.Buffer
	if err := Serve(strings.NewReader(lines), &out); err != nil {
		t.Fatal(err)
	}
	var r struct{ Config struct{ X float64 } }
	if err := json.NewDecoder(&out).Decode(&r); err != nil || math.Abs(r.Config.X-0.25) > 1e-6 {
		t.Errorf("it begins with %v: %v", r, err)
	}
}

// An invalid request ends the session with an error that names the field.
func TestServeErrors(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{"ask": true}`:                              "must be start",
		`{"start": {"spec": {"space": 1}}}`:          "start.spec",
		`{"start": {"sampler": "best", "spec": {}}}`: "sampler",
		`{"start": {"spec": {"space": {"x": {"float": {"low": 1, "high": 0}}}}}}`: "start.space.x",
		`nothing`: "request",
	} {
		if err := Serve(strings.NewReader(in), &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", in, err, want)
		}
	}
}
