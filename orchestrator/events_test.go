package orchestrator_test

import (
	"go/ast"
	"strings"
	"testing"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// readsKinds are the files that may inspect the kind of an event, each with the reason. All others read the changes
// that the fold reports (state.Change) or the table of events (state.Table), so that a new kind is described only in
// that table.
var readsKinds = map[string]string{ //nolint:gochecknoglobals // a table of this test
	"orchestrator/state":                       "contains the table and the fold",
	"orchestrator/control/tuning/tuning.go":    "converts events for tuners, according to the table",
	"orchestrator/control/engine.go":           "calls code that needs the state before an event, according to the table",
	"orchestrator/control/rounds/decisions.go": "decides: checks a round's grants against quotas before they are events",
	"orchestrator/control/rounds/fits.go":      "decides: checks which results of a round apply before they are events",
	"orchestrator/sim/invariants.go":           "is there to disagree with the fold: it must not ask it what an event means",
	"orchestrator/usage/index.go":              "keeps the leases that have ended, which the state forgets",
	"orchestrator/ledger/ledgertest":           "checks that events come back as they were",
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

// kindOfEvent reports whether an expression is *outbidv1.Event_Something.
func kindOfEvent(e ast.Expr) bool {
	star, ok := e.(*ast.StarExpr)
	if !ok {
		return false
	}
	sel, ok := star.X.(*ast.SelectorExpr)
	return ok && strings.HasPrefix(sel.Sel.Name, "Event_")
}
