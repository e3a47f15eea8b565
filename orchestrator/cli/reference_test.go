package cli

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outbid-dev/outbid/orchestrator/sim/measure"
	"github.com/outbid-dev/outbid/orchestrator/spec"
)

// everyCommand lists the commands of the whole tree.
func everyCommand(cmd *cobra.Command) []*cobra.Command {
	list := []*cobra.Command{cmd}
	for _, c := range cmd.Commands() {
		list = append(list, everyCommand(c)...)
	}
	return list
}

func TestReferenceIsFresh(t *testing.T) {
	t.Parallel()
	got := reference(newTestApp(nil, nil).rootCommand())
	path := filepath.Join("..", "..", "docs", "reference", "cli.md")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("docs/reference/cli.md is stale, write it with `go test ./orchestrator/cli -run TestReferenceIsFresh -update` "+
			"(-want +got):\n%s", diff)
	}
}

func TestEveryCommandExplainsItself(t *testing.T) {
	t.Parallel()
	for _, cmd := range everyCommand(newTestApp(nil, nil).rootCommand()) {
		name := cmd.CommandPath()
		if cmd.Short == "" || cmd.Long == "" || cmd.Example == "" {
			t.Errorf("%s lacks a short text, a long one, or an example", name)
		}
		if strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: the short text ends with a full stop", name)
		}
		for line := range strings.SplitSeq(cmd.Long, "\n") {
			if len(line) > 120 {
				t.Errorf("%s: a line of the long text has %d characters", name, len(line))
			}
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%s: --%s says nothing", name, f.Name)
			}
		})
	}
}

// The help of serve fits on two screens.
func TestHelpOfServeIsShort(t *testing.T) {
	t.Parallel()
	app := newTestApp(nil, nil)
	wantExit(t, app, app.start(t.Context(), "serve", "--help"), exitOK)
	lines := 0
	for line := range strings.Lines(app.out.String()) {
		lines += max(1, (len(line)+helpColumns-1)/helpColumns)
	}
	if lines > 100 {
		t.Errorf("it has %d lines of %d columns", lines, helpColumns)
	}
}

// shellWords splits a command like a shell: quoted text is one word. TestExamplesParse uses it to check that every example
// names an existing command and its flags.
func shellWords(text string) []string {
	words := regexp.MustCompile(`('[^']*'|"[^"]*"|[^\s'"])+`).FindAllString(text, -1)
	for i, word := range words {
		words[i] = regexp.MustCompile(`'([^']*)'|"([^"]*)"`).ReplaceAllString(word, "$1$2")
	}
	return words
}

func TestExamplesParse(t *testing.T) {
	t.Parallel()
	for _, cmd := range everyCommand(newTestApp(nil, nil).rootCommand()) {
		for line := range strings.SplitSeq(cmd.Example, "\n") {
			for _, part := range regexp.MustCompile(`(^|[\s(])outbid `).Split(line, -1)[1:] {
				part, _, _ = strings.Cut(part, ")")
				part, _, _ = strings.Cut(part, "|")
				part, _, _ = strings.Cut(part, "&&")
				part, _, _ = strings.Cut(part, ">")
				args := shellWords(part)
				root := newTestApp(nil, nil).rootCommand()
				found, rest, err := root.Find(args)
				if err == nil {
					found.InitDefaultHelpFlag()
					err = found.ParseFlags(rest)
				}
				if err == nil && found.Args != nil {
					err = found.ValidateArgs(found.Flags().Args())
				}
				if err != nil {
					t.Errorf("%s: example %q: %v", cmd.CommandPath(), strings.TrimSpace(line), err)
				}
			}
		}
	}
}

func TestJSONFieldsAreDocumentedSnakeCase(t *testing.T) {
	t.Parallel()
	for _, v := range []any{
		sweepView{}, pricesView{}, usageView{}, trialView{}, updateView{}, nodeView{}, logView{}, previewView{}, checkView{}, versionView{}, explanationView{},
	} {
		typ := reflect.TypeOf(v)
		for f := range typ.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "" || name != strings.ToLower(name) || f.Tag.Get("doc") == "" {
				t.Errorf("%s.%s: json %q, doc %q", typ.Name(), f.Name, name, f.Tag.Get("doc"))
			}
		}
	}
}

func TestFiguresOfSimAreDefined(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "reference", "figures.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range fieldNames(reflect.TypeFor[measure.Result]()) {
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/reference/figures.md does not define %s", name)
		}
	}
}

func TestExampleSweepIsValid(t *testing.T) {
	t.Parallel()
	if _, err := spec.Parse(exampleSweep); err != nil {
		t.Fatal(err)
	}
}

func TestInitReplacesNothing(t *testing.T) {
	t.Chdir(t.TempDir())
	app := newTestApp(nil, nil)
	wantExit(t, app, app.start(t.Context(), "init"), exitOK)
	wantExit(t, app, app.start(t.Context(), "init"), exitUsage)
	wantExit(t, app, app.start(t.Context(), "init", "--force"), exitOK)
	wantExit(t, app, app.start(t.Context(), "init", "other.yaml"), exitOK)
}

func TestPreviewWithoutAServer(t *testing.T) {
	t.Parallel()
	url, stop := serveFake(t, newFake(), "127.0.0.1:0")
	stop()
	path := writeFile(t, "sweep.yaml", sweepFile)
	app := newTestApp(nil, map[string]string{"OUTBID_URL": url})
	wantExit(t, app, app.start(t.Context(), "preview", path, "--step-seconds", "60"), exitOK)
	checkGolden(t, "live-preview", []byte(app.out.String()))
	app = newTestApp(nil, nil)
	wantExit(t, app, app.start(t.Context(), "preview", path, "--server", url), exitUnreachable)
}

func TestPreviewAsksTheServer(t *testing.T) {
	t.Parallel()
	url, _ := serveFake(t, newFake(), "127.0.0.1:0")
	app := newTestApp(strings.NewReader(sweepFile), map[string]string{"OUTBID_URL": url})
	wantExit(t, app, app.start(t.Context(), "preview", "-", "--step-seconds", "60"), exitOK)
	checkGolden(t, "live-preview-server", []byte(app.out.String()))
}

func TestCompletionScripts(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		app := newTestApp(nil, nil)
		wantExit(t, app, app.start(t.Context(), "completion", shell), exitOK)
		if !strings.Contains(app.out.String(), "__complete") {
			t.Errorf("%s: the script does not ask outbid", shell)
		}
	}
}

// A newcomer's first help shows few commands before all others, and each command is in one group.
func TestHelpBeginsWithEverydayCommands(t *testing.T) {
	t.Parallel()
	app := newTestApp(nil, nil)
	wantExit(t, app, app.start(t.Context(), "help"), exitOK)
	text := app.out.String()
	_, groups, _ := strings.Cut(text, "\n\nEveryday:\n")
	everyday, rest, found := strings.Cut(groups, "\n\n")
	if !found {
		t.Fatalf("help has no group of everyday commands:\n%s", text)
	}
	names := commandNames(everyday)
	if len(names) < 8 || len(names) > 13 {
		t.Errorf("help shows %d everyday commands %v, want 8 to 13: others belong to another group", len(names), names)
	}
	for _, needed := range []string{"init", "up", "run", "ls", "show", "logs", "stop"} {
		if !slices.Contains(names, needed) {
			t.Errorf("%s is not among the everyday commands %v", needed, names)
		}
	}
	rest, _, _ = strings.Cut(rest, "\nFlags:")
	all := slices.Concat(names, commandNames(rest))
	slices.Sort(all)
	if once := slices.Compact(slices.Clone(all)); !slices.Equal(once, all) {
		t.Errorf("help shows commands twice: %v", all)
	}
}

// commandNames returns the names of the commands in a part of a help text.
func commandNames(part string) (names []string) {
	for line := range strings.Lines(part) {
		if fields := strings.Fields(line); strings.HasPrefix(line, "  ") && len(fields) > 1 {
			names = append(names, fields[0])
		}
	}
	return names
}
