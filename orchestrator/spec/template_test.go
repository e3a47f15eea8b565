package spec

import (
	"context"
	"os/exec"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/tuner/space"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func TestRender(t *testing.T) {
	t.Parallel()
	cfg := space.Config{
		"lr": 0.001, "layers": int64(3), "whole": 2.0, "tiny": 1e-8, "on": true, "none": nil, "name": "it's a $x \"`",
		"list": []any{int64(1), "b"}, "opt": map[string]any{"name": "sgd", "nesterov": false},
	}
	const name = "it's a $x \"`"
	tests := []struct {
		title   string
		program *outbidv1.Program
		argv    []string
		env     map[string]string
	}{
		{
			title: "values",
			program: &outbidv1.Program{Command: []string{
				"train", "--lr={lr}", "{layers}", "{whole}", "{tiny}", "{on}", "{none}", "{name}", "{list}",
			}},
			argv: []string{"train", "--lr=0.001", "3", "2.0", "1e-08", "true", "null", name, `[1,"b"]`},
		},
		{
			title:   "nested, absent and braces",
			program: &outbidv1.Program{Command: []string{"{opt.name}-{opt.nesterov}", "[{opt.beta}{gone.far}]", "{{}}{{lr}}"}},
			argv:    []string{"sgd-false", "[]", "{}{lr}"},
		},
		{
			title:   "environment",
			program: &outbidv1.Program{Command: []string{"a"}, Env: map[string]string{"LR": "{lr}", "N": "x{{"}},
			argv:    []string{"a"},
			env:     map[string]string{"LR": "0.001", "N": "x{"},
		},
		{
			title:   "shell, bare",
			program: &outbidv1.Program{Shell: "train {lr} {name} [{gone}]"},
			argv:    []string{"/bin/sh", "-c", `train 0.001 'it'\''s a $x "` + "`" + `' ['']`},
		},
		{
			title:   "shell, quoted",
			program: &outbidv1.Program{Shell: `a "{lr} {name}" '{name}' "$(b {name})" # it's {lr}`},
			argv: []string{
				"/bin/sh", "-c", `a "0.001 it's a \$x \"\` + "`" + `" 'it'\''s a $x "` + "`" + `' "$(b 'it'\''s a $x "` + "`" +
					`')" # it's 0.001`,
			},
		},
	}
	for _, tc := range tests {
		argv, env, err := Render(tc.program, cfg)
		if err != nil {
			t.Errorf("%s: %v", tc.title, err)
		}
		if tc.env == nil {
			tc.env = map[string]string{}
		}
		if diff := cmp.Diff(tc.argv, argv); diff != "" {
			t.Errorf("%s: argv (-want +got):\n%s", tc.title, diff)
		}
		if diff := cmp.Diff(tc.env, env); diff != "" {
			t.Errorf("%s: env (-want +got):\n%s", tc.title, diff)
		}
	}
}

func TestRenderRefusesZeroBytes(t *testing.T) {
	t.Parallel()
	_, _, err := Render(&outbidv1.Program{Command: []string{"a", "{s}"}}, space.Config{"s": "a\x00b"})
	const want = "program.command[1]: parameter s has a zero byte, which a command line cannot contain"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// A real shell passes any value unchanged: unquoted, in ” and in "".
func TestShellGetsValuesWhole(t *testing.T) {
	t.Parallel()
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no shell here")
	}
	p := &outbidv1.Program{Shell: `printf '%s\n' {v} "{v}" '{v}' "$(printf %s {v}; echo .)" a{v}b ; : "${{x:-y}}"`}
	rapid.Check(t, func(rt *rapid.T) {
		v := rapid.StringOf(rapid.SampledFrom([]rune("ab '\"\\$`!*?~#()&;|<>{}[]\t=é"))).Draw(rt, "value")
		argv, _, err := Render(p, space.Config{"v": v})
		if err != nil {
			rt.Fatal(err)
		}
		out, err := exec.CommandContext(context.Background(), sh, argv[1:]...).CombinedOutput()
		if err != nil {
			rt.Fatalf("%q: %v: %s", argv, err, out)
		}
		if want := v + "\n" + v + "\n" + v + "\n" + v + ".\na" + v + "b\n"; string(out) != want {
			rt.Fatalf("the shell printed %q, want %q", out, want)
		}
	})
}

func FuzzRender(f *testing.F) {
	for _, s := range []string{"", "{lr}", "{{}}", "{", "}", "'{lr}'", `"$({lr})" # '`, "{a.b.c}", "\\{lr}"} {
		f.Add(s, "v")
	}
	f.Fuzz(func(t *testing.T, template, v string) {
		cfg := space.Config{"lr": v, "a": map[string]any{"b": map[string]any{"c": 0.5}}}
		p := &outbidv1.Program{Command: []string{template}, Shell: template, Env: map[string]string{"X": template}}
		argv, env, err := Render(p, cfg)
		if err == nil && (len(argv) == 0 || len(env) != 1) {
			t.Errorf("argv %q, env %q", argv, env)
		}
	})
}
