package spec

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/sample"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// keysOf lists the plain keys of every mapping in a text.
func keysOf(node *yaml.Node) []*yaml.Node {
	var keys []*yaml.Node
	for i, inner := range node.Content {
		if node.Kind == yaml.MappingNode && i%2 == 0 {
			if inner.Style == 0 {
				keys = append(keys, inner)
			}
			continue
		}
		keys = append(keys, keysOf(inner)...)
	}
	return keys
}

// rename returns a text with a key replaced.
func rename(text string, key *yaml.Node, word string) string {
	lines := strings.Split(text, "\n")
	line := lines[key.Line-1]
	lines[key.Line-1] = line[:key.Column-1] + word + line[key.Column-1+len(key.Value):]
	return strings.Join(lines, "\n")
}

// TestAnErrorPointsToTheKeyThatWasEdited misspells each key of the examples, one at a time.
func TestAnErrorPointsToTheKeyThatWasEdited(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../examples/*/*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("examples: %v %v", files, err)
	}
	texts := map[string]string{"full": strings.TrimPrefix(full, "\n")}
	for _, file := range append(files, "../cli/example.yaml") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Parse(text); err == nil {
			texts[file] = string(text)
		}
	}
	const word = "zzzz"
	found := 0
	for name, text := range texts {
		var doc yaml.Node
		if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
			t.Fatal(err)
		}
		for _, key := range keysOf(&doc) {
			_, err := Parse([]byte(rename(text, key, word)))
			bad, ok := errors.AsType[*Error](err)
			if !ok || !strings.HasSuffix(bad.Field, word) { // a user-defined name, or a field that is now missing
				continue
			}
			found++
			if bad.Line != key.Line || bad.Column != key.Column {
				t.Errorf("%s: %q of line %d, column %d was misspelt: %v", name, key.Value, key.Line, key.Column, bad)
			}
		}
	}
	if found < 60 {
		t.Errorf("only %d keys were misspelt", found)
	}
}

func TestAServersAnswerIsLocated(t *testing.T) {
	t.Parallel()
	text := []byte("name: a\nresources:\n  devices: {min: 9}\nprogram:\n  env: {KEY: {secret: k}}\n")
	for answer, want := range map[string]string{
		"resources.devices.min: no node has 9": "line 3, column 13: resources.devices.min: no node has 9",
		"resources.types: no node has one":     "line 2, column 1: resources.types: no node has one",
		"program.secrets.KEY: is not set":      "line 5, column 9: program.secrets.KEY: is not set",
		"agent.plugin: has none":               "agent.plugin: has none",
		"the quota is used up: wait":           "the quota is used up: wait",
		"no":                                   "no",
	} {
		if got := Locate(text, answer); got != want {
			t.Errorf("%q became %q, want %q", answer, got, want)
		}
	}
}

func TestASpaceAloneIsReadAsInASpec(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"lr: {float: {low: 0.1, high: 1}}\n", "space:\n  lr: {float: {low: 0.1, high: 1}}\n",
		"lr: {float: {low: 0.1, high: 1}, when: {param: other, in: [1]}}\n",
	} {
		if space, err := ParseSpace([]byte(text)); err != nil || space["lr"].GetFloat().GetHigh() != 1 {
			t.Errorf("%q is %v: %v", text, space, err)
		}
	}
	for text, want := range map[string]string{
		"":                             "the spec is empty",
		"lr:\n  float:\n    min: 1\n":  "line 3, column 5: space.lr.float.min: is not a field here; write low",
		"space: {}\n":                  "space: has no parameters",
		"lr: {float: {low: 1}\nx: 1\n": "line 1, column 1: did not find expected ',' or '}'",
	} {
		if _, err := ParseSpace([]byte(text)); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestASyntaxErrorHasTheLineFromWhichOnATextCannotBeRead(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "", "a: 1\n---\nb: 2\n": "", "default:\n  sweeps: 3\n": "",
		"default:\n  sweeps: 3\n   queued: 4\n":             "line 3, column 4: a field must not begin here; check the indentation against the lines above",
		"default: {sweeps: 3\ntenants:\n  a: {sweeps: 4}\n": "line 1, column 1: did not find expected ',' or '}'",
	} {
		got := ""
		if err := SyntaxError([]byte(text)); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// A spec without a tuner has auto; bayes if it has several objectives; random search if it has more parameters than these take.
func TestASpecWithoutATuner(t *testing.T) {
	t.Parallel()
	bare := func(line string) string { return strings.Replace(good, "tuner: {random: {}}\n", line, 1) }
	for _, line := range []string{"", "tuner: {seed: 3}\n", "tuner: {points: [{lr: 0.01}]}\n"} {
		if s := mustParse(t, bare(line)); tuner.NameOf(s.GetTuner()) != "auto" {
			t.Errorf("%q has the tuner %v", line, s.GetTuner())
		}
	}
	if s := mustParse(t, bare("objectives: [{metric: size, mode: min}]\n")); tuner.NameOf(s.GetTuner()) != "bayes" {
		t.Errorf("with two objectives it is %v", s.GetTuner())
	}
	for n, want := range map[int]string{sample.MostParameters: "auto", sample.MostParameters + 1: "random"} {
		s := mustParse(t, bare(""))
		s.GetProgram().Command = []string{"train"}
		s.Tuner, s.Constraints, s.Space = nil, nil, map[string]*outbidv1.Parameter{}
		for i := range n {
			s.Space[fmt.Sprint("p", i)] = &outbidv1.Parameter{Kind: &outbidv1.Parameter_Float{Float: &outbidv1.FloatRange{Low: 0, High: 1}}}
		}
		if Default(s); tuner.NameOf(s.GetTuner()) != want {
			t.Errorf("with %d parameters it is %v", n, s.GetTuner())
		}
		s.Tuner = &outbidv1.Tuner{Kind: &outbidv1.Tuner_Bayes{Bayes: &outbidv1.BayesianSearch{}}}
		if err := Check(s); (err == nil) != (want == "auto") {
			t.Errorf("bayes with %d parameters: %v", n, err)
		}
		s.Tuner = &outbidv1.Tuner{Kind: &outbidv1.Tuner_Asha{Asha: &outbidv1.Asha{MaxSteps: 9, Sampler: "bayes"}}}
		Default(s)
		if err := Check(s); (err == nil) != (want == "auto") {
			t.Errorf("the sampler bayes with %d parameters: %v", n, err)
		}
	}
}
