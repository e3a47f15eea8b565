package cli

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write golden files and docs/reference/cli.md anew")

// goldens are command lines whose complete output is in testdata/golden.
func goldens() map[string][]string {
	return map[string][]string{
		"ls":                 {"ls"},
		"ls-json":            {"ls", "-o", "json"},
		"ls-jsonl":           {"ls", "-o", "jsonl", "--limit", "1"},
		"ls-state":           {"ls", "--state", "paused"},
		"ls-state-bad":       {"ls", "--state", "asleep"},
		"ls-empty-json":      {"ls", "--state", "paused", "-o", "json"},
		"ls-trials":          {"ls", "digits"},
		"ls-trials-best":     {"ls", "digits-2", "--order", "best", "--limit", "1"},
		"ls-trials-state":    {"ls", "digits-2", "--state", "failed", "-o", "jsonl"},
		"ls-order-bad":       {"ls", "digits-2", "--order", "worst"},
		"ls-unknown":         {"ls", "digit"},
		"ls-trial":           {"ls", "digits-2/1"},
		"ls-two":             {"ls", "digits-2", "digits-1"},
		"show":               {"show", "digits"},
		"show-json":          {"show", "digits-1", "-o", "json"},
		"show-trial":         {"show", "digits-2/1"},
		"show-trial-best":    {"show", "digits/best", "-o", "json"},
		"show-trial-failed":  {"show", "digits-2/0"},
		"show-trial-unknown": {"show", "digits-2/9"},
		"show-trial-bad":     {"show", "digits-2/one"},
		"show-missing":       {"show"},
		"show-unknown":       {"show", "nothing-1"},
		"show-step-alone":    {"show", "digits-2/1", "--step", "3"},
		"best":               {"best", "digits"},
		"best-many":          {"best", "digits", "-n", "2", "-o", "json"},
		"best-none":          {"best", "digits-1"},
		"best-bad":           {"best", "digits", "-n", "0"},
		"nodes":              {"nodes"},
		"nodes-cordon":       {"nodes", "cordon", "left", "--reason", "a fan"},
		"nodes-drain":        {"nodes", "drain", "right", "--reason", "a fan"},
		"nodes-detach":       {"nodes", "drain", "left", "--detach"},
		"nodes-uncordon":     {"nodes", "uncordon", "left"},
		"nodes-unknown":      {"nodes", "cordon", "attic"},
		"nodes-force-detach": {"nodes", "drain", "left", "--force", "--detach"},
		"nodes-deadline":     {"nodes", "drain", "left", "--deadline", "0s"},
		"nodes-json":         {"nodes", "-o", "json"},
		"logs":               {"logs", "digits-2"},
		"logs-trial":         {"logs", "digits-2/1", "-t", "-f"},
		"logs-json":          {"logs", "digits-2", "-o", "json"},
		"logs-jsonl":         {"logs", "digits-2", "-o", "jsonl", "-f"},
		"logs-bad":           {"logs", "digits-2", "--tail", "-1"},
		"audit":              {"audit"},
		"audit-since":        {"audit", "--since", "yesterday"},
		"audit-follow-json":  {"audit", "-f", "-o", "json"},
		"audit-verify":       {"audit", "verify"},
		"can-i":              {"auth", "can-i", "get", "digits-1"},
		"can-i-not":          {"auth", "can-i", "delete", "digits-2/1"},
		"can-i-several":      {"auth", "can-i", "update", "sweeps"},
		"can-i-list":         {"auth", "can-i", "--list"},
		"can-i-json":         {"auth", "can-i", "delete", "sweeps/digits-1", "--as", "user", "-o", "json"},
		"can-i-nothing":      {"auth", "can-i"},
		"can-i-list-verb":    {"auth", "can-i", "get", "--list"},
		"retention":          {"retention", "run"},
		"retention-dry":      {"retention", "run", "--dry-run", "--tenant", "vision"},
		"retention-dry-json": {"retention", "run", "--dry-run", "-o", "json"},
		"pause":              {"pause", "digits"},
		"resume-json":        {"resume", "digits-2", "-o", "json"},
		"stop-done":          {"stop", "digits-1"},
		"stop-trial":         {"stop", "digits-2/1", "--reason", "the loss oscillates"},
		"stop-trial-json":    {"stop", "digits-2/best", "-o", "json"},
		"stop-no-trial":      {"stop", "digits-2/99"},
		"retry":              {"retry", "digits-2/1", "--reason", "the disk was full"},
		"retry-json":         {"retry", "digits-2/1", "-o", "json"},
		"retry-sweep":        {"retry", "digits-2"},
		"stop-reason":        {"stop", "digits-2", "--reason", "too long"},
		"extend":             {"extend", "digits-2", "--trials", "40", "--target", "0", "--weight", "2"},
		"extend-nothing":     {"extend", "digits-2"},
		"extend-bad":         {"extend", "digits-2", "--trials", "0"},
		"extend-weight":      {"extend", "digits-2", "--weight", "-1"},
		"what-if":            {"what-if", "--policy", "las", "--sweep", "digits-2", "--weight", "2", "--since", "7d"},
		"what-if-json":       {"what-if", "--policy", "las", "-o", "json"},
		"what-if-bad":        {"what-if", "--policy", "fairest"},
		"what-if-nothing":    {"what-if"},
		"what-if-weight":     {"what-if", "--policy", "las", "--weight", "2"},
		"annotate":           {"annotate", "digits", "--description", "the <baseline>", "--tag", "old,good", "--remove-tag", "draft"},
		"annotate-clear":     {"annotate", "digits-2", "--description", ""},
		"annotate-json":      {"annotate", "digits-1", "--tag", "old", "-o", "json"},
		"annotate-nothing":   {"annotate", "digits-2"},
		"watch":              {"watch", "digits"},
		"watch-done":         {"watch", "digits-1"},
		"watch-json":         {"watch", "digits-2", "-o", "json"},
		"usage":              {"usage", "--month", "2026-04", "--by", "user,label.x"},
		"usage-csv":          {"usage", "--since", "30d", "--until", "2026-05-04T11:00:00Z", "-o", "csv"},
		"usage-json":         {"usage", "--by", "type", "-o", "json"},
		"usage-column":       {"usage", "--by", "node"},
		"usage-time":         {"usage", "--since", "yesterday"},
		"usage-period":       {"usage", "--since", "1h", "--until", "2h"},
		"usage-month":        {"usage", "--month", "2026-04", "--since", "1h"},
		"usage-output":       {"usage", "-o", "xml"},
		"usage-prices":       {"usage", "--prices", "missing.yaml"},
		"version":            {"version"},
		"version-flag":       {"--version"},
		"help":               {"help"},
		"typo":               {"lss"},
		"flag":               {"ls", "--sate", "x"},
		"format-bad":         {"ls", "-o", "xml"},
		"group-typo":         {"token", "mew"},
		"token-create":       {"token", "create", "ci"},
		"token-expires":      {"token", "create", "ci", "--expires", "soon"},
		"token-ls":           {"token", "ls"},
		"token-ls-json":      {"token", "ls", "-o", "json"},
		"token-revoke":       {"token", "revoke", "ci"},
		"token-revoke-none":  {"token", "revoke", "cd"},
		"token-nameless":     {"token", "new"},
		"tls-hostless":       {"tls", "new"},
		"completion-bad":     {"completion", "tcsh"},
		"help-unknown":       {"help", "frobnicate"},
		"ui":                 {"ui", "digits", "--print"},
		"complete-sweeps":    {"__complete", "show", "dig"},
		"complete-trials":    {"__complete", "logs", "digits/"},
		"complete-running":   {"__complete", "pause", ""},
		"complete-files":     {"__complete", "run", ""},
		"complete-formats":   {"__complete", "ls", "-o", ""},
	}
}

func TestOutput(t *testing.T) {
	t.Parallel()
	url, _ := serveFake(t, newFake(), "127.0.0.1:0")
	for name, args := range goldens() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			app := newTestApp(strings.NewReader(""), map[string]string{"OUTBID_URL": url})
			code := app.run(t.Context(), args)
			checkGolden(t, name, bytes.ReplaceAll(transcript(args, app, code), []byte(url), []byte("http://SERVER")))
		})
	}
}

// transcript returns what a user would see, and the exit code.
func transcript(args []string, app *testApp, code int) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "$ outbid %s\n%s", strings.Join(args, " "), app.out)
	if text := app.err.String(); text != "" {
		fmt.Fprintf(&b, "-- stderr --\n%s", text)
	}
	fmt.Fprintf(&b, "-- exit %d --\n", code)
	goVersion := regexp.MustCompile(`go1\.[0-9.]+\S* \w+/\w+`)
	return goVersion.ReplaceAll(b.Bytes(), []byte("GO PLATFORM"))
}

// checkGolden compares with a file in testdata/golden, or writes it with -update.
func checkGolden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", "golden", name+".txt")
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s has changed (-want +got), run the test with -update if that is right:\n%s", path, diff)
	}
}

func TestEveryGoldenHasItsCommandLine(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("testdata", "golden", "*.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		name := strings.TrimSuffix(filepath.Base(f), ".txt")
		if parts := strings.Split(name, "-"); parts[0] == "terminal" {
			if _, ok := terminals()[strings.Join(parts[1:len(parts)-1], "-")]; ok {
				continue
			}
		}
		_, forked := forkedGoldens()[name]
		_, explains := explained()[name]
		if _, ok := goldens()[name]; !ok && !forked && !explains && !strings.HasPrefix(name, "live-") {
			t.Errorf("%s belongs to no command line", f)
		}
	}
}
