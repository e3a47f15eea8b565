package policytest

import (
	"fmt"
	"strings"

	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// Story returns a policy's decisions on a cluster drawn from a seed, round after round, as text. The same seed and the
// same decisions give the same text, so it shows whether a change affects decisions. Seven of ten stories are of small
// clusters, the others of larger ones with many more jobs than fit.
func Story(seed int, make func() policy.Policy) string {
	return rapid.Custom(func(t *rapid.T) string {
		w := drawWorld(t)
		rounds := 12
		switch seed % 10 {
		case 7, 8:
			rounds = 40
			w.enlarge(t, 6, 10)
		case 9:
			rounds = 25
			w.enlarge(t, 24, 40)
		}
		p := make()
		var b strings.Builder
		for range rounds {
			plan := w.decide(t, p)
			b.WriteString(dumpPlan(plan))
			w.apply(plan)
			w.advance(t, plan.Next)
		}
		state, err := p.Snapshot()
		fmt.Fprintf(&b, "%s %v\n", state, err)
		return b.String()
	}).Example(seed)
}

// enlarge adds nodes and sweeps.
func (w *world) enlarge(t *rapid.T, nodes, apps int) {
	for i := range nodes {
		w.nodes = append(w.nodes, drawNode(t, fmt.Sprintf("node%02d", i)))
	}
	for range apps {
		w.drawApp(t)
	}
}
