package orchestrator_test

import (
	"go/ast"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// mostFiles is the maximum number of files through which one input is followed.
const mostFiles = 10

// The paths in docs/internals/engine.md name files and functions that exist, each file once, and at most mostFiles.
func TestPathsThroughTheControlLoopAreShort(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(root + "/docs/internals/engine.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`(?m)^\| \d+ \|(.*)\|$`).FindAllStringSubmatch(string(text), -1)
	if len(rows) == 0 || len(rows) > mostFiles {
		t.Fatalf("the table has %d rows, the limit is %d", len(rows), mostFiles)
	}
	named := regexp.MustCompile("`([^`]+)`")
	var paths [3][]string
	for _, row := range rows {
		for i, cell := range strings.Split(row[1], "|") {
			var names []string
			for _, m := range named.FindAllStringSubmatch(cell, -1) {
				names = append(names, m[1])
			}
			if slices.Contains(paths[i], names[0]) {
				t.Errorf("a path goes back to %s", names[0])
			}
			paths[i] = append(paths[i], names[0])
			for _, missing := range missingFrom(t, "orchestrator/"+names[0], names[1:]) {
				t.Errorf("%s does not have %s", names[0], missing)
			}
		}
	}
}

// missingFrom returns which functions and types a file does not have, or the file if it does not exist.
func missingFrom(t *testing.T, path string, names []string) []string {
	t.Helper()
	all := sources(t)
	i := slices.IndexFunc(all, func(s *source) bool { return s.path == path })
	if i < 0 {
		return []string{path}
	}
	has := map[string]bool{}
	for _, d := range all[i].file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			has[d.Name.Name] = true
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if s, ok := s.(*ast.TypeSpec); ok {
					has[s.Name.Name] = true
				}
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return has[name] })
}

// The list of decisions in the documentation of this package names files and functions that exist.
func TestDecisionsAreWhereTheDocumentationSays(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`(?m)^//   - .*: (\S+\.go) (\w+)`).FindAllStringSubmatch(string(text), -1)
	if len(rows) < 10 {
		t.Fatalf("doc.go lists %d decisions", len(rows))
	}
	for _, row := range rows {
		for _, missing := range missingFrom(t, "orchestrator/"+row[1], row[2:]) {
			t.Errorf("%s does not have %s", row[1], missing)
		}
	}
}
