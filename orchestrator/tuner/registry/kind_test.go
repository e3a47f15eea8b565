package registry_test

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/registry"
	"github.com/outbid-dev/outbid/orchestrator/tuner/setting"
	"github.com/outbid-dev/outbid/orchestrator/tuner/tunertest"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// kinds returns the fields of the tuners that a spec may name, except for plugin.
func kinds() []protoreflect.FieldDescriptor {
	var list []protoreflect.FieldDescriptor
	fields := (&outbidv1.Tuner{}).ProtoReflect().Descriptor().Oneofs().ByName("kind").Fields()
	for i := range fields.Len() {
		if f := fields.Get(i); f.Name() != "plugin" {
			list = append(list, f)
		}
	}
	return list
}

// smallest returns settings of a tuner with its defaults, ten steps, and thirty trials if nothing else ends the sweep.
func smallest(f protoreflect.FieldDescriptor) tuner.Settings {
	t := &outbidv1.Tuner{}
	m := t.ProtoReflect().Mutable(f).Message()
	for i := range m.Descriptor().Fields().Len() {
		if inner := m.Descriptor().Fields().Get(i); setting.Of(inner).GetRequired() != "" {
			m.Set(inner, protoreflect.ValueOfInt64(10))
		}
	}
	if registry.TraitsOf(string(f.Name())).Endless {
		return tunertest.Spec(t, tunertest.Trials(30))
	}
	return tunertest.Spec(t)
}

func TestEveryTunerIsRegistered(t *testing.T) {
	t.Parallel()
	names := registry.Names()
	for _, f := range kinds() {
		if !slices.Contains(names, string(f.Name())) {
			t.Errorf("the tuner %s is not in the registry", f.Name())
		}
	}
	if len(names) != len(kinds()) {
		t.Errorf("%v are registered, and the message Tuner has %d", names, len(kinds()))
	}
}

// Every tuner meets the contract with its defaults. TestConformance has more settings.
func TestDefaultsConform(t *testing.T) {
	t.Parallel()
	for _, f := range kinds() {
		tunertest.Run(t, string(f.Name()), func() tuner.Settings { return smallest(f) })
	}
}

// mayName lists the files outside of a tuner's folder that name particular tuners, and why.
var mayName = map[string]string{ //nolint:gochecknoglobals // a table
	"orchestrator/spec/usual.go":      "chooses the tuner of a spec without one",
	"orchestrator/sim/apps.go":        "reads traces, whose format names three tuners",
	"orchestrator/sim/script.go":      "makes the tuners of scripts in tests by short names",
	"orchestrator/policy/policytest/": "draws states of sweeps for tests of policies",
}

// ambiguous are names that strings also use for other things, such as samplers.
var ambiguous = []string{"random", "grid", "sobol", "bayes", "auto", "median"} //nolint:gochecknoglobals // a table

// Code outside of a tuner's folder asks for its traits and does not name it, so that a new tuner changes nothing else.
func TestOnlyATunersFolderNamesIt(t *testing.T) {
	t.Parallel()
	own, named := ownFolders(t), map[string]bool{}
	known := namesInCode()
	for _, root := range []string{"orchestrator", "worker"} {
		err := fs.WalkDir(os.DirFS("../../.."), root, func(file string, d fs.DirEntry, err error) error {
			if err != nil || d.Name() == "node_modules" || d.Name() == "testdata" {
				return cmp.Or(err, fs.SkipDir)
			}
			if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
				return nil
			}
			for name, line := range namesIn(t, known, "../../../"+file) {
				if reason := exception(file); reason != "" {
					named[reason] = true
				} else if !strings.HasPrefix(file, own[name]) {
					t.Errorf("%s:%d names the tuner %s", file, line, name)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for file, reason := range mayName {
		if !named[reason] {
			t.Errorf("%s does not name a tuner and need not be an exception", file)
		}
	}
}

func exception(file string) string {
	for prefix, reason := range mayName {
		if strings.HasPrefix(file, prefix) {
			return reason
		}
	}
	return ""
}

// ownFolders returns the folder of each tuner: a prefix of the paths of its files.
func ownFolders(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	own := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range registry.Names() {
			if strings.Contains(string(text), "&engine.Kind{") && strings.Contains(string(text), strconv.Quote(name)) {
				own[name] = "orchestrator/tuner/" + filepath.Base(filepath.Dir(file)) + "/"
			}
		}
	}
	return own
}

// inCode has the ways to name a tuner in code: as a string, by a type of the package outbidv1, and by a getter of a
// message Tuner. Each leads to the tuner's name.
type inCode struct{ texts, types, getters map[string]string }

func namesInCode() inCode {
	c := inCode{map[string]string{}, map[string]string{}, map[string]string{}}
	for _, f := range kinds() {
		name, field := string(f.Name()), ""
		for word := range strings.SplitSeq(name, "_") {
			field += strings.ToUpper(word[:1]) + word[1:]
		}
		if !slices.Contains(ambiguous, name) {
			c.texts[strconv.Quote(name)] = name
		}
		c.types[string(f.Message().Name())], c.types["Tuner_"+field] = name, name
		c.getters["Get"+field] = name
	}
	return c
}

// namesIn returns the tuners that a file names, with a line of each.
func namesIn(t *testing.T, known inCode, path string) map[string]int {
	t.Helper()
	files := token.NewFileSet()
	tree, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	ast.Inspect(tree, func(n ast.Node) bool {
		if name := known.nameOf(n); name != "" {
			found[name] = files.Position(n.Pos()).Line
		}
		return true
	})
	return found
}

// nameOf returns the tuner that a node of a syntax tree names, or "".
func (c inCode) nameOf(n ast.Node) string {
	switch n := n.(type) {
	case *ast.BasicLit:
		return c.texts[n.Value]
	case *ast.SelectorExpr:
		if x, ok := n.X.(*ast.Ident); ok && x.Name == "outbidv1" {
			return c.types[n.Sel.Name]
		}
		if call, ok := n.X.(*ast.CallExpr); ok {
			if got, ok := call.Fun.(*ast.SelectorExpr); ok && (got.Sel.Name == "GetTuner" || got.Sel.Name == "GetRule") {
				return c.getters[n.Sel.Name]
			}
		}
	}
	return ""
}
