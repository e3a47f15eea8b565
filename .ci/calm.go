//go:build ignore

// calm prints the packages whose tests run without the race detector: those that only compute. Neither they and their
// tests nor a package of this module that these import start a goroutine. Usage: go run .ci/calm.go
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// computeAlone are packages that import code with goroutines, but use only the parts that compute. They and their tests
// must not start goroutines themselves.
var computeAlone = []string{
	"orchestrator/sim",            // uses control's Core, not its Loop, and ledgers in memory
	"orchestrator/lab/study",      // the same
	"orchestrator/tuner/registry", // names the plugins' package, but opens no plugin
}

// pkg is what go list says about a package.
type pkg struct {
	ImportPath, Dir                    string
	GoFiles, TestGoFiles, XTestGoFiles []string
	Imports, TestImports, XTestImports []string
	CgoFiles                           []string
}

func main() {
	all, err := list()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	starts := map[string]bool{} // whether a package, without its tests, starts goroutines itself or through an import
	for path := range all {
		if _, err := startsGoroutines(all, path, starts); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	var calm []string
	for path, p := range all {
		tests := slices.Concat(p.TestGoFiles, p.XTestGoFiles)
		busy, err := anyStarts(p.Dir, tests)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		imported := slices.ContainsFunc(slices.Concat(p.TestImports, p.XTestImports), func(i string) bool { return starts[i] })
		reaches := starts[path] || imported
		if slices.ContainsFunc(computeAlone, func(suffix string) bool { return strings.HasSuffix(path, "/"+suffix) }) {
			if reaches, err = anyStarts(p.Dir, p.GoFiles); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		}
		if !reaches && !busy && len(tests) > 0 {
			calm = append(calm, path)
		}
	}
	slices.Sort(calm)
	for _, path := range calm {
		fmt.Println(path)
	}
}

// list returns the module's packages by import path.
func list() (map[string]*pkg, error) {
	cmd := exec.Command("go", "list", "-json", "./...")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	all := map[string]*pkg{}
	for d := json.NewDecoder(out); ; {
		p := new(pkg)
		if err := d.Decode(p); errors.Is(err, io.EOF) {
			return all, cmd.Wait()
		} else if err != nil {
			return nil, errors.Join(err, cmd.Wait())
		}
		all[p.ImportPath] = p
	}
}

// startsGoroutines reports whether a package of this module, or an import of it, starts goroutines.
func startsGoroutines(all map[string]*pkg, path string, known map[string]bool) (bool, error) {
	p := all[path]
	if p == nil || strings.HasSuffix(path, "/proto/outbid/v1") {
		return false, nil // of another module, or generated: only the gateway's streams start goroutines
	}
	if busy, ok := known[path]; ok {
		return busy, nil
	}
	busy, err := anyStarts(p.Dir, slices.Concat(p.GoFiles, p.CgoFiles))
	for _, i := range p.Imports {
		if busy || err != nil {
			break
		}
		busy, err = startsGoroutines(all, i, known)
	}
	known[path] = busy
	return busy, err
}

// anyStarts reports whether one of the files has a go statement or calls a method named Go, such as WaitGroup's.
func anyStarts(dir string, files []string) (bool, error) {
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return false, err
		}
		found := false
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				found = true
			case *ast.CallExpr:
				f, ok := n.Fun.(*ast.SelectorExpr)
				found = found || ok && (f.Sel.Name == "Go" || f.Sel.Name == "AfterFunc")
			}
			return !found
		})
		if found {
			return true, nil
		}
	}
	return false, nil
}
