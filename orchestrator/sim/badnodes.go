package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// BadNode is a node on which trials fail because of the node, for example because its disk is full or a program is
// missing.
type BadNode struct {
	Node string
	// From and To limit the time of the fault; without an end if To is 0.
	From, To time.Duration
	// How is the kind of failure: FAILURE_KIND_NODE or FAILURE_KIND_START before trials run, FAILURE_KIND_ERROR soon
	// after.
	How outbidv1.FailureKind
	// Sweep is the ID of the only sweep whose trials fail, or "" for all.
	Sweep string
}

const (
	// badNode is the detail of these failures.
	badNode = "the node is bad"
	// startTakes is the time that a failing start takes; failsAfter is the time that a trial runs until it fails.
	startTakes = 200 * time.Millisecond
	failsAfter = 2 * time.Second
	// knownBad is the time that the control loop may take to notice that a node is good again: its longest pause
	// between two tries.
	knownBad = 10*time.Minute + time.Second
)

// badDuring returns a fault of a node for the trials of a sweep at any time of a span, or nil.
func (s *Setup) badDuring(node, sweep string, from, to time.Duration) *BadNode {
	for i := range s.Bad {
		b := &s.Bad[i]
		if b.Node == node && (b.Sweep == "" || b.Sweep == sweep) && to >= b.From && (b.To == 0 || from < b.To) {
			return b
		}
	}
	return nil
}

// bad returns the present fault of a node for the trials of a sweep, or nil.
func (w *World) bad(node, sweep string) *BadNode {
	now := w.clock.now.Sub(w.start)
	return w.set.badDuring(node, sweep, now, now)
}

// failedByNode checks that no trial fails because of a node while another node could run it.
func (v *invariants) failedByNode(e *outbidv1.TrialEnded) error {
	if e.GetState() != outbidv1.TrialState_TRIAL_STATE_FAILED || !strings.Contains(e.GetReason(), badNode) {
		return nil
	}
	var good []cluster.Node
	now := v.w.clock.now.Sub(v.w.start)
	for _, n := range v.w.nodes {
		if v.up[n.Name] && v.w.set.badDuring(n.Name, e.GetSweep(), now-knownBad, now) == nil {
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
