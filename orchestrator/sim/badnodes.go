package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// BadNode is a node on which trials fail because of the node: its disk is full, a program is missing.
type BadNode struct {
	Node string
	// From and To bound the time in which that is so; to the end if To is 0.
	From, To time.Duration
	// How trials fail: FAILURE_KIND_NODE or FAILURE_KIND_START before they run, FAILURE_KIND_ERROR soon after.
	How outbidv1.FailureKind
	// Sweep is the id of the sweep whose trials alone fail; "" for all.
	Sweep string
}

const (
	// badNode is what a trial fails with there.
	badNode = "the node is bad"
	// startTakes is how long a start takes that fails, and failsAfter how long a trial runs until it fails.
	startTakes = 200 * time.Millisecond
	failsAfter = 2 * time.Second
	// knownBad is how long the control loop may take to notice that a node is good again: its longest pause between two tries.
	knownBad = 10*time.Minute + time.Second
)

// bad returns what is wrong with a node for the trials of a sweep now; nil for nothing.
func (w *World) bad(node, sweep string) *BadNode {
	at := w.clock.now.Sub(w.start)
	for i := range w.set.Bad {
		b := &w.set.Bad[i]
		if b.Node == node && (b.Sweep == "" || b.Sweep == sweep) && at >= b.From && (b.To == 0 || at < b.To) {
			return b
		}
	}
	return nil
}

// wasBad reports whether something was wrong with a node for the trials of a sweep in a span that ends now.
func (w *World) wasBad(node, sweep string, span time.Duration) bool {
	at := w.clock.now.Sub(w.start)
	for _, b := range w.set.Bad {
		if b.Node == node && (b.Sweep == "" || b.Sweep == sweep) && at >= b.From && (b.To == 0 || at-span < b.To) {
			return true
		}
	}
	return false
}

// failedByNode checks that no trial fails because of a node while another node could run it.
func (v *invariants) failedByNode(e *outbidv1.TrialEnded) error {
	if e.GetState() != outbidv1.TrialState_TRIAL_STATE_FAILED || !strings.Contains(e.GetReason(), badNode) {
		return nil
	}
	var good []cluster.Node
	for _, n := range v.w.nodes {
		if v.up[n.Name] && !v.w.wasBad(n.Name, e.GetSweep(), knownBad) {
			good = append(good, n)
		}
	}
	demand := v.w.core.State().Sweeps[e.GetSweep()].Terms.Demand
	demand.NeedsTrust = false
	if gang, ok := cluster.NewCapacity(good).Best(demand); ok {
		return fmt.Errorf("trial %d of %s failed because of a node, and %s could run it: %s", e.GetTrial(), e.GetSweep(),
			good[gang[0].Node].Name, e.GetReason())
	}
	return nil
}
