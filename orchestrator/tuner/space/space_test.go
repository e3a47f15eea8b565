package space

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// params reads the parameters of a space from the JSON of a spec.
func params(t testing.TB, text string) map[string]*outbidv1.Parameter {
	t.Helper()
	var spec outbidv1.SweepSpec
	if err := protojson.Unmarshal([]byte(`{"space":`+text+`}`), &spec); err != nil {
		t.Fatalf("parameters of the test: %v", err)
	}
	return spec.GetSpace()
}

func compile(t testing.TB, text string, constraints ...string) *Space {
	t.Helper()
	s, err := Compile(params(t, text), constraints)
	if err != nil {
		t.Fatalf("compile: %v", err)
	}
	return s
}

// zoo has every kind of parameter, and nested and chained conditions.
const zoo = `{
	"lr": {"float": {"low": 0.0001, "high": 0.1, "log": true}},
	"dropout": {"float": {"low": 0, "high": 0.5, "quantum": 0.1}},
	"momentum": {"float": {"low": 0.5, "high": 0.99}, "when": {"param": "optimizer.name", "in": ["sgd"]}},
	"layers": {"int": {"low": 1, "high": 8}},
	"width": {"int": {"low": 16, "high": 1024, "log": true}},
	"batch": {"int": {"low": 32, "high": 256, "quantum": 32}},
	"epochs": {"constant": 5},
	"shape": {"choice": {"values": [[1, 2], {"a": 0.5}, null, true, "x", 3, 2.5]}},
	"optimizer": {"group": {"space": {
		"name": {"choice": {"values": ["sgd", "adam"]}},
		"nesterov": {"choice": {"values": [true, false]}, "when": {"param": "optimizer.name", "in": ["sgd"]}},
		"damping": {"int": {"low": 0, "high": 3}, "when": {"param": "optimizer.nesterov", "in": [false]}}}}},
	"adam": {"when": {"param": "optimizer.name", "in": ["adam"]},
		"group": {"space": {"beta": {"float": {"low": 0.8, "high": 0.999}}, "eps": {"constant": 1e-8}}}}
}`

func TestAt(t *testing.T) {
	t.Parallel()
	s := compile(t, zoo)
	want := []string{
		"adam.beta", "batch", "dropout", "layers", "lr", "momentum", "optimizer.damping", "optimizer.name",
		"optimizer.nesterov", "shape", "width",
	}
	if diff := cmp.Diff(want, s.Paths()); diff != "" {
		t.Fatalf("paths (-want +got):\n%s", diff)
	}
	low := s.At(nil)
	wantLow := Config{
		"batch": int64(32), "dropout": 0.0, "epochs": int64(5), "layers": int64(1), "lr": 0.0001, "momentum": 0.5,
		"optimizer": map[string]any{"name": "sgd", "nesterov": true},
		"shape":     []any{int64(1), int64(2)}, "width": int64(16),
	}
	if diff := cmp.Diff(wantLow, low); diff != "" {
		t.Errorf("at 0 (-want +got):\n%s", diff)
	}
	u := make([]float64, s.Dims())
	for i := range u {
		u[i] = 2
	}
	wantHigh := Config{
		"batch": int64(256), "dropout": 0.5, "epochs": int64(5), "layers": int64(8),
		"optimizer": map[string]any{"name": "adam"},
		"adam":      map[string]any{"beta": 0.999, "eps": 1e-8},
		"shape":     2.5, "width": int64(1024),
	}
	high := s.At(u)
	if lr, _ := high["lr"].(float64); math.Abs(lr-0.1) > 1e-12 {
		t.Errorf("lr at the end is %v, want 0.1", high["lr"])
	}
	delete(high, "lr")
	if diff := cmp.Diff(wantHigh, high, cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-9 })); diff != "" {
		t.Errorf("at 1 (-want +got):\n%s", diff)
	}
}
