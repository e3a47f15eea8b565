package control

import (
	"time"

	"github.com/outbid-dev/outbid/orchestrator/control/merging"
	"github.com/outbid-dev/outbid/orchestrator/state"
)

// Observation holds the measurements of one step.
type Observation struct {
	Inputs, Events, Reports int
	Merges                  merging.Counts
	Decide, Append          time.Duration
	// Rounds counts decided rounds of the policy, and Granted and Revoked the leases.
	Rounds, Granted, Revoked int
	// Waits are how long the trials that got devices had been queued.
	Waits []time.Duration
}

// count adds what a step changed.
func (o *Observation) count(changes []state.Change) {
	for i := range changes {
		c := &changes[i]
		switch {
		case c.Kind.Readers == state.ReadersReport:
			o.Reports++
		case c.Kind.Readers == state.ReadersRound:
			o.Rounds++
		case c.Did(state.Revoked):
			o.Revoked++
		case c.LeaseBegan():
			o.Granted++
		}
		if waited, ok := c.Waited(); ok {
			o.Waits = append(o.Waits, waited)
		}
	}
}
