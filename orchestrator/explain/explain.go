// Package explain explains in three sentences why a sweep or a trial has its state, why it lost devices, and how it
// would fare under another policy or weight. It only computes: package evidence reads the facts from a server.
package explain

import (
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Facts are the data about a sweep, or about one of its trials, from which it is explained.
type Facts struct {
	// Sweep is the sweep to explain. Trial is its trial to explain, or nil for the whole sweep.
	Sweep *outbidv1.Sweep
	Trial *outbidv1.Trial
	// Policy is the server's policy.
	Policy string
	// Failed is a failed trial of the sweep, or nil.
	Failed *outbidv1.Trial
	// Values are the metrics that the sweep's trials had when they were as far as Trial is now, by number. It is only
	// set for a pruned trial.
	Values map[int32]float64
	// Rounds are decisions of the policy on the sweep, the newest first.
	Rounds []*outbidv1.Round
	// Later are the decisions on all sweeps from the newest loss of devices on, the oldest first.
	Later []*outbidv1.Round
	// Nodes are the nodes, and Others the other sweeps that have not ended.
	Nodes  []*outbidv1.Node
	Others []*outbidv1.Sweep
	// Outcomes are simulations of the ledger, or nil if it cannot be read or simulated.
	Outcomes []Outcome
	Now      time.Time
}

// Outcome is the result of a simulation of the ledger's sweeps under a policy.
type Outcome struct {
	Policy string
	// Factor multiplies the weight of the explained sweep; 1 leaves it as it is.
	Factor float64
	// Seconds from its submission to its end.
	Seconds float64
}

// Cause is why a sweep or a trial has its state, in one word for programs.
type Cause string

// The causes.
const (
	// Training means that it runs.
	Training Cause = "training"
	// Devices means that it waits for devices that others hold.
	Devices Cause = "devices"
	// Quota means that its tenant's quota is used.
	Quota Cause = "quota"
	// Unplaceable means that no node could run it, even if idle.
	Unplaceable Cause = "unplaceable"
	// Nodes means that the nodes which could run it accept no trials now.
	Nodes Cause = "nodes"
	// Suspected means that it waits for a node without other trials.
	Suspected Cause = "suspected"
	// Tuner means that it waits for a decision of its tuner.
	Tuner Cause = "tuner"
	// Pruned means that its tuner or a limit ended it.
	Pruned Cause = "pruned"
	// Failed means that it failed.
	Failed Cause = "failed"
	// Paused means that a person paused it.
	Paused Cause = "paused"
	// Stopped means that a person stopped it.
	Stopped Cause = "stopped"
	// Done means that it ended as planned.
	Done Cause = "done"
)

// Explanation is the explanation of a sweep or a trial.
type Explanation struct {
	Cause Cause
	// State says why it waits, runs or has ended.
	State string
	// Lost says why it lost devices, or that it did not.
	Lost string
	// Otherwise describes the outcome under another policy or weight.
	Otherwise string
}

// Sentences are the three sentences in order.
func (e Explanation) Sentences() []string { return []string{e.State, e.Lost, e.Otherwise} }

// Explain explains a sweep or a trial.
func Explain(f *Facts) Explanation {
	cause, state := f.state()
	loss := f.newestLoss()
	return Explanation{Cause: cause, State: state, Lost: f.lost(loss), Otherwise: f.otherwise(cause, loss)}
}

// NeedsOutcomes reports whether simulations of the ledger would add to the explanation.
func NeedsOutcomes(f *Facts) bool {
	cause, _ := f.state()
	return f.dependsOnPolicy(cause) && !f.alone(f.newestLoss())
}
