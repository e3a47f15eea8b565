package explain

import (
	"fmt"
	"math"
	"slices"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// otherwise returns the third sentence.
func (f *Facts) otherwise(cause Cause, l *loss) string {
	if !f.dependsOnPolicy(cause) {
		return "No other policy or weight would change that" + f.advice(cause) + "."
	}
	if f.alone(l) {
		return "It has the cluster to itself, so no other policy or weight would change when it ends."
	}
	if text := f.simulated(); text != "" {
		return text
	}
	return f.weighed()
}

// dependsOnPolicy reports whether another policy or weight could have changed the state or the time of its end.
func (f *Facts) dependsOnPolicy(cause Cause) bool {
	switch cause {
	case Training, Devices:
		return true
	case Done:
		return f.Trial == nil // a trial's end was its tuner's decision
	default:
		return false
	}
}

// alone reports whether no other sweep had devices that this one could have used.
func (f *Facts) alone(l *loss) bool {
	if len(f.Others) > 0 || l != nil && slices.ContainsFunc(l.heirs, func(d *outbidv1.Decision) bool { return !f.owns(d) }) {
		return false
	}
	return f.Sweep.GetFairness().GetMeanSweeps() < 1.05 && !slices.ContainsFunc(f.Rounds, f.isShared)
}

// isShared reports whether a round gave devices to another sweep, or another sweep bid.
func (f *Facts) isShared(r *outbidv1.Round) bool {
	return slices.ContainsFunc(r.GetDecisions(), func(d *outbidv1.Decision) bool { return !f.owns(d) }) ||
		slices.ContainsFunc(r.GetAuction().GetBidders(), func(b *outbidv1.Bidder) bool { return b.GetSweep() != f.Sweep.GetId() })
}

// advice names an action that would change the state instead.
func (f *Facts) advice(cause Cause) string {
	id := f.Sweep.GetId()
	switch cause {
	case Quota:
		return ", because a quota bounds its tenant under each of them; an admin raises it with 'outbid tenant set " + f.tenant() + "'"
	case Unplaceable:
		return "; its resources must be smaller or of another type, or a node that has them must join"
	case Nodes:
		return "; 'outbid nodes' shows why its nodes refuse trials, and until when"
	case Suspected:
		return "; the trial starts as soon as a node is free of others"
	case Tuner:
		return ", because the tuner decides by the metric alone"
	case Pruned:
		return ", because the tuner decided by the metric and the sweep's limits alone"
	case Failed:
		shows := "; 'outbid logs " + f.name() + "' shows what it printed"
		if f.Trial != nil {
			shows += ", and 'outbid retry " + f.name() + "' runs it again"
		}
		return shows
	case Paused:
		return "; 'outbid resume " + id + "' continues it"
	case Stopped:
		if f.Trial == nil && f.Sweep.GetState() == outbidv1.SweepState_SWEEP_STATE_STOPPED {
			return "; 'outbid resume " + id + "' continues it"
		}
		return ", because a person decided it"
	default:
		if f.Trial.GetRetries() > 0 {
			return ", because a person retried it"
		}
		return ", because its tuner had it trained to the end"
	}
}

// simulated describes the simulations of the ledger, or returns "" unless some have a change and some have not.
func (f *Facts) simulated() string {
	i := slices.IndexFunc(f.Outcomes, func(o Outcome) bool { return o.Policy == f.Policy && o.Factor == 1 })
	if i < 0 || len(f.Outcomes) < 2 {
		return ""
	}
	var parts []string
	for j, o := range f.Outcomes {
		switch {
		case j == i:
		case o.Policy == f.Policy:
			parts = append(parts, fmt.Sprintf("%s with weight %.3g", duration(o.Seconds), o.Factor*f.weight()))
		default:
			parts = append(parts, fmt.Sprintf("%s under %s", duration(o.Seconds), o.Policy))
		}
	}
	return fmt.Sprintf("In simulations of the ledger %s ends %s after its submission under %s: it would be %s.", f.Sweep.GetId(),
		duration(f.Outcomes[i].Seconds), f.Policy, list(parts))
}

// weighed returns what the figures of the newest auction say about another weight.
func (f *Facts) weighed() string {
	round, winner := f.newestAuction()
	switch {
	case winner == nil && f.Sweep.GetDeviceSeconds() == 0:
		return "It has not trained yet, so its ledger does not say when it would end under another policy or weight."
	case winner == nil:
		return fmt.Sprintf("What another policy or weight than %s and %.3g would have done is not in the rounds: only a simulation of "+
			"the ledger says it.", f.policy(), f.weight())
	}
	own := f.rho(round)
	figures := fmt.Sprintf("In round %d %s won with rho %.2f%s", round.GetRound(), sweepName(winner.GetSweep()), winner.GetRho(), against(own))
	needed := f.weight() * winner.GetRho() / own
	switch {
	case holdsNothing(winner):
		return figures + "; it held no devices, and such sweeps are asked first, whatever the weights."
	case !(needed > 0) || math.IsInf(needed, 0):
		return figures + "; the rho of " + f.Sweep.GetId() + " at that time is not known, so no weight can be said."
	case !f.isColleague(winner.GetSweep()):
		return figures + "; a sweep's weight only divides its tenant's share, so a larger weight of tenant " + f.tenant() + " would be needed."
	case own >= winner.GetRho():
		return figures + ", so a larger weight was not needed to be asked for a bid."
	default:
		return fmt.Sprintf("%s: from a weight of about %.2g instead of %.3g on it would have been asked for a bid before it.", figures,
			needed, f.weight())
	}
}

// isColleague reports whether a sweep belongs to the same tenant.
func (f *Facts) isColleague(sweep string) bool {
	i := slices.IndexFunc(f.Others, func(o *outbidv1.Sweep) bool { return o.GetId() == sweep })
	return i >= 0 && tenantOf(f.Others[i]) == f.tenant()
}

func (f *Facts) tenant() string { return tenantOf(f.Sweep) }

func tenantOf(s *outbidv1.Sweep) string {
	if t := s.GetSpec().GetTenant(); t != "" {
		return t
	}
	return "default"
}

func (f *Facts) weight() float64 { return Weight(f.Sweep) }

// Weight returns a sweep's weight.
func Weight(s *outbidv1.Sweep) float64 {
	if w := s.GetSpec().GetWeight(); w > 0 {
		return w
	}
	return 1
}
