package orchestrator_test

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// Files and functions should be short enough to read at once. Above the hard limits the test fails; above the soft ones
// it logs them.
const (
	fileLinesSoft, fileLinesHard         = 400, 600
	functionLinesSoft, functionLinesHard = 50, 70
)

func TestFilesAndFunctionsAreShort(t *testing.T) {
	t.Parallel()
	for _, s := range sources(t) {
		if s.generated {
			continue
		}
		switch {
		case s.lines > fileLinesHard:
			t.Errorf("%s has %d lines, more than %d", s.path, s.lines, fileLinesHard)
		case s.lines > fileLinesSoft:
			t.Logf("%s has %d lines", s.path, s.lines)
		}
		for _, decl := range s.file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || s.test || conformance(s.dir) {
				continue
			}
			switch n := s.span(f); {
			case n > functionLinesHard:
				t.Errorf("%s: %s has %d lines, more than %d", s.at(f), f.Name.Name, n, functionLinesHard)
			case n > functionLinesSoft:
				t.Logf("%s: %s has %d lines", s.at(f), f.Name.Name, n)
			}
		}
	}
}

// conformance reports whether a folder is a conformance suite: tests that others can run.
func conformance(dir string) bool {
	return strings.HasSuffix(dir, "test")
}

func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	t.Parallel()
	said := make(map[string]bool)
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		said[s.dir] = said[s.dir] || documented(s.file)
	}
	for dir, ok := range said {
		if !ok {
			t.Errorf("package in %s has no doc comment that begins with \"Package\" or \"Command\"", dir)
		}
	}
}

func documented(f *ast.File) bool {
	text := f.Doc.Text()
	return strings.HasPrefix(text, "Package "+f.Name.Name) || f.Name.Name == "main" && len(text) > 20
}

func TestNothingHappensBeforeMain(t *testing.T) {
	t.Parallel()
	for _, s := range sources(t) {
		if s.generated {
			continue
		}
		for _, decl := range s.file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
				t.Errorf("%s is an init function: say it where it is needed", s.at(f))
			}
		}
	}
}

func TestExportedNamesAreExplained(t *testing.T) {
	t.Parallel()
	for _, s := range sources(t) {
		if s.generated || s.test || s.file.Name.Name == "main" {
			continue
		}
		for _, decl := range s.file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() && d.Doc == nil && exportedReceiver(d) && !saysItself(d) {
					t.Errorf("%s: exported %s has no comment", s.at(d), d.Name.Name)
				}
			case *ast.GenDecl:
				unexplained(t, s, d)
			}
		}
	}
}

// unexplained reports exported types, variables and constants that have no comment, neither directly nor for their
// group.
func unexplained(t *testing.T, s *source, d *ast.GenDecl) {
	t.Helper()
	if d.Tok == token.IMPORT || d.Doc != nil {
		return
	}
	for _, spec := range d.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			if spec.Name.IsExported() && spec.Doc == nil {
				t.Errorf("%s: exported %s has no comment", s.at(spec), spec.Name.Name)
			}
		case *ast.ValueSpec:
			for _, name := range spec.Names {
				if name.IsExported() && spec.Doc == nil && spec.Comment == nil {
					t.Errorf("%s: exported %s has no comment", s.at(spec), name.Name)
				}
			}
		}
	}
}

// saysItself reports whether a method is one of the well-known ones.
func saysItself(d *ast.FuncDecl) bool {
	return d.Recv != nil && slices.Contains([]string{"Error", "Unwrap", "String"}, d.Name.Name)
}

// exportedReceiver reports whether a function has no receiver or one of an exported type.
func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	typ := d.Recv.List[0].Type
	for {
		switch x := typ.(type) {
		case *ast.StarExpr:
			typ = x.X
		case *ast.IndexExpr:
			typ = x.X
		case *ast.IndexListExpr:
			typ = x.X
		case *ast.Ident:
			return x.IsExported()
		default:
			return true
		}
	}
}
