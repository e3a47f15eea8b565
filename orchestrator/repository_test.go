package orchestrator_test

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTopLevelHoldsNothingElse(t *testing.T) {
	t.Parallel()
	allowed := strings.Fields("orchestrator worker sdk-python proto examples deploy docs changes " +
		"main.go VERSION go.mod go.sum Makefile README.md CHANGELOG.md LICENSE")
	for _, path := range tracked(t) {
		first, _, _ := strings.Cut(path, "/")
		if !strings.HasPrefix(first, ".") && !slices.Contains(allowed, first) {
			t.Errorf("%s does not belong at the top level", path)
		}
	}
}

// VERSION is the one place that says the version: the SDK's copy follows it, and the binary embeds it.
func TestTheVersionIsSaidOnce(t *testing.T) {
	t.Parallel()
	read := func(path string) string {
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(text))
	}
	release := read("VERSION")
	if !regexp.MustCompile(`^\d+\.\d+\.\d+(-(a|b|rc)\.\d+)?$`).MatchString(release) {
		t.Errorf("VERSION is %q, want such as 1.2.3 or 1.2.3-rc.1", release)
	}
	python := regexp.MustCompile(`-(a|b|rc)\.`).ReplaceAllString(release, "$1")
	if want := `__version__ = "` + python + `"`; !strings.Contains(read("sdk-python/src/outbid/_version.py"), want) {
		t.Errorf("sdk-python/src/outbid/_version.py does not have %s: run make gen", want)
	}
}

// goMod is the output of `go mod edit -json`.
type goMod struct {
	Require []struct {
		Path, Version string
		Indirect      bool
	}
}

func readGoMod(t *testing.T) goMod {
	t.Helper()
	cmd := exec.Command("go", "mod", "edit", "-json")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("read go.mod: %v", err)
	}
	var mod goMod
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatalf("read go.mod: %v", err)
	}
	return mod
}

// directDependencies returns the modules that the repository's own code imports.
func directDependencies(t *testing.T, mod goMod) []string {
	t.Helper()
	used := make(map[string]bool)
	for _, s := range sources(t) {
		for _, path := range s.imports {
			best := ""
			for _, r := range mod.Require {
				if in(path, r.Path) && len(r.Path) > len(best) {
					best = r.Path
				}
			}
			if best != "" {
				used[best] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(used))
}

func TestEveryDependencyHasItsReason(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "docs/develop/dependencies.md"))
	if err != nil {
		t.Fatalf("read the list of dependencies: %v", err)
	}
	var listed []string
	row := regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (.*) \\|$")
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		if len(m[2]) < 20 {
			t.Errorf("docs/develop/dependencies.md: %s needs a reason", m[1])
		}
		listed = append(listed, m[1])
	}
	slices.Sort(listed)
	mod := readGoMod(t)
	imported := directDependencies(t, mod)
	var direct []string
	for _, r := range mod.Require {
		if !r.Indirect {
			direct = append(direct, r.Path)
		}
	}
	slices.Sort(direct)
	if diff := cmp.Diff(direct, imported); diff != "" {
		t.Errorf("go.mod needs go mod tidy (-direct +imported):\n%s", diff)
	}
	if diff := cmp.Diff(listed, imported); diff != "" {
		t.Errorf("docs/develop/dependencies.md does not list what the code imports (-listed +imported):\n%s", diff)
	}
}

// elsewhere are words that tie the repository to one machine or network, with the text required before and after them.
var elsewhere = []struct {
	what, before, after string
	words               []string
}{
	{
		"a package registry's host", `\b`, `\b`, strings.Fields("proxy.golang.org sum.golang.org goproxy.io pypi.org " +
			"pythonhosted.org registry.npmjs.org docker.io index.docker ghcr.io quay.io gcr.io registry-1"),
	},
	{
		"a path of one machine", `(?:^|[\s"'=(:` + "`" + `])/`, `[A-Za-z0-9_.$-]`,
		strings.Fields("home/ root/ work/ Users/ tmp/"),
	},
}

func TestNothingTiesTheRepositoryToOneMachine(t *testing.T) {
	t.Parallel()
	for _, e := range elsewhere {
		var words []string
		for _, word := range e.words {
			words = append(words, regexp.QuoteMeta(word))
		}
		pattern := regexp.MustCompile(e.before + "(?:" + strings.Join(words, "|") + ")" + e.after)
		for _, path := range tracked(t) {
			if path == "go.sum" || path == "LICENSE" || path == "orchestrator/repository_test.go" {
				continue
			}
			if strings.HasPrefix(path, "deploy/image/") && strings.HasPrefix(e.what, "a package registry") {
				continue // it completes short names of images as container runtimes do
			}
			text, err := os.ReadFile(filepath.Join(root, path))
			if err != nil || bytes.IndexByte(text, 0) >= 0 {
				continue // deleted but not yet committed, or not text
			}
			for i, line := range strings.Split(string(text), "\n") {
				// Searching for a word is much cheaper than the pattern, and few lines contain one.
				has := func(word string) bool { return strings.Contains(line, word) }
				if !slices.ContainsFunc(e.words, has) {
					continue
				}
				if found := pattern.FindString(line); found != "" {
					t.Errorf("%s:%d holds %s: %q", path, i+1, e.what, found)
				}
			}
		}
	}
}

// built returns the path of the binary. make test builds it and sets OUTBID_BIN.
func built(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("OUTBID_BIN"); path != "" {
		return path
	}
	if testing.Short() {
		t.Skip("builds the binary")
	}
	path := filepath.Join(t.TempDir(), "outbid")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", path, ".")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return path
}

func TestBinaryStaysSmall(t *testing.T) {
	t.Parallel()
	const ceiling = 80 << 20
	info, err := os.Stat(built(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%.1f MiB", float64(info.Size())/(1<<20))
	if info.Size() > ceiling {
		t.Errorf("the binary has %d bytes, more than %d", info.Size(), ceiling)
	}
}

// listed returns the words of the Makefile in a pattern's group.
func listed(t *testing.T, pattern string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(pattern).FindStringSubmatch(strings.ReplaceAll(string(text), "\\\n", ""))
	if found == nil {
		t.Fatalf("the Makefile has no %s", pattern)
	}
	words := strings.Fields(found[1])
	slices.Sort(words)
	return words
}

// Tests that are skipped under the race detector are run without it by make test. The Makefile names those tests and
// their packages.
func TestWhatIsLeftOutUnderTheRaceDetectorRunsWithoutIt(t *testing.T) {
	t.Parallel()
	tests, folders := map[string]bool{}, map[string]bool{}
	for _, s := range sources(t) {
		if strings.HasSuffix(s.path, "/race_on_test.go") {
			folders[s.dir] = true
		}
		for _, decl := range s.file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && s.test && f.Recv == nil {
				tests[s.dir+" "+f.Name.Name] = true
			}
		}
	}
	where := listed(t, `(?m)^WHOLE_IN := .*,(.*)\)$`)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(folders)), where); diff != "" {
		t.Errorf("the Makefile's WHOLE_IN is not where tests ask for the race detector (-tests +Makefile):\n%s", diff)
	}
	for _, name := range listed(t, `(?m)^WHOLE := (.*)$`) {
		if !slices.ContainsFunc(where, func(dir string) bool { return tests[dir+" "+name] }) {
			t.Errorf("the Makefile's WHOLE names %s, which is in none of %v", name, where)
		}
	}
}
