package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outbid-dev/outbid/orchestrator/settings"
)

// flagValues returns three different values of a flag.
func flagValues(f *pflag.Flag) []string {
	switch f.Value.Type() {
	case "bool":
		return []string{"true", "false", "true"}
	case "int", "int32", "int64":
		return []string{"11", "12", "13"}
	case "duration":
		return []string{"31s", "32s", "33s"}
	case "stringToString":
		return []string{"a=1", "b=2", "c=3"}
	}
	// Flags with units or names accept one of these.
	for _, values := range [][]string{{"one", "two", "three"}, {"1GiB", "2GiB", "3GiB"}, {"11", "12", "13"}, {"host", "none", "host"}} {
		if !slices.ContainsFunc(values, func(v string) bool { return f.Value.Set(v) != nil }) {
			return values
		}
	}
	return nil
}

func configurableCommand(t *testing.T, name string) (*testApp, *cobra.Command) {
	t.Helper()
	app := newTestApp(nil, nil)
	found, _, err := app.rootCommand().Find([]string{name})
	if err != nil {
		t.Fatal(err)
	}
	return app, found
}

// TestEveryFlagIsSetByFileEnvironmentAndFlagInThisOrder sets every flag of serve and worker from each source, and with
// all sources at once.
func TestEveryFlagIsSetByFileEnvironmentAndFlagInThisOrder(t *testing.T) {
	t.Parallel()
	for _, name := range configurables() {
		_, all := configurableCommand(t, name)
		count := 0
		settingsOf(all).Flags.VisitAll(func(f *pflag.Flag) {
			if f.Name == configFlag || f.Name == "help" || all.InheritedFlags().Lookup(f.Name) != nil && !strings.Contains("ca log-level log-format", f.Name) || isOldName(f) {
				return
			}
			count++
			values := flagValues(f)
			if values == nil {
				t.Errorf("%s --%s: add its values to this test", name, f.Name)
				return
			}
			file := filepath.Join(t.TempDir(), "outbid.yaml")
			if err := os.WriteFile(file, fmt.Appendf(nil, "%s:\n  %s: %q\n", name, f.Name, values[0]), 0o600); err != nil {
				t.Fatal(err)
			}
			variable := "OUTBID_" + strings.ToUpper(name+"_"+strings.ReplaceAll(f.Name, "-", "_"))
			for _, c := range []struct {
				flag, env, file bool
				want            string
				source          string
			}{
				{false, false, true, values[0], "file"},
				{false, true, false, values[1], "environment"},
				{true, false, false, values[2], "flag"},
				{false, true, true, values[1], "environment"},
				{true, true, true, values[2], "flag"},
				{true, false, true, values[2], "flag"},
			} {
				app, cmd := configurableCommand(t, name)
				env := map[string]string{}
				if c.env {
					env[variable] = values[1]
				}
				app.getenv = func(name string) string { return env[name] }
				var args []string
				if c.flag {
					args = append(args, "--"+f.Name+"="+values[2])
				}
				if c.file {
					args = append(args, "--config", file)
				}
				if err := cmd.ParseFlags(args); err != nil {
					t.Fatal(err)
				}
				got, err := app.applySettings(cmd, app.configFile(cmd))
				if err != nil {
					t.Errorf("%s --%s: %v", name, f.Name, err)
					continue
				}
				i := slices.IndexFunc(got, func(s settings.Setting) bool { return s.Name == f.Name })
				if i < 0 || strings.Trim(got[i].Value, "[]") != strings.Trim(c.want, "[]") || got[i].Source != c.source || !cmd.Flags().Lookup(f.Name).Changed {
					t.Errorf("%s --%s with flag %t, variable %t, file %t: got %+v, want %s", name, f.Name, c.flag, c.env, c.file, got, c.want)
				}
			}
		})
		if count < 20 {
			t.Errorf("%s has %d settings", name, count)
		}
	}
}

func TestConfigCheckNamesEachError(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := func(name, text string) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	limits := path("limits.yaml", "default: {sweeps: many}")
	for name, c := range map[string]struct {
		text string
		want []string // none: it is valid
	}{
		"empty.yaml": {"", nil},
		"valid.yaml": {"serve: {lease: 20s, policy-option: {grow: 10}, bidder: [a=b c, d=e]}\nworker:\n  label: {rack: r1}\n  devices: cpu:1", nil},
		"types.yaml": {
			"serve:\n  lease: fast\n  samplers: [1]\n  standby: perhaps\nworker:\n  label: r1\n",
			[]string{`:2: serve.lease: must be a duration such as 15s, got "fast"`, ":3: serve.samplers: must be a single value", `:4: serve.standby: must be true or false, got "perhaps"`, `:6: worker.label: must be NAME=VALUE, got "r1"`},
		},
		"unknown.yaml": {"serve:\n  leese: 20s\nagent: {}\n", []string{":2: serve.leese: is not a setting; must be one of accept-ledger-loss, api, audit-log, bidder, bidder-timeout,", ":3: agent: is not a section; must be serve or worker"}},
		"values.yaml":  {"serve:\n  api: 127.0.0.1:0\n  lease: 1s\n", []string{":3: serve.lease 1s: must be at least 3s"}},
		"pair.yaml":    {"serve:\n  api: 127.0.0.1:0\n  standby: true\n", []string{"--standby requires --nats"}},
		"inner.yaml":   {"serve:\n  limits: " + limits + "\n", []string{":2: serve.limits: limits " + limits, "sweeps"}},
		"devices.yaml": {"worker:\n  devices: cpu:x\n", []string{":2: worker.devices: devices \"cpu:x\""}},
		"null.yaml":    {"serve:\n  api:\n", []string{":2: serve.api: must be a single value"}},
		"list.yaml":    {"- serve", []string{":1: ", "must be a mapping"}},
		"syntax.yaml":  {"serve: {", []string{"syntax.yaml"}},
	} {
		app := newTestApp(nil, map[string]string{"OUTBID_SERVE_LEASE": "ignored"})
		code := app.run(t.Context(), []string{"config", "check", path(name, c.text)})
		got := app.out.String() + app.err.String()
		if (code == exitOK) != (c.want == nil) {
			t.Errorf("%s: exit %d\n%s", name, code, got)
		}
		for _, text := range c.want {
			if !strings.Contains(got, text) {
				t.Errorf("%s: %q is not in\n%s", name, text, got)
			}
		}
	}
}

func TestConfigShowHidesPasswords(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "outbid.yaml")
	if err := os.WriteFile(file, []byte("serve:\n  nats: nats://ann:open-sesame@h:4222\n  store: s3://b?secret=open-sesame&endpoint=http://h\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	app := newTestApp(nil, map[string]string{"OUTBID_SERVE_CONFIG": file, "OUTBID_SERVE_LEASE": "20s"})
	wantExit(t, app, app.start(t.Context(), "config", "show", "serve", "-o", "jsonl", "--", "--name", "left"), exitOK)
	for _, want := range []string{
		`{"name":"nats","value":"nats://REDACTED@h:4222","source":"file","where":"` + file + `:2"}`,
		`{"name":"store","value":"s3://b?secret=REDACTED&endpoint=http://h","source":"file","where":"` + file + `:3"}`,
		`{"name":"lease","value":"20s","source":"environment","where":"OUTBID_SERVE_LEASE"}`, `{"name":"name","value":"left","source":"flag","where":"--name"}`,
		`{"name":"policy","value":"outbid","source":"default"}`,
	} {
		if !strings.Contains(app.out.String(), want+"\n") {
			t.Errorf("%s is not in\n%s", want, app.out)
		}
	}
	wrong := newTestApp(nil, map[string]string{"OUTBID_SERVE_LEASE": "fast"})
	wantExit(t, wrong, wrong.start(t.Context(), "serve"), exitUsage)
	if want := `OUTBID_SERVE_LEASE: must be a duration such as 15s, got "fast"`; !strings.Contains(wrong.err.String(), want) {
		t.Errorf("serve printed %q, want %q", wrong.err, want)
	}
	other := newTestApp(nil, nil)
	wantExit(t, other, other.start(t.Context(), "config", "show", "up"), exitUsage)
}
