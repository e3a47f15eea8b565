package orchestrator_test

import (
	"go/ast"
	"testing"
)

// mostMethods is the maximum number of methods of a type. A type with more owns too much: move parts of it to other
// types or packages.
const mostMethods = 40

func TestNoTypeHasManyMethods(t *testing.T) {
	t.Parallel()
	methods := map[string]int{}
	for _, s := range sources(t) {
		if s.test || s.generated || !in(s.dir, "orchestrator", "worker") {
			continue
		}
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil {
				methods[s.dir+"."+receiver(f)]++
			}
		}
	}
	for name, n := range methods {
		if n > mostMethods {
			t.Errorf("%s has %d methods, the limit is %d: divide what it owns", name, n, mostMethods)
		}
	}
}

// receiver returns the name of a method's type.
func receiver(f *ast.FuncDecl) string {
	of := f.Recv.List[0].Type
	for {
		switch o := of.(type) {
		case *ast.StarExpr:
			of = o.X
		case *ast.IndexExpr:
			of = o.X
		case *ast.IndexListExpr:
			of = o.X
		case *ast.Ident:
			return o.Name
		default:
			return ""
		}
	}
}
