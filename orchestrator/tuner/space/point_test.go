package space

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/structpb"
)

const pointed = `{"lr": {"float": {"low": 0, "high": 1}}, "n": {"int": {"low": 1, "high": 9}},
	"opt": {"group": {"space": {"name": {"choice": {"values": ["sgd", "adam"]}},
		"momentum": {"float": {"low": 0, "high": 1}, "when": {"param": "opt.name", "in": ["sgd"]}}}}},
	"noise": {"normal": {"mean": 0, "sd": 1, "quantum": 0.25}}}`

func TestPointIsCompleted(t *testing.T) {
	t.Parallel()
	s := compile(t, pointed)
	half := make([]float64, s.Dims())
	for i := range half {
		half[i] = 0.5
	}
	for name, tc := range map[string]struct{ given, want map[string]any }{
		"whole": {
			map[string]any{"lr": 1, "n": 2, "opt": map[string]any{"name": "sgd", "momentum": 0.9}, "noise": -40},
			Config{"lr": 1.0, "n": int64(2), "opt": map[string]any{"name": "sgd", "momentum": 0.9}, "noise": -40.0},
		},
		"in part": {
			map[string]any{"opt.name": "sgd"},
			Config{"lr": 0.5, "n": int64(5), "opt": map[string]any{"name": "sgd", "momentum": 0.5}, "noise": 0.0},
		},
		"what does not hold is left out": {
			map[string]any{"opt": map[string]any{"name": "adam", "momentum": 0.9}},
			Config{"lr": 0.5, "n": int64(5), "opt": map[string]any{"name": "adam"}, "noise": 0.0},
		},
	} {
		given, err := structpb.NewStruct(tc.given)
		if err != nil {
			t.Fatal(err)
		}
		p, err := s.Point("points[0]", given)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got := s.Complete(p, half)
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if err := s.Check(got); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPointThatCannotBe(t *testing.T) {
	t.Parallel()
	s := compile(t, pointed)
	for want, values := range map[string]map[string]any{
		"points[0].lr: 2 is outside":                  {"lr": 2},
		"points[0].n: 2.5 is not a whole number":      {"n": 2.5},
		`points[0].width: "width" is not a parameter`: {"width": 2},
		`points[0].opt: "opt" is not a parameter`:     {"opt": 2},
		`points[0].opt.rate: "opt.rate" is not`:       {"opt": map[string]any{"rate": 2}},
		"points[0].noise: 0.3 is not a multiple":      {"noise": 0.3},
	} {
		given, err := structpb.NewStruct(values)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Point("points[0]", given); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestBeyond(t *testing.T) {
	t.Parallel()
	s := compile(t, `{"lr": {"float": {"low": 0.01, "high": 1, "log": true}}, "n": {"int": {"low": 1, "high": 9}},
		"q": {"float": {"low": 0, "high": 1}}, "c": {"choice": {"values": ["a", "b"]}}}`)
	nan := math.NaN()
	for _, tc := range []struct {
		name string
		cfg  Config
		want []float64 // c, lr, n, q
	}{
		{"within", Config{"lr": 0.1, "n": int64(5), "q": 0.25, "c": "b"}, []float64{0.75, 0.5, 0.5, 0.25}},
		{"whole numbers as JSON has them", Config{"lr": 1.0, "n": 5.0, "q": 1.0, "c": "a"}, []float64{0.25, 1, 0.5, 1}},
		{"outside", Config{"lr": 10.0, "n": 17.0, "q": -1.0}, []float64{nan, 1.5, 2, -1}},
		{"of other kinds", Config{"lr": -1.0, "n": "many", "q": true, "c": "z"}, []float64{nan, nan, nan, nan}},
	} {
		got := s.Beyond(tc.cfg)
		for i, want := range tc.want {
			if math.IsNaN(want) != math.IsNaN(got[i]) || math.Abs(got[i]-want) > 1e-9 {
				t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
				break
			}
		}
	}
}
