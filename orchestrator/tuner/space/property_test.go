package space

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/structpb"
	"pgregory.net/rapid"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// genSpace draws a space: up to three levels of groups, with conditions on choices drawn before. A finite space has
// only a few values for each parameter.
func genSpace(t *rapid.T, finite bool) *Space {
	g := generator{t: t, finite: finite}
	s, err := Compile(g.level("", 0), nil)
	if err != nil {
		t.Fatalf("compile: %v", err)
	}
	return s
}

type generator struct {
	t      *rapid.T
	finite bool
	// deciders are the paths of choices over 0, 1 and 2 that conditions may refer to.
	deciders []string
}

func (g *generator) level(prefix string, depth int) map[string]*outbidv1.Parameter {
	params := map[string]*outbidv1.Parameter{}
	for i := range rapid.IntRange(1, 4).Draw(g.t, "parameters") {
		name := fmt.Sprintf("p%d", i)
		p := &outbidv1.Parameter{}
		if len(g.deciders) > 0 && rapid.Bool().Draw(g.t, "conditional") {
			p.When = &outbidv1.Condition{
				Param: rapid.SampledFrom(g.deciders).Draw(g.t, "decider"),
				In:    numbers(rapid.SliceOfNDistinct(rapid.IntRange(0, 2), 1, 2, rapid.ID).Draw(g.t, "in")...),
			}
		}
		kind := rapid.IntRange(0, 5).Draw(g.t, "kind")
		if depth == 2 && kind == 5 {
			kind = 0
		}
		g.fill(p, kind, prefix+name, depth)
		params[name] = p
	}
	return params
}

func numbers(ns ...int) []*structpb.Value {
	var out []*structpb.Value
	for _, n := range ns {
		out = append(out, structpb.NewNumberValue(float64(n)))
	}
	return out
}

func (g *generator) fill(p *outbidv1.Parameter, kind int, path string, depth int) {
	switch kind {
	case 0, 1:
		p.Kind = &outbidv1.Parameter_Choice{Choice: &outbidv1.Choice{Values: numbers(0, 1, 2)}}
		g.deciders = append(g.deciders, path)
	case 2:
		p.Kind = &outbidv1.Parameter_Constant{Constant: structpb.NewStringValue("c")}
	case 3:
		p.Kind = &outbidv1.Parameter_Float{Float: g.float()}
	case 4:
		p.Kind = &outbidv1.Parameter_Int{Int: g.int()}
	default:
		p.Kind = &outbidv1.Parameter_Group{Group: &outbidv1.Group{Space: g.level(path+".", depth+1)}}
	}
}

func (g *generator) float() *outbidv1.FloatRange {
	if g.finite {
		return &outbidv1.FloatRange{Low: 0.5, High: 1.1, Quantum: 0.3}
	}
	low := rapid.Float64Range(1e-6, 1e6).Draw(g.t, "low")
	width := rapid.Float64Range(1e-3, 1e6).Draw(g.t, "width")
	f := &outbidv1.FloatRange{Low: low, High: low + width, Log: rapid.Bool().Draw(g.t, "log")}
	if rapid.Bool().Draw(g.t, "quantised") {
		f.Quantum = (f.High - f.Low) / rapid.Float64Range(1, 1000).Draw(g.t, "steps")
	}
	if !f.Log && rapid.Bool().Draw(g.t, "negative") {
		f.Low, f.High = -f.High, -f.Low
	}
	return f
}

func (g *generator) int() *outbidv1.IntRange {
	if g.finite {
		return &outbidv1.IntRange{Low: 3, High: 9, Quantum: 3}
	}
	low := rapid.Int64Range(1, 1000).Draw(g.t, "low")
	r := &outbidv1.IntRange{Low: low, High: low + rapid.Int64Range(1, 1e6).Draw(g.t, "width")}
	r.Log = rapid.Bool().Draw(g.t, "log")
	r.Quantum = min(rapid.Int64Range(0, 50).Draw(g.t, "quantum"), r.High-r.Low)
	if !r.Log && rapid.Bool().Draw(g.t, "negative") {
		r.Low, r.High = -r.High, -r.Low
	}
	return r
}

func genPoint(t *rapid.T, s *Space) []float64 {
	return rapid.SliceOfN(rapid.Float64Range(0, 1), s.Dims(), s.Dims()).Draw(t, "point")
}

func TestEveryPointIsInTheSpace(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := genSpace(t, false)
		cfg := s.At(genPoint(t, s))
		if err := s.Check(cfg); err != nil {
			t.Fatalf("%v: %v", cfg, err)
		}
		text, err := Canonical(cfg)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(cfg, again); diff != "" {
			t.Fatalf("through canonical JSON (-want +got):\n%s", diff)
		}
		if err := s.Check(again); err != nil {
			t.Fatalf("through canonical JSON: %v", err)
		}
	})
}

func TestPerturbStaysInTheSpace(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := genSpace(t, false)
		cfg := s.At(genPoint(t, s))
		before, err := Canonical(cfg)
		if err != nil {
			t.Fatal(err)
		}
		seed := rapid.Uint64().Draw(t, "seed")
		resample := rapid.SampledFrom([]float64{0, 0.25, 1}).Draw(t, "resample")
		factors := []float64{0.8, 1.2}
		moved := s.Perturb(cfg, rand.New(rand.NewPCG(seed, 1)), resample, factors)
		if err := s.Check(moved); err != nil {
			t.Fatalf("%v: %v", moved, err)
		}
		if after, err := Canonical(cfg); err != nil || after != before {
			t.Fatalf("the configuration itself changed from %s to %s (%v)", before, after, err)
		}
		again := s.Perturb(cfg, rand.New(rand.NewPCG(seed, 1)), resample, factors)
		if diff := cmp.Diff(moved, again); diff != "" {
			t.Fatalf("the same seed moved elsewhere:\n%s", diff)
		}
	})
}

// The grid contains every configuration that a combination of the values gives, once.
func TestGridIsExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := genSpace(t, true)
		if s.Dims() > 7 {
			t.Skip("too many combinations to try them all")
		}
		want := map[string]bool{}
		u := make([]float64, s.Dims())
		// Every parameter of a finite space has three values.
		for n := range int(math.Pow(3, float64(s.Dims()))) {
			for i := range u {
				u[i] = (float64(n%3) + 0.5) / 3
				n /= 3
			}
			text, err := Canonical(s.At(u))
			if err != nil {
				t.Fatal(err)
			}
			want[text] = true
		}
		g, err := s.Grid(5)
		if err != nil {
			t.Fatal(err)
		}
		if g.Size() != len(want) {
			t.Fatalf("size %d, want %d", g.Size(), len(want))
		}
		got := map[string]bool{}
		for i := range g.Size() {
			cfg := g.At(i)
			if err := s.Check(cfg); err != nil {
				t.Fatalf("%v: %v", cfg, err)
			}
			text, err := Canonical(cfg)
			if err != nil {
				t.Fatal(err)
			}
			got[text] = true
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

func TestSpaceContainsItself(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := genSpace(t, rapid.Bool().Draw(t, "finite"))
		if err := s.Contains(s); err != nil {
			t.Fatal(err)
		}
	})
}

// If Contains accepts a space, it has every configuration of the older space, as long as the conditions stay.
func TestContainsMeansContains(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g := generator{t: t}
		var old, now dist
		var err error
		if rapid.Bool().Draw(t, "int") {
			old, err = newInt("old", g.int())
			if err == nil {
				now, err = newInt("now", g.int())
			}
		} else {
			old, err = newFloat("old", g.float())
			if err == nil {
				now, err = newFloat("now", g.float())
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		v := old.at(rapid.Float64Range(0, 0.999999).Draw(t, "u"))
		if containsDist(now, old) == "" {
			if problem := now.check(v); problem != "" {
				t.Fatalf("%#v contains %#v, but %s", now, old, problem)
			}
		}
	})
}
