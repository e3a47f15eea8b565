package sample

import (
	"encoding/json"
	"errors"
	"math/bits"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/tuner/space"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func compile(t testing.TB, text string, constraints ...string) *space.Space {
	t.Helper()
	var spec outbidv1.SweepSpec
	if err := protojson.Unmarshal([]byte(`{"space":`+text+`}`), &spec); err != nil {
		t.Fatal(err)
	}
	s, err := space.Compile(spec.GetSpace(), constraints)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const mixed = `{
	"lr": {"float": {"low": 0.001, "high": 0.1, "log": true}},
	"n": {"int": {"low": 1, "high": 9}},
	"opt": {"choice": {"values": ["sgd", "adam"]}},
	"momentum": {"float": {"low": 0, "high": 1}, "when": {"param": "opt", "in": ["sgd"]}}
}`

func each(t testing.TB, s *space.Space, seed uint64) map[string]Sampler {
	t.Helper()
	grid, err := NewGrid(s, 4)
	if err != nil {
		t.Fatal(err)
	}
	samplers := map[string]Sampler{"grid": grid}
	for _, name := range []string{"random", "sobol"} {
		if samplers[name], err = New(name, s, seed); err != nil {
			t.Fatal(err)
		}
	}
	return samplers
}

// take draws up to n configurations as canonical JSON.
func take(t testing.TB, s Sampler, n int) []string {
	t.Helper()
	var out []string
	for range n {
		cfg, ok, err := s.Next()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		text, err := space.Canonical(cfg)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, text)
	}
	return out
}

// A restored sampler continues like the one whose snapshot it has.
func TestRestoreContinues(t *testing.T) {
	t.Parallel()
	s := compile(t, mixed, "lr * n < 0.5")
	wide := compile(t, strings.Replace(mixed, `"high": 9`, `"high": 12`, 1), "lr * n < 0.5")
	rapid.Check(t, func(rt *rapid.T) {
		seed, n := rapid.Uint64().Draw(rt, "seed"), rapid.IntRange(0, 30).Draw(rt, "drawn")
		widen := rapid.Bool().Draw(rt, "widen")
		for name, a := range each(t, s, seed) {
			take(t, a, n)
			over := s
			if widen {
				over = wide
				if err := a.Widen(wide); err != nil {
					rt.Fatal(err)
				}
				take(t, a, n/2)
			}
			snapshot, err := a.Snapshot()
			if err != nil {
				rt.Fatal(err)
			}
			b, err := Restore(over, snapshot)
			if err != nil {
				rt.Fatal(err)
			}
			if diff := cmp.Diff(take(t, a, 100), take(t, b, 100)); diff != "" {
				rt.Fatalf("%s (-went on +restored):\n%s", name, diff)
			}
		}
	})
}

func TestSeedsDecide(t *testing.T) {
	t.Parallel()
	s := compile(t, mixed)
	for name, a := range each(t, s, 7) {
		first := take(t, a, 20)
		if diff := cmp.Diff(first, take(t, each(t, s, 7)[name], 20)); diff != "" {
			t.Errorf("%s: the same seed differs:\n%s", name, diff)
		}
		if name != "grid" && cmp.Equal(first, take(t, each(t, s, 8)[name], 20)) {
			t.Errorf("%s: another seed draws the same", name)
		}
	}
}

func TestConstraintsAreKept(t *testing.T) {
	t.Parallel()
	s := compile(t, mixed, "n > 3", "opt == 'adam' or momentum < 0.5")
	for name, a := range each(t, s, 1) {
		for range 50 {
			cfg, ok, err := a.Next()
			if err != nil {
				t.Fatal(err)
			}
			if ok && !s.Allowed(cfg) {
				t.Errorf("%s drew %v", name, cfg)
			}
		}
	}
}

func TestConstraintsThatLeaveNothing(t *testing.T) {
	t.Parallel()
	s := compile(t, mixed, "lr < 1", "n > 9")
	for name, a := range each(t, s, 1) {
		want := `constraints: none of 10000 random configurations meets all of them (the last one breaks "n > 9"); ` +
			"relax them so that they exclude less of the space"
		if name == "grid" {
			want = "constraints: no configuration of the grid meets all of them; relax them or refine the grid"
		}
		if _, _, err := a.Next(); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", name, err, want)
		}
	}
}

func TestBadSnapshots(t *testing.T) {
	t.Parallel()
	s := compile(t, mixed)
	for _, snapshot := range []string{
		"", "{}", `{"kind":"latin"}`, `{"kind":"random","rng":"AAAA"}`, `{"kind":"grid"}`,
		`{"kind":"grid","points":4,"next":1000000}`,
	} {
		if _, err := Restore(s, []byte(snapshot)); !errors.Is(err, ErrBadSnapshot) {
			t.Errorf("%s: got %v, want ErrBadSnapshot", snapshot, err)
		}
	}
	if _, err := New("latin", s, 1); err == nil || err.Error() != `sampler: "latin" is unknown; use random, sobol or bayes` {
		t.Errorf("got %v", err)
	}
}

// The grid draws every configuration once, also if the space becomes wider half way.
func TestGridDrawsAllOnce(t *testing.T) {
	t.Parallel()
	narrow := compile(t, `{"a": {"choice": {"values": [1, 2, 3]}}, "b": {"choice": {"values": [1, 2]}}}`, "a != 2 or b != 2")
	wide := compile(t, `{"a": {"choice": {"values": [1, 2, 3, 4]}}, "b": {"choice": {"values": [1, 2]}}}`, "a != 2 or b != 2")
	for drawn := range 6 {
		g, err := NewGrid(narrow, 5)
		if err != nil {
			t.Fatal(err)
		}
		all := take(t, g, drawn)
		if total, err := g.Total(); err != nil || total != 5 {
			t.Errorf("total of the narrow grid: %d, %v, want 5", total, err)
		}
		if err := g.Widen(wide); err != nil {
			t.Fatal(err)
		}
		if total, err := g.Total(); err != nil || total != 7 {
			t.Errorf("total of the wide grid after %d: %d, %v, want 7", drawn, total, err)
		}
		all = append(all, take(t, g, 100)...)
		distinct := map[string]bool{}
		for _, text := range all {
			distinct[text] = true
		}
		if len(all) != 7 || len(distinct) != 7 {
			t.Errorf("after %d: drew %d, %d of them distinct, want 7", drawn, len(all), len(distinct))
		}
	}
}

// Whole points match those that scipy 1.17.1 draws without scrambling.
func TestSobolAgainstScipy(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/sobol_scipy.json")
	if err != nil {
		t.Fatal(err)
	}
	var want map[uint32][]uint32
	if err := json.Unmarshal(data, &want); err != nil {
		t.Fatal(err)
	}
	v := directions(sobolDims)
	for n, row := range want {
		got := make([]uint32, len(v))
		for d := range v {
			got[d] = sobol(&v[d], n)
		}
		if diff := cmp.Diff(row, got); diff != "" {
			t.Errorf("point %d (-want +got):\n%s", n, diff)
		}
	}
}

// With any scramble, the first 2^k points of every dimension are one in each of 2^k equal intervals, and those of the
// first two dimensions one in each box of every shape with that area: a (0, k, 2)-net.
func TestSobolStaysEven(t *testing.T) {
	t.Parallel()
	const k = 8
	v := directions(sobolDims)
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		rng := rand.New(rand.NewPCG(seed, 0))
		a, b := rng.Uint32(), rng.Uint32()
		d := rapid.IntRange(0, sobolDims-1).Draw(rt, "dimension")
		seen := map[uint32]bool{}
		boxes := map[[3]uint32]bool{}
		for n := range uint32(1 << k) {
			seen[owen(sobol(&v[d], n), a)>>(32-k)] = true
			x, y := owen(sobol(&v[0], n), a), owen(sobol(&v[1], n), b)
			for i := range uint32(k + 1) {
				boxes[[3]uint32{i, top(x, i), top(y, k-i)}] = true
			}
		}
		if len(seen) != 1<<k {
			rt.Fatalf("dimension %d: %d of %d intervals are hit", d, len(seen), 1<<k)
		}
		if want := (k + 1) << k; len(boxes) != want {
			rt.Fatalf("%d of %d boxes are hit", len(boxes), want)
		}
	})
}

// top returns the upper n bits.
func top(x, n uint32) uint32 { return uint32(uint64(x) >> (32 - n)) }

// The scramble is a bijection that preserves common prefixes: numbers with equal upper bits keep equal upper bits.
func TestOwenIsNested(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		x, y, seed := rapid.Uint32().Draw(t, "x"), rapid.Uint32().Draw(t, "y"), rapid.Uint32().Draw(t, "seed")
		before, after := bits.LeadingZeros32(x^y), bits.LeadingZeros32(owen(x, seed)^owen(y, seed))
		if before != after {
			t.Fatalf("%x and %x share %d bits, scrambled %d", x, y, before, after)
		}
	})
}

// Dimensions after the table's are pseudorandom, and the same for the same seed.
func TestManyDimensions(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for i := range 300 {
		if i > 0 {
			b.WriteString(",")
		}
		b.WriteString(`"p` + strings.Repeat("x", i%90) + string(rune('a'+i/90)) + `": {"float": {"low": 0, "high": 1}}`)
	}
	s := compile(t, "{"+b.String()+"}")
	if s.Dims() != 300 {
		t.Fatalf("%d dimensions, want 300", s.Dims())
	}
	sum := 0.0
	q := NewSobol(s, 3)
	for range 64 {
		cfg, _, err := q.Next()
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range cfg {
			f, _ := v.(float64)
			sum += f
		}
	}
	if mean := sum / 64 / 300; mean < 0.48 || mean > 0.52 {
		t.Errorf("mean %v, want about 0.5", mean)
	}
	if cmp.Equal(take(t, NewSobol(s, 3), 3), take(t, NewSobol(s, 4), 3)) {
		t.Error("two seeds draw the same")
	}
}

func BenchmarkNext(b *testing.B) {
	s := compile(b, mixed, "lr * n < 0.5")
	for _, name := range []string{"random", "sobol"} {
		b.Run(name, func(b *testing.B) {
			a, err := New(name, s, 1)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if _, _, err := a.Next(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
