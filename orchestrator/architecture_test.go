package orchestrator_test

import (
	"go/ast"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// purePackages are the deterministic packages. impureSubpackages are subpackages that are exempt.
var (
	purePackages = []string{
		"orchestrator/state", "orchestrator/cluster", "orchestrator/tuner", "orchestrator/curve",
		"orchestrator/bidder", "orchestrator/policy", "orchestrator/lab/policy", "orchestrator/fork", "orchestrator/spec/terms", "orchestrator/sanitize",
		"orchestrator/limits", "orchestrator/explain",
	}
	impureSubpackages = []string{"orchestrator/tuner/plugin", "orchestrator/bidder/plugin", "orchestrator/explain/evidence"}
)

// pureMayImport are the modules that a deterministic package may use, because they only compute.
var pureMayImport = []string{
	"google.golang.org/protobuf", "gonum.org/v1/gonum", "github.com/expr-lang/expr", "sigs.k8s.io/yaml",
	"github.com/google/go-cmp", "pgregory.net/rapid", "github.com/benbjohnson/immutable", "github.com/dustin/go-humanize",
}

// pureMayNotImport are the packages of the standard library that do I/O or have hidden state.
var pureMayNotImport = []string{
	"net", "os", "sync", "log", "math/rand", "crypto/rand", "runtime", "syscall", "unsafe", "plugin", "database",
	"context",
}

// clockCalls are the names in package time that read the clock or wait for it.
var clockCalls = []string{"Now", "Sleep", "After", "AfterFunc", "Since", "Until", "NewTimer", "NewTicker", "Tick"}

// seededNames are the names in math/rand/v2 that do not use a global generator.
var seededNames = []string{
	"New", "NewPCG", "NewChaCha8", "NewZipf", "Rand", "PCG", "ChaCha8", "Zipf", "Source",
}

func pure(s *source) bool {
	return !s.test && in(s.dir, purePackages...) && !in(s.dir, impureSubpackages...)
}

func TestPurePackagesImportNothingImpure(t *testing.T) {
	t.Parallel()
	for _, s := range sources(t) {
		if !pure(s) {
			continue
		}
		for _, path := range s.imports {
			if why := impure(path); why != "" {
				t.Errorf("%s imports %s: %s", s.path, path, why)
			}
		}
	}
}

// impure explains why a deterministic package must not import a package, or returns "" if it may.
func impure(path string) string {
	if dir, ok := local(path); ok {
		if in(dir, "proto") || in(dir, purePackages...) && !in(dir, impureSubpackages...) {
			return ""
		}
		return "a pure package may import only pure packages and the messages"
	}
	if path != "math/rand/v2" && in(path, pureMayNotImport...) {
		return "it does I/O, waits, or hides state"
	}
	first, _, _ := strings.Cut(path, "/")
	if strings.Contains(first, ".") && !in(path, pureMayImport...) {
		return "it is not in the list of modules that only compute"
	}
	return ""
}

func TestPurePackagesReadNoClockAndNoHiddenRandomness(t *testing.T) {
	t.Parallel()
	for _, s := range sources(t) {
		if !pure(s) {
			continue
		}
		names := importNames(s)
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s starts a goroutine in a pure package", s.at(n))
			case *ast.SelectorExpr:
				x, ok := n.X.(*ast.Ident)
				if !ok {
					return true
				}
				switch pkg := names[x.Name]; {
				case pkg == "time" && slices.Contains(clockCalls, n.Sel.Name):
					t.Errorf("%s uses time.%s in a pure package: take the time as an argument", s.at(n), n.Sel.Name)
				case pkg == "math/rand/v2" && !slices.Contains(seededNames, n.Sel.Name):
					t.Errorf("%s uses rand.%s, which draws from a global generator", s.at(n), n.Sel.Name)
				}
			}
			return true
		})
	}
}

// importNames maps the names of a file's imports to their paths.
func importNames(s *source) map[string]string {
	names := make(map[string]string)
	for i, spec := range s.file.Imports {
		path := s.imports[i]
		parts := strings.Split(path, "/")
		name := parts[len(parts)-1]
		if _, err := strconv.Atoi(strings.TrimPrefix(name, "v")); err == nil && len(parts) > 1 {
			name = parts[len(parts)-2]
		}
		if spec.Name != nil {
			name = spec.Name.Name
		}
		names[name] = path
	}
	return names
}

// A wall forbids the files in from to import the packages in to.
type wall struct {
	from, to, except []string
	// tests applies the wall to tests as well.
	tests bool
	why   string
}

func orchestratorPackages(names ...string) []string {
	paths := make([]string, len(names))
	for i, name := range names {
		paths[i] = "orchestrator/" + name
	}
	return paths
}

// walls lists the forbidden dependencies.
func walls() []wall {
	return []wall{
		{
			from: []string{"orchestrator/api"},
			to:   orchestratorPackages("policy", "cluster", "bidder", "fork", "curve", "ledger", "sim", "server", "cli"),
			why:  "api decides nothing: it passes commands to control and shows the state",
		},
		{
			from: []string{"worker"},
			to: orchestratorPackages("state", "control", "ledger", "policy", "tuner", "cluster", "bidder", "fork", "curve",
				"api", "sim", "server", "cli", "history"),
			why: "a worker reads orders, not the state",
		},
		{
			from: []string{"orchestrator", "worker"}, except: orchestratorPackages("sim", "cli", "lab"),
			to:  orchestratorPackages("sim"),
			why: "only the command line, the lab and tests may import sim",
		},
		{
			from: []string{"orchestrator", "worker"}, except: orchestratorPackages("cli", "lab"),
			to:    orchestratorPackages("cli"),
			tests: true, why: "nothing below the command line may depend on it",
		},
		{
			from: []string{".", "orchestrator", "worker", "proto", "examples"}, except: orchestratorPackages("lab"),
			to:  orchestratorPackages("lab"),
			why: "the product does not contain what only comparisons need",
		},
		{
			from: []string{"orchestrator", "worker"}, except: orchestratorPackages("cli", "server", "endtoend"),
			to:    orchestratorPackages("server"),
			tests: true, why: "the packages that a server consists of may not depend on it",
		},
		{
			from: []string{"orchestrator"}, except: orchestratorPackages("cli", "server", "sim"),
			to:  []string{"worker"},
			why: "the orchestrator reaches workers over the bus",
		},
		{
			from: orchestratorPackages("ledger", "objects", "bus", "checkpoint", "checksum"),
			to:   orchestratorPackages("control", "api", "server", "cli", "sim", "state", "policy", "tuner"),
			why:  "imports follow the arrows of docs/internals/architecture.md",
		},
		{
			from: []string{"orchestrator/control"},
			to:   orchestratorPackages("api", "server", "cli", "sim"),
			why:  "imports follow the arrows of docs/internals/architecture.md",
		},
		{
			from: []string{"proto"}, to: []string{"orchestrator", "worker"}, tests: true,
			why: "the messages depend on no other package",
		},
		{
			from: []string{"."}, except: []string{"orchestrator", "worker", "proto", "examples"},
			to:  append(orchestratorPackages("api", "control", "state", "bus", "ledger", "objects", "server", "sim"), "worker"),
			why: "main only calls orchestrator/cli",
		},
	}
}

func TestForbiddenImports(t *testing.T) {
	t.Parallel()
	all := sources(t)
	for _, w := range walls() {
		for _, s := range all {
			inside := in(s.dir, w.from...) || slices.Contains(w.from, ".") && s.dir == "."
			// This package's own tests read every part.
			if !inside || in(s.dir, w.except...) || s.test && !w.tests || s.dir == "orchestrator" {
				continue
			}
			for _, path := range s.imports {
				if dir, ok := local(path); ok && in(dir, w.to...) {
					t.Errorf("%s imports %s: %s", s.path, dir, w.why)
				}
			}
		}
	}
}

// NATS syncs the files of a new stream, which takes a busy disk longer than its client waits. Package bus waits for it.
func TestStreamsAreMadeOnlyByTheBus(t *testing.T) {
	t.Parallel()
	makes := []string{
		"CreateStream", "CreateOrUpdateStream", "UpdateStream", "CreateKeyValue", "CreateOrUpdateKeyValue", "UpdateKeyValue",
		"CreateObjectStore", "CreateOrUpdateObjectStore", "UpdateObjectStore",
	}
	found := 0
	for _, s := range sources(t) {
		if s.test || s.generated {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !slices.Contains(makes, sel.Sel.Name) {
				return true
			}
			x, _ := sel.X.(*ast.Ident)
			switch {
			case x != nil && importNames(s)[x.Name] == module+"/orchestrator/bus":
			case s.path == "orchestrator/bus/make.go":
				found++
			default:
				t.Errorf("%s calls %s: call the functions of orchestrator/bus/make.go, which wait for a slow NATS", s.at(n), sel.Sel.Name)
			}
			return true
		})
	}
	if found < 5 {
		t.Errorf("orchestrator/bus/make.go has %d calls: the test looks in the wrong place", found)
	}
}

// A server is configured by values; flags and output belong to the command line.
func TestServersReadNoFlags(t *testing.T) {
	t.Parallel()
	for _, s := range sources(t) {
		if !in(s.dir, "orchestrator/server") {
			continue
		}
		for _, path := range s.imports {
			if in(path, "github.com/spf13", "flag", "golang.org/x/term") {
				t.Errorf("%s imports %s: let cli read flags and look at the terminal", s.path, path)
			}
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok && slices.Contains([]string{"Stdin", "Stdout", "Stderr", "Args"}, sel.Sel.Name) {
				if x, ok := sel.X.(*ast.Ident); ok && importNames(s)[x.Name] == "os" {
					t.Errorf("%s uses os.%s: let cli do that", s.at(n), sel.Sel.Name)
				}
			}
			return true
		})
	}
}
