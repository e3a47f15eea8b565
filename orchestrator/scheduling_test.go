package orchestrator_test

import (
	"flag"
	"fmt"
	"go/doc"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/cli"
	"github.com/outbid-dev/outbid/orchestrator/lab"
	labcli "github.com/outbid-dev/outbid/orchestrator/lab/cli"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/registry"
	"github.com/outbid-dev/outbid/orchestrator/sim/experiment"
)

var update = flag.Bool("update", false, "write the generated parts of pages")

// checkGenerated checks that text is between two marks of a page. With -update it writes it there.
func checkGenerated(t *testing.T, name, mark, text string) {
	t.Helper()
	path := filepath.Join(root, name)
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := between(t, name, string(page), mark, text)
	switch {
	case want == string(page):
	case *update:
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s is stale: go test ./orchestrator -run TestGeneratedPartsAreFresh -update", name)
	}
}

// between returns a page with other text between two marks.
func between(t *testing.T, name, page, mark, text string) string {
	t.Helper()
	open, end := "<!-- "+mark+" -->\n", "<!-- /"+mark+" -->"
	before, rest, ok := strings.Cut(page, open)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no %s…%s", name, strings.TrimSpace(open), end)
	}
	return before + open + text + end + after
}

// optionTable lists the options of every policy of a registry except those of another; policies with the same options
// share their rows. Policies without options are listed if the other registry is empty.
func optionTable(of, except registry.Registry) string {
	var b strings.Builder
	b.WriteString("| policy | option | default | meaning |\n|---|---|---|---|\n")
	options := func(name string) []policy.Option {
		return slices.DeleteFunc(of.Options(name), func(o policy.Option) bool { return except.HasOption(name, o.Name) })
	}
	names := of.Names()
	told := map[string]bool{}
	rows := func(policies []string, of []policy.Option) {
		who := "`" + strings.Join(policies, "`, `") + "`"
		if len(of) == 0 {
			fmt.Fprintf(&b, "| %s | none | | |\n", who)
		}
		for _, o := range of {
			value := ""
			if o.Default != "" {
				value = "`" + o.Default + "`"
			}
			fmt.Fprintf(&b, "| %s | `%s` | %s | %s |\n", who, o.Name, value, strings.ReplaceAll(o.Help, "|", `\|`))
			who = ""
		}
	}
	for _, name := range names {
		own := options(name)
		if told[name] || len(own) == 0 && !except.Empty() {
			continue
		}
		alike := slices.DeleteFunc(slices.Clone(names), func(other string) bool { return !slices.Equal(options(other), own) })
		for _, other := range alike {
			told[other] = true
		}
		for _, other := range names {
			if theirs := options(other); !told[other] && len(theirs) >= 5 && containsAll(own, theirs) {
				told[other] = true
				rows(append(slices.Clone(alike), other), theirs)
				own = slices.DeleteFunc(own, func(o policy.Option) bool { return slices.Contains(theirs, o) })
			}
		}
		rows(alike, own)
	}
	return b.String()
}

// containsAll reports whether the options of a policy include those of another.
func containsAll(all, some []policy.Option) bool {
	return !slices.ContainsFunc(some, func(o policy.Option) bool { return !slices.Contains(all, o) })
}

// unrated returns the policies of the lab without a row in the table that rates them.
func unrated(t *testing.T) []string {
	t.Helper()
	rated := append(ratings(t, "docs/reference/lab.md"), registry.Product().Names()...)
	return slices.DeleteFunc(lab.Policies().Names(), func(name string) bool { return slices.Contains(rated, name) })
}

// summaries is a table of policies with the first sentence of the documentation of their packages.
func summaries(t *testing.T, names []string) string {
	t.Helper()
	if len(names) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("| policy | what it does |\n|---|---|\n")
	for _, name := range names {
		p, err := lab.Policies().New(name, nil)
		if err != nil {
			t.Fatal(err)
		}
		kind := reflect.TypeOf(p)
		if kind.Kind() == reflect.Pointer {
			kind = kind.Elem()
		}
		fmt.Fprintf(&b, "| `%s` | %s |\n", name, strings.ReplaceAll(synopsis(t, kind.PkgPath()), "|", `\|`))
	}
	return b.String()
}

// synopsis returns the first sentence of a package's documentation, without the words "Package name".
func synopsis(t *testing.T, path string) string {
	t.Helper()
	dir, _ := local(path)
	for _, s := range sources(t) {
		if s.dir != dir || s.test || s.file.Doc == nil {
			continue
		}
		text := new(doc.Package).Synopsis(s.file.Doc.Text())
		text = strings.TrimSpace(strings.TrimPrefix(text, "Package "+s.file.Name.Name))
		return strings.ToUpper(text[:1]) + text[1:]
	}
	t.Fatalf("%s has no documentation", path)
	return ""
}

// TestGeneratedPartsAreFresh compares the pages with the example, which compiles and passes its test, and with the registry.
func TestGeneratedPartsAreFresh(t *testing.T) {
	t.Parallel()
	example, err := os.ReadFile(filepath.Join(root, "orchestrator/policy/example_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	checkGenerated(t, "docs/develop/add-a-policy.md", "example", "```go\n"+string(example)+"```\n")
	checkGenerated(t, "docs/reference/policies.md", "options", optionTable(registry.Product(), registry.Registry{}))
	checkGenerated(t, "docs/reference/lab.md", "lab-policies", summaries(t, unrated(t)))
	checkGenerated(t, "docs/reference/lab.md", "lab-options", optionTable(lab.Policies(), registry.Product()))
	checkGenerated(t, "docs/reference/lab.md", "lab-commands", cli.CommandReference(labcli.Edition(experiment.Simulate), "sim", "study"))
}
