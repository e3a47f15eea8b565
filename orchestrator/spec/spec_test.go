package spec

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// full sets nearly every field.
const full = `
name: full
tenant: vision
labels: {stage: test, "1": "yes", note: "a: b # c"}
space:
  lr: {float: {low: 1e-5, high: 0.1, log: true}}
  drop: {float: {low: 0, high: 0.5, quantum: 0.1}}
  layers: {int: {low: 1, high: 0x10}}
  batch: {int: {low: 32, high: 256, quantum: 32}}
  seed: {constant: 7}
  nothing: {constant: null}
  deep: {constant: {a: [1, 2.5, true, null, "1", "yes", "2020-01-01", 1e300]}}
  opt:
    group:
      space:
        name: {choice: {values: [sgd, adam, "1", 1, 1.5, yes, true, ~, [1, 2], {a: 1}]}}
        momentum: {float: {low: 0.5, high: 0.99}, when: {param: opt.name, in: [sgd]}}
constraints: ["lr * layers < 1", "opt.momentum < 0.9"]
metric: val/accuracy
mode: max
tuner: {pbt: {max_steps: 27, interval: 3, resample: 0}, seed: 18446744073709551615}
resources: {devices: {min: 1, max: 4}, types: [v100], exclude_types: [k80], cpus: 0.5, memory: 4GiB}
limits: {trials: 40, concurrency: 4, steps: 1e4, wall_time: 1d12h, target: 0}
checkpoints: {best: 3, last: true, every: 60s}
max_restarts: 0
hang_timeout: 10m
program:
  shell: |
    cd /tmp
    train --lr {lr} --on "$(date)" '{opt.name}'
  env: {LR: "{lr}", N: 3}
  workdir: /srv/train
  grace: 5s
`

func mustParse(t testing.TB, text string) *outbidv1.SweepSpec {
	t.Helper()
	s, err := Parse([]byte(text))
	if err != nil {
		t.Fatalf("parse: %v", err)
	}
	return s
}

func TestParseReadsEveryField(t *testing.T) {
	t.Parallel()
	s := mustParse(t, full)
	for _, tc := range []struct {
		what      string
		got, want any
	}{
		{"low", s.GetSpace()["lr"].GetFloat().GetLow(), 1e-5},
		{"hexadecimal", s.GetSpace()["layers"].GetInt().GetHigh(), int64(16)},
		{"seed", s.GetTuner().GetSeed(), ^uint64(0)},
		{"resample", s.GetTuner().GetPbt().Resample, new(0.0)},
		{"target", s.GetLimits().Target, new(0.0)},
		{"restarts", s.MaxRestarts, new(int32(0))},
		{"steps", s.GetLimits().GetSteps(), int64(10_000)},
		{"number as text", s.GetProgram().GetEnv()["N"], "3"},
		{"yes as text", s.GetSpace()["opt"].GetGroup().GetSpace()["name"].GetChoice().GetValues()[5].GetStringValue(), "yes"},
	} {
		if diff := cmp.Diff(tc.want, tc.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.what, diff)
		}
	}
	deep := s.GetSpace()["deep"].GetConstant().AsInterface()
	want := map[string]any{"a": []any{1.0, 2.5, true, nil, "1", "yes", "2020-01-01", 1e300}}
	if diff := cmp.Diff(want, deep); diff != "" {
		t.Errorf("free values (-want +got):\n%s", diff)
	}
}

// YAML, protojson's JSON, and JSON with schema names give the same spec.
func TestOneSchema(t *testing.T) {
	t.Parallel()
	s := mustParse(t, full)
	text, err := Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string][]byte{"yaml": text}
	for name, o := range map[string]protojson.MarshalOptions{
		"json": {}, "json with schema names": {UseProtoNames: true, Multiline: true, Indent: "\t"},
	} {
		if texts[name], err = o.Marshal(s); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range texts {
		again, err := Parse(text)
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, text)
			continue
		}
		if diff := cmp.Diff(s, again, protocmp.Transform()); diff != "" {
			t.Errorf("%s (-want +got):\n%s\n%s", name, diff, text)
		}
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	want := &outbidv1.SweepSpec{
		Tenant: "default", MaxRestarts: new(int32(3)), Limits: &outbidv1.Limits{},
		Resources:   &outbidv1.Resources{Devices: &outbidv1.DeviceCount{Min: 1, Max: 1}},
		Checkpoints: &outbidv1.Checkpoints{Best: 1, Every: "30s"},
		Tuner:       &outbidv1.Tuner{Kind: &outbidv1.Tuner_Auto{Auto: &outbidv1.Auto{Sampler: "bayes"}}},
	}
	got := &outbidv1.SweepSpec{}
	Default(got)
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("of an empty spec (-want +got):\n%s", diff)
	}
	for yaml, want := range map[string]string{
		"{grid: {}}":               "{grid: {points: 5}}",
		"{random: {}}":             "{random: {}}",
		"{sobol: }":                "{sobol: {}}",
		"{hyperband: {}}":          "{hyperband: {eta: 3, min_steps: 1, iterations: 1, sampler: random}}",
		"{successive_halving: {}}": "{successive_halving: {eta: 3, min_steps: 1, sampler: random}}",
		"{asha: {}}":               "{asha: {eta: 3, min_steps: 1, form: promote, brackets: 1, sampler: random}}",
		"{median: {}}":             "{median: {grace_steps: 1, min_trials: 3, sampler: random}}",
		"{pbt: {}}":                "{pbt: {population: 10, quantile: 0.2, resample: 0.25, factors: [0.8, 1.2]}}",
	} {
		a, b := tunerOf(t, yaml), tunerOf(t, want)
		Default(a)
		if diff := cmp.Diff(b.GetTuner(), a.GetTuner(), protocmp.Transform()); diff != "" {
			t.Errorf("of %s (-want +got):\n%s", yaml, diff)
		}
		again := proto.CloneOf(a)
		Default(again)
		if !proto.Equal(a, again) {
			t.Errorf("defaults twice change %v into %v", a, again)
		}
	}
}

// tunerOf reads a tuner without defaults.
func tunerOf(t *testing.T, text string) *outbidv1.SweepSpec {
	t.Helper()
	root, err := parseYAML([]byte("tuner: " + text))
	if err != nil {
		t.Fatal(err)
	}
	s := &outbidv1.SweepSpec{}
	if err := decode(newReader(), root, s); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestExamplesAreValid(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../examples/*/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("examples: %v, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "\ntuner:") {
			continue
		}
		if _, err := Parse(text); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func TestAliasesCannotBlowUp(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("space:\n  a0: &a0 {constant: [x, x, x, x, x, x, x, x, x, x]}\n")
	for i := range 12 {
		b.WriteString("  a" + itoa(i+1) + ": {constant: &b" + itoa(i+1) + " [")
		for j := range 10 {
			if j > 0 {
				b.WriteString(", ")
			}
			if i == 0 {
				b.WriteString("[x]")
			} else {
				b.WriteString("*b" + itoa(i))
			}
		}
		b.WriteString("]}\n")
	}
	if _, err := Parse([]byte(b.String())); err == nil || !strings.Contains(err.Error(), "aliases") {
		t.Errorf("got %v, want an error about aliases", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(full))
	f.Add([]byte(good))
	text, err := os.ReadFile("testdata/bad.txt")
	if err != nil {
		f.Fatal(err)
	}
	for block := range strings.SplitSeq(string(text), "\n== ") {
		_, lines, _ := strings.Cut(block, "\n")
		lines, _, _ = strings.Cut(lines, "\n=> ")
		f.Add([]byte(compose(lines)))
	}
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Parse(data)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %q", err)
			}
			return
		}
		text, err := Marshal(s)
		if err != nil {
			t.Fatalf("marshal: %v", err)
		}
		again, err := Parse(text)
		if err != nil {
			t.Fatalf("parse what was marshalled: %v\n%s", err, text)
		}
		if diff := cmp.Diff(s, again, protocmp.Transform(), protocmp.IgnoreEmptyMessages()); diff != "" {
			t.Errorf("round trip (-want +got):\n%s\n%s", diff, text)
		}
	})
}

func TestAProgramThatDrawsNeedsNoSpace(t *testing.T) {
	const spec = "name: digits\nmetric: accuracy\nmode: max\nprogram: {command: [train]}\ntuner: {plugin: {command: [draws]%s}}\n"
	for more, want := range map[string]string{
		"":                     "",
		", rule: {random: {}}": "space: is missing or empty",
		", rule: {sobol: {}}":  "space: is missing or empty",
	} {
		_, err := Parse(fmt.Appendf(nil, spec, more))
		switch {
		case want == "" && err != nil:
			t.Errorf("with%s: %v", more, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("with%s: got %v, want %q", more, err, want)
		}
	}
}

// The word off is text in YAML, as a spec wants it.
func TestMemoryIsAWord(t *testing.T) {
	t.Parallel()
	for _, word := range []string{"on", "off"} {
		s, err := Parse([]byte(good + "memory: " + word + "\n"))
		if err != nil || s.GetMemory() != word {
			t.Errorf("%s: %q, %v", word, s.GetMemory(), err)
		}
	}
}
