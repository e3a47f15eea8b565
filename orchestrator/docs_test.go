package orchestrator_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/cli"
	labcli "github.com/outbid-dev/outbid/orchestrator/lab/cli"
	"github.com/outbid-dev/outbid/orchestrator/sim/experiment"
)

// shown is a line of a shell block in a Markdown file.
type shown struct{ file, line string }

// shownLines returns the lines of every sh block in the repository's Markdown, with continued lines joined.
func shownLines(t *testing.T) []shown {
	t.Helper()
	block := regexp.MustCompile("(?ms)^```(?:sh|bash|console)\\n(.*?)^```")
	var lines []shown
	for _, path := range tracked(t) {
		if !strings.HasSuffix(path, ".md") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, path))
		if os.IsNotExist(err) {
			continue // deleted but not yet committed
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range block.FindAllStringSubmatch(string(text), -1) {
			for line := range strings.SplitSeq(strings.ReplaceAll(m[1], "\\\n", " "), "\n") {
				line = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "$ "))
				if line != "" && !strings.HasPrefix(line, "#") {
					lines = append(lines, shown{path, line})
				}
			}
		}
	}
	return lines
}

// helps caches the output of help, because many lines show the same commands.
type helps map[string]string

func (h helps) of(t *testing.T, words []string) string {
	t.Helper()
	command := strings.Join(words, " ")
	text, ok := h[command]
	if !ok {
		text = help(t, words)
		h[command] = text
	}
	return text
}

// commands splits a line into its simple commands, each as words, without the comment after a #.
func commands(line string) [][]string {
	line, _, _ = strings.Cut(line, " #")
	var found [][]string
	for _, part := range regexp.MustCompile(`\|\||&&|[|;&()]`).Split(line, -1) {
		if words := strings.Fields(part); len(words) > 0 {
			found = append(found, words)
		}
	}
	return found
}

// help returns the output of `PROGRAM WORDS --help`, where the program is outbid or outbid-lab.
func help(t *testing.T, words []string) string {
	t.Helper()
	edition := cli.Product()
	if words[0] == "outbid-lab" {
		edition = labcli.Edition(experiment.Simulate)
	}
	var out bytes.Buffer
	code := cli.Main(t.Context(), edition, append(slices.Clone(words[1:]), "--help"), strings.NewReader(""), &out, &out,
		func(string) string { return "" }, "test")
	if code != 0 {
		return ""
	}
	return out.String()
}

func TestShownCommandsExist(t *testing.T) {
	t.Parallel()
	word := regexp.MustCompile(`^[a-z][a-z-]*$`)
	said := helps{}
	for _, s := range shownLines(t) {
		for _, cmd := range commands(s.line) {
			name := filepath.Base(cmd[0])
			if name != "outbid" && name != "outbid-lab" || strings.Contains(cmd[0], "=") {
				continue
			}
			// The command, and the subcommand if it has any.
			var path []string
			for _, w := range cmd[1:] {
				if !word.MatchString(w) || len(path) == 2 || len(path) == 1 && !slices.Contains([]string{"token", "tls", "worker", "nats", "nodes", "tenant", "secret", "audit", "auth", "backup", "config", "retention"}, path[0]) {
					break
				}
				path = append(path, w)
			}
			text := said.of(t, append([]string{name}, path...))
			if text == "" || len(path) > 0 && !strings.Contains(text, name+" "+strings.Join(path, " ")) {
				t.Errorf("%s shows %q, but there is no command %q", s.file, s.line, strings.Join(path, " "))
				continue
			}
			for _, w := range cmd[1:] {
				flag, _, _ := strings.Cut(w, "=")
				if strings.HasPrefix(flag, "--") && len(flag) > 2 && !strings.Contains(text, flag) {
					t.Errorf("%s shows %q, but outbid %s has no flag %s", s.file, s.line, strings.Join(path, " "), flag)
				}
			}
		}
	}
}

func TestShownTargetsAndFilesExist(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	ours := regexp.MustCompile(`^(examples|deploy|docs|orchestrator|proto|sdk-python)/[A-Za-z0-9_./-]+$`)
	for _, s := range shownLines(t) {
		for _, cmd := range commands(s.line) {
			if cmd[0] == "make" && len(cmd) > 1 && !strings.Contains(string(makefile), "\n"+cmd[1]+":") {
				t.Errorf("%s shows %q, but the Makefile has no such target", s.file, s.line)
			}
			for _, w := range cmd {
				if !ours.MatchString(w) {
					continue
				}
				if _, err := os.Stat(filepath.Join(root, w)); err != nil {
					t.Errorf("%s shows %q, but there is no %s", s.file, s.line, w)
				}
			}
		}
	}
}

// pages returns the text of every tracked Markdown file by path. The changelog is not among them: its entries describe
// earlier versions, and so do their links.
func pages(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, path := range tracked(t) {
		if !strings.HasSuffix(path, ".md") || path == "CHANGELOG.md" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, path))
		if os.IsNotExist(err) {
			continue // deleted but not yet committed
		}
		if err != nil {
			t.Fatal(err)
		}
		texts[path] = string(text)
	}
	return texts
}

var fence = regexp.MustCompile("(?ms)^ *```.*?^ *```")

// anchors returns the anchors of a page's headings as GitHub makes them.
func anchors(text string) map[string]bool {
	heading := regexp.MustCompile(`(?m)^#{1,6} +(.+?) *$`)
	dropped := regexp.MustCompile(`[^\p{L}\p{N}\p{M} _-]`)
	found := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		anchor := strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")
		unique := anchor
		for n := 1; found[unique]; n++ {
			unique = fmt.Sprintf("%s-%d", anchor, n)
		}
		found[unique] = true
	}
	return found
}

func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	link := regexp.MustCompile(`\]\(([^)#\s]*)(?:#([^)\s]*))?\)`)
	texts := pages(t)
	for path, text := range texts {
		for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			target, anchor := m[1], m[2]
			if strings.Contains(target, ":") {
				continue
			}
			to := path
			if target != "" {
				to = filepath.Join(filepath.Dir(path), target)
			}
			if _, err := os.Stat(filepath.Join(root, to)); err != nil {
				t.Errorf("%s links to %s, which does not exist", path, target)
			} else if page, ok := texts[to]; ok && anchor != "" && !anchors(page)[anchor] {
				t.Errorf("%s links to %s#%s, but %s has no such heading", path, target, anchor, to)
			}
		}
	}
}

// isGenerated reports whether a page is written from code, in whole or for the most part, and may have any size.
func isGenerated(path string) bool {
	return strings.HasPrefix(path, "docs/reference/sdk/") ||
		slices.Contains([]string{"docs/reference/cli.md", "docs/reference/lab.md", "docs/reference/sdk.md", "docs/reference/policies.md", "docs/reference/tuners.md"}, path)
}

// TestPagesAreShort keeps every hand-written page readable in one sitting.
func TestPagesAreShort(t *testing.T) {
	t.Parallel()
	const most = 12 << 10
	for path, text := range pages(t) {
		if strings.HasPrefix(path, "docs/") && !isGenerated(path) && len(text) > most {
			t.Errorf("%s has %d bytes, want at most %d: split it, or move details to a reference page", path, len(text), most)
		}
	}
}

// TestDocsAreShort bounds what is written by hand in words, results apart.
func TestDocsAreShort(t *testing.T) {
	t.Parallel()
	words := map[bool]int{}
	for path, text := range pages(t) {
		if strings.HasPrefix(path, "docs/") && !isGenerated(path) {
			words[strings.HasPrefix(path, "docs/research/")] += len(strings.Fields(text))
		}
	}
	for results, most := range map[bool]int{false: 53_000, true: 25_500} {
		if n := words[results]; n > most {
			t.Errorf("the pages by hand (results: %t) have %d words, want at most %d: a fact needs one place", results, n, most)
		} else if n < most/2 {
			t.Errorf("the pages by hand (results: %t) have %d words: are all of them read?", results, n)
		}
	}
	t.Log(words)
}

func TestArchitectureNamesEveryPackage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "docs/internals/architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for _, s := range sources(t) {
		parts := strings.Split(s.dir, "/")
		if seen[s.dir] || len(parts) != 2 || parts[0] != "orchestrator" && parts[0] != "worker" {
			continue
		}
		seen[s.dir] = true
		if !strings.Contains(string(text), "`"+s.dir+"`") {
			t.Errorf("docs/internals/architecture.md does not name %s", s.dir)
		}
	}
}
