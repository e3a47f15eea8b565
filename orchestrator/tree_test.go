package orchestrator_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const (
	module = "github.com/outbid-dev/outbid"
	root   = ".."
)

// source is a Go file of the repository.
type source struct {
	// path is relative to the root; dir is its folder ("." for the root).
	path, dir string
	file      *ast.File
	fset      *token.FileSet
	lines     int
	imports   []string
	test      bool
	generated bool
}

// at returns a position in the file.
func (s *source) at(n ast.Node) string {
	return s.path + ":" + strconv.Itoa(s.fset.Position(n.Pos()).Line)
}

// span returns the number of lines of a node.
func (s *source) span(n ast.Node) int {
	return s.fset.Position(n.End()).Line - s.fset.Position(n.Pos()).Line + 1
}

// sources returns the Go files of the repository.
func sources(t *testing.T) []*source {
	t.Helper()
	all, err := tree()
	if err != nil {
		t.Fatalf("read the tree: %v", err)
	}
	return all
}

// tree parses every Go file of the repository, once for all tests, which only read it.
var tree = sync.OnceValues(func() ([]*source, error) { //nolint:gochecknoglobals // one parse for all tests
	var all []*source
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "bin" || name == "node_modules") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") {
			return nil
		}
		s, err := parse(path)
		if err != nil {
			return err
		}
		all = append(all, s)
		return nil
	})
	if err == nil && len(all) < 10 {
		err = fmt.Errorf("found only %d Go files: the walk is wrong", len(all))
	}
	return all, err
})

func parse(path string) (*source, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	rel, err := filepath.Rel(root, path)
	if err != nil {
		return nil, err
	}
	s := &source{
		path: filepath.ToSlash(rel), dir: filepath.ToSlash(filepath.Dir(rel)), file: file, fset: fset,
		lines: strings.Count(string(text), "\n"), test: strings.HasSuffix(path, "_test.go"),
		generated: ast.IsGenerated(file),
	}
	for _, spec := range file.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, err
		}
		s.imports = append(s.imports, name)
	}
	return s, nil
}

// in reports whether dir is one of the folders or below one.
func in(dir string, folders ...string) bool {
	return slices.ContainsFunc(folders, func(f string) bool {
		return dir == f || strings.HasPrefix(dir, f+"/")
	})
}

// local returns the folder of an import of this module.
func local(path string) (string, bool) {
	if path == module {
		return ".", true
	}
	return strings.CutPrefix(path, module+"/")
}

// tracked lists the files that git tracks.
func tracked(t *testing.T) []string {
	t.Helper()
	cmd := exec.Command("git", "ls-files")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("not a git checkout: %v", err)
	}
	return strings.Fields(string(out))
}
