package space

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCanonical(t *testing.T) {
	t.Parallel()
	cfg := Config{
		"z": int64(1), "a": 1.0, "tiny": 1e-8, "big": 1e300, "i": int64(math.MinInt64), "s": "é\n<&>", "n": nil,
		"l": []any{true, 0.5, map[string]any{}}, "neg": math.Copysign(0, -1),
	}
	got, err := Canonical(cfg)
	const want = `{"a":1.0,"big":1e+300,"i":-9223372036854775808,"l":[true,0.5,{}],"n":null,"neg":-0.0,` +
		`"s":"é\n<&>","tiny":1e-08,"z":1}`
	if err != nil || got != want {
		t.Errorf("got  %s (%v)\nwant %s", got, err, want)
	}
	if got, err := Canonical(nil); err != nil || got != "{}" {
		t.Errorf("of nothing: %s, %v", got, err)
	}
	for text, cfg := range map[string]Config{
		"a.b[0]: NaN is not a finite number":          {"a": map[string]any{"b": []any{math.NaN()}}},
		"a: +Inf is not a finite number":              {"a": math.Inf(1)},
		`a: "\xff" is not UTF-8`:                      {"a": "\xff"},
		"a: float32 is not a type of a configuration": {"a": float32(1)},
	} {
		if _, err := Canonical(cfg); err == nil || err.Error() != text {
			t.Errorf("got %v, want %s", err, text)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		``:                           "configuration: EOF",
		`[1]`:                        "configuration: [1] is not an object",
		`{} {}`:                      "configuration: has text after the end of its JSON object",
		`{"a": 9223372036854775808}`: "a: 9223372036854775808 is beyond the range of an int64",
		`{"a": {"b": 1e999}}`:        "a.b: 1e999 is beyond the range of a float64",
		strings.Repeat(`{"a":`, 50) + `1` + strings.Repeat(`}`, 50): strings.Repeat("a.", 34) + "a: is nested deeper than 34",
	} {
		if _, err := Parse(text); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}

func FuzzCanonical(f *testing.F) {
	for _, text := range []string{
		`{}`, `{"a":1,"b":1.0,"c":1e5,"d":-0.0,"e":[null,true,"x"],"f":{"g":"\u2028\ud83d\ude00"}}`, `{"a":1}x`, `{"":{"":[]}}`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		cfg, err := Parse(text)
		if err != nil {
			return
		}
		once, err := Canonical(cfg)
		if err != nil {
			t.Fatalf("canonical: %v", err)
		}
		again, err := Parse(once)
		if err != nil {
			t.Fatalf("parse of canonical %s: %v", once, err)
		}
		if diff := cmp.Diff(cfg, again); diff != "" {
			t.Fatalf("round trip (-want +got):\n%s", diff)
		}
		if twice, err := Canonical(again); err != nil || twice != once {
			t.Fatalf("canonical twice: %s, then %s (%v)", once, twice, err)
		}
	})
}

func FuzzConstraint(f *testing.F) {
	for _, text := range []string{
		"lr < 1", "optimizer.name == 'sgd' or adam.beta > 0.9", "all(shape, # > 0)", "1..3", "layers % 0 == 1", "$env",
		"let x = lr; x > 0", "shape?.a ?? 1 > 0", "[lr][5] > 0", "map([1,2], {#}) == shape", "lr matches '('",
		"reduce([1,2,3], #acc + #) > 3", "toJSON(shape) != ''", "fromJSON('1') == 1", "if lr > 0 {true} else {false}",
	} {
		f.Add(text)
	}
	ps := params(f, zoo)
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Compile(ps, []string{text})
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %q", err)
			}
			return
		}
		u := make([]float64, s.Dims())
		for i := range u {
			u[i] = 0.7
		}
		for _, cfg := range []Config{s.At(nil), s.At(u), {}} {
			if s.Allowed(cfg) != (s.Violated(cfg) == "") {
				t.Errorf("%q: Allowed and Violated differ", text)
			}
		}
	})
}
