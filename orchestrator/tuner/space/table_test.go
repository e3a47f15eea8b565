package space

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Evenly spread points hit every value of a choice, an int and a quantised range equally often.
func TestValuesAreEquallyLikely(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		param string
		want  []any
	}{
		{`{"choice": {"values": ["a", "b", "c"]}}`, []any{"a", "b", "c"}},
		{`{"int": {"low": -1, "high": 2}}`, []any{int64(-1), int64(0), int64(1), int64(2)}},
		{`{"int": {"low": 1, "high": 10, "quantum": 4}}`, []any{int64(1), int64(5), int64(9)}},
		{`{"float": {"low": 0.1, "high": 0.5, "quantum": 0.1}}`, []any{0.1, 0.2, 0.3, 0.4, 0.5}},
		{`{"float": {"low": 0, "high": 1, "quantum": 0.4}}`, []any{0.0, 0.4, 0.8}},
	} {
		s := compile(t, `{"x": `+tc.param+`}`)
		n := 100 * len(tc.want)
		for i := range n {
			got := s.At([]float64{(float64(i) + 0.5) / float64(n)})["x"]
			if want := tc.want[i/100]; got != want {
				t.Fatalf("%s: point %d of %d is %v, want %v", tc.param, i, n, got, want)
			}
		}
	}
}

// A log scale gives equal shares to equal ratios; a quantised value gets the share of the log scale nearest to it.
func TestLogScale(t *testing.T) {
	t.Parallel()
	const n = 30_000
	s := compile(t, `{"f": {"float": {"low": 0.001, "high": 1, "log": true}}, "i": {"int": {"low": 1, "high": 100, "log": true}}}`)
	decades := map[int]int{}
	ints := map[int64]int{}
	for i := range n {
		u := (float64(i) + 0.5) / n
		cfg := s.At([]float64{u, u})
		f, _ := cfg["f"].(float64)
		k, _ := cfg["i"].(int64)
		decades[int(math.Floor(math.Log10(f)))]++
		ints[k]++
	}
	for _, d := range []int{-3, -2, -1} {
		if got := decades[d]; got != n/3 {
			t.Errorf("decade %d has %d of %d points", d, got, n)
		}
	}
	whole := math.Log(100.5 / 0.5)
	for _, k := range []int64{1, 2, 10, 50, 100} {
		want := math.Log((float64(k)+0.5)/(float64(k)-0.5)) / whole
		if got := float64(ints[k]) / n; math.Abs(got-want) > 1e-3 {
			t.Errorf("%d has a share of %v, want %v", k, got, want)
		}
	}
}

func TestCheckNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	s := compile(t, zoo)
	base := func() Config { return s.At(nil) }
	for _, tc := range []struct {
		change func(Config)
		want   string
	}{
		{func(Config) {}, ""},
		{func(c Config) { delete(c, "lr") }, "lr: is missing from the configuration"},
		{func(c Config) { c["lr"] = 0.2 }, "lr: 0.2 is outside 0.0001 to 0.1"},
		{func(c Config) { c["lr"] = "x" }, `lr: "x" is not a number`},
		{func(c Config) { c["lr"] = math.NaN() }, "lr: NaN is not a number"},
		{func(c Config) { c["dropout"] = 0.25 }, "dropout: 0.25 is not 0 plus a multiple of 0.1"},
		{func(c Config) { c["layers"] = 2.0 }, "layers: 2.0 is not a whole number"},
		{func(c Config) { c["layers"] = int64(9) }, "layers: 9 is outside 1 to 8"},
		{func(c Config) { c["batch"] = int64(33) }, "batch: 33 is not 32 plus a multiple of 32"},
		{func(c Config) { c["epochs"] = int64(6) }, "epochs: 6 is not the constant 5"},
		{
			func(c Config) { c["shape"] = []any{int64(2)} },
			`shape: [2] is not one of [[1,2],{"a":0.5},null,true,"x",3,2.5]`,
		},
		{func(c Config) { c["l2"] = 0.0 }, "l2: is not a parameter; must be one of adam.beta, adam.eps, batch, dropout, epochs, " +
			"layers, lr, momentum, optimizer.damping, optimizer.name, ..."},
		{func(c Config) { c["momentum"] = 0.4 }, "momentum: 0.4 is outside 0.5 to 0.99"},
		{func(c Config) {
			c["optimizer"] = map[string]any{"name": "adam"}
			c["adam"] = map[string]any{"beta": 0.9, "eps": 1e-8}
		}, "momentum: is in the configuration although its condition does not hold"},
		{func(c Config) { c["adam"] = map[string]any{} }, "adam: is in the configuration, against its condition"},
		{func(c Config) { c["optimizer"] = "sgd" }, "optimizer.name: is missing from the configuration"},
		{func(c Config) {
			c["optimizer"] = map[string]any{"name": "adam"}
			delete(c, "momentum")
			c["adam"] = map[string]any{"beta": 0.9, "eps": 1e-8, "gamma": nil}
		}, "adam.gamma: is not a parameter; must be one of adam.beta, adam.eps, batch, dropout, epochs, layers, lr, momentum, " +
			"optimizer.damping, optimizer.name, ..."},
	} {
		cfg := base()
		tc.change(cfg)
		got := ""
		if err := s.Check(cfg); err != nil {
			got = err.Error()
		}
		if got != tc.want {
			t.Errorf("got  %s\nwant %s", got, tc.want)
		}
	}
}

func TestConstraints(t *testing.T) {
	t.Parallel()
	s := compile(t, zoo)
	cfg := s.At(nil)
	for text, want := range map[string]bool{
		"lr * batch < 10":                       true,
		"lr * batch > 10":                       false,
		"layers + width == 17":                  true,
		"batch % 32 == 0":                       true,
		"optimizer.name == 'sgd'":               true,
		`optimizer["name"] == "adam"`:           false,
		"$env.lr < 0.001":                       true,
		"optimizer?.name in ['sgd', 'x']":       true,
		"adam.beta > 5":                         true, // absent, so it holds
		"optimizer.damping > 100":               true, // absent
		"not (adam.beta > 5) and lr > 1":        true, // absent, so the whole constraint holds
		"layers % (layers - 1) == 0":            false,
		"len(shape) == 2 and all(shape, # > 0)": true,
		"max(layers, width, 3) == 16":           true,
		"shape > 3":                             false, // cannot be evaluated for a list
	} {
		s := compile(t, zoo, text)
		if got := s.Allowed(cfg); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
		violated := ""
		if !want {
			violated = text
		}
		if got := s.Violated(cfg); got != violated {
			t.Errorf("%s: violated %q, want %q", text, got, violated)
		}
	}
}

func TestPerturbMoves(t *testing.T) {
	t.Parallel()
	s := compile(t, `{
		"lr": {"float": {"low": 0.001, "high": 1, "log": true}},
		"q": {"float": {"low": 0, "high": 1, "quantum": 0.25}},
		"n": {"int": {"low": 1, "high": 100}},
		"c": {"choice": {"values": ["a", "b", "c", "d"]}},
		"k": {"constant": 1}
	}`)
	cfg := Config{"lr": 0.5, "q": 0.25, "n": int64(2), "c": "b", "k": int64(1)}
	seen := map[any]bool{}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		moved := s.Perturb(cfg, rng, 0, []float64{0.8, 1.2})
		for _, name := range []string{"lr", "q", "n", "c", "k"} {
			seen[[2]any{name, moved[name]}] = true
		}
	}
	want := map[any]bool{
		[2]any{"lr", 0.4}: true, [2]any{"lr", 0.6}: true, [2]any{"q", 0.0}: true, [2]any{"q", 0.5}: true,
		[2]any{"n", int64(1)}: true, [2]any{"n", int64(3)}: true, [2]any{"c", "a"}: true, [2]any{"c", "c"}: true,
		[2]any{"k", int64(1)}: true,
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("reached (-want +got):\n%s", diff)
	}
}

func TestPerturbKeepsConstraints(t *testing.T) {
	t.Parallel()
	const one = `{"n": {"int": {"low": 1, "high": 100}}, "m": {"int": {"low": 1, "high": 100}}}`
	s := compile(t, one, "n + m == 100")
	cfg := Config{"n": int64(50), "m": int64(50)}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		if moved := s.Perturb(cfg, rng, 0, []float64{0.8, 1.2}); !s.Allowed(moved) {
			t.Fatalf("%v breaks the constraint", moved)
		}
	}
	never := compile(t, one, "n == 50 and m == 50")
	if moved := never.Perturb(cfg, rng, 0, []float64{0.8}); !cmp.Equal(cfg, moved) {
		t.Errorf("got %v, want the configuration as it was", moved)
	}
}

func TestGridPoints(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		param  string
		points int
		want   []any
	}{
		{`{"float": {"low": 0, "high": 1}}`, 5, []any{0.0, 0.25, 0.5, 0.75, 1.0}},
		{`{"float": {"low": 0, "high": 1}}`, 1, []any{0.5}},
		{`{"int": {"low": 1, "high": 9}}`, 5, []any{int64(1), int64(3), int64(5), int64(7), int64(9)}},
		{`{"int": {"low": 1, "high": 3}}`, 5, []any{int64(1), int64(2), int64(3)}},
		{`{"int": {"low": 1, "high": 1000, "log": true}}`, 4, []any{int64(1), int64(10), int64(100), int64(1000)}},
		{`{"int": {"low": 1, "high": 6, "log": true}}`, 5, []any{int64(1), int64(2), int64(4), int64(6)}},
		{`{"int": {"low": 0, "high": 6, "quantum": 1}}`, 2, []any{
			int64(0), int64(1), int64(2), int64(3), int64(4), int64(5), int64(6),
		}},
		{`{"constant": "x"}`, 3, []any{"x"}},
	} {
		s := compile(t, `{"x": `+tc.param+`}`)
		g, err := s.Grid(tc.points)
		if err != nil {
			t.Errorf("%s: %v", tc.param, err)
			continue
		}
		var got []any
		for i := range g.Size() {
			got = append(got, g.At(i)["x"])
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.param, diff)
		}
	}
}

func TestContainsNamesWhatIsLost(t *testing.T) {
	t.Parallel()
	const c = `"c": {"choice": {"values": [1, 2, 3]}}`
	for _, tc := range []struct{ old, now, want string }{
		{`{"x": {"constant": 2}}`, `{"x": {"choice": {"values": [1, 2]}}}`, ""},
		{`{"x": {"constant": 2}}`, `{"x": {"int": {"low": 1, "high": 2}}}`, ""},
		{`{"x": {"constant": 5}}`, `{"x": {"int": {"low": 1, "high": 2}}}`, "space.x: 5 is outside 1 to 2, but was a value before"},
		{`{"x": {"int": {"low": 1, "high": 9, "quantum": 4}}}`, `{"x": {"int": {"low": 1, "high": 11, "quantum": 2}}}`, ""},
		{
			`{"x": {"int": {"low": 1, "high": 9, "quantum": 4}}}`, `{"x": {"int": {"low": 0, "high": 12, "quantum": 2}}}`,
			"space.x: steps of 2 from 0 leave out earlier values (steps of 4 from 1)",
		},
		{
			`{"x": {"float": {"low": 0, "high": 1}}}`, `{"x": {"float": {"low": 0, "high": 1, "quantum": 0.1}}}`,
			"space.x: had no quantum before and cannot get one (0.1)",
		},
		{
			`{"x": {"float": {"low": 0, "high": 1, "quantum": 0.1}}}`, `{"x": {"float": {"low": 0, "high": 1, "quantum": 0.2}}}`,
			"space.x: steps of 0.2 from 0 leave out the earlier value 0.1",
		},
		{`{"x": {"float": {"low": 0, "high": 1, "quantum": 0.1}}}`, `{"x": {"float": {"low": -1, "high": 1, "quantum": 0.05}}}`, ""},
		{`{` + c + `, "x": {"constant": 1, "when": {"param": "c", "in": [1]}}}`, `{` + c + `, "x": {"constant": 1}}`, ""},
		{
			`{` + c + `, "x": {"constant": 1, "when": {"param": "c", "in": [1, 2]}}}`,
			`{` + c + `, "x": {"constant": 1, "when": {"param": "c", "in": [1, 3]}}}`,
			"space.x.when: is narrower than before; a condition may only let a parameter be present more often",
		},
	} {
		got := ""
		if err := compile(t, tc.now).Contains(compile(t, tc.old)); err != nil {
			got = err.Error()
		}
		if got != tc.want {
			t.Errorf("%s after %s:\ngot  %s\nwant %s", tc.now, tc.old, got, tc.want)
		}
	}
}
