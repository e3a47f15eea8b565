package orchestrator_test

import (
	"go/ast"
	"strings"
	"testing"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// readsKinds are the files that may look at what kind an event is, each with the reason. All others read what the fold says that
// it changed (state.Change), or what the table of events says that it is (state.Table): a new kind is said in that table alone.
var readsKinds = map[string]string{ //nolint:gochecknoglobals // a table of this test
	"orchestrator/state":               "the table and the fold stand there",
	"orchestrator/control/tune.go":     "makes of events what tuners are told, as the table says",
	"orchestrator/control/fold.go":     "has those act who need the state before an event, as the table says",
	"orchestrator/control/schedule.go": "decides: checks what the policy wants before it is an event",
	"orchestrator/control/deciding.go": "decides: checks what of a round that took its time still fits",
	"orchestrator/sim/invariants.go":   "is there to disagree with the fold: it must not ask it what an event means",
	"orchestrator/ledger/ledgertest":   "checks that events come back as they were",
	"proto/outbid/v1/older.go":         "reads what older versions wrote",
}

func TestWhatAnEventMeansStandsInOneTable(t *testing.T) {
	t.Parallel()
	getters := map[string]bool{}
	fields := (&outbidv1.Event{}).ProtoReflect().Descriptor().Oneofs().ByName("kind").Fields()
	for i := range fields.Len() {
		getters["Get"+string(fields.Get(i).Message().Name())] = true
	}
	for _, s := range sources(t) {
		if s.test || s.generated || readsKinds[s.dir] != "" || readsKinds[s.path] != "" {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CaseClause:
				for _, e := range n.List {
					if kindOfEvent(e) {
						t.Errorf("%s looks at what kind an event is; what it means stands in orchestrator/state/kinds.go", s.at(e))
					}
				}
			case *ast.TypeAssertExpr:
				if n.Type != nil && kindOfEvent(n.Type) {
					t.Errorf("%s looks at what kind an event is; what it means stands in orchestrator/state/kinds.go", s.at(n))
				}
			case *ast.SelectorExpr:
				if getters[n.Sel.Name] {
					t.Errorf("%s looks into an event with %s; what it means stands in orchestrator/state/kinds.go", s.at(n), n.Sel.Name)
				}
			}
			return true
		})
	}
}

// kindOfEvent says whether an expression is *outbidv1.Event_Something.
func kindOfEvent(e ast.Expr) bool {
	star, ok := e.(*ast.StarExpr)
	if !ok {
		return false
	}
	sel, ok := star.X.(*ast.SelectorExpr)
	return ok && strings.HasPrefix(sel.Sel.Name, "Event_")
}
