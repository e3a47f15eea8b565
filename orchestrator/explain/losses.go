package explain

import (
	"fmt"
	"slices"
	"strings"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// The kinds of decisions.
const (
	grant  = "grant"
	revoke = "revoke"
)

// loss is a decision that took devices from the sweep or the trial.
type loss struct {
	round *outbidv1.Round
	taken *outbidv1.Decision
	// places are the devices, or nil if the grant is older than the rounds that were read.
	places []*outbidv1.LeasePlace
	// heirs are the grants of the same devices after it.
	heirs []*outbidv1.Decision
	// times is the number of losses in the rounds that were read.
	times int
}

// NewestLoss returns the round in which the sweep or the trial lost devices last, or 0 if it did not in the rounds that
// were read.
func NewestLoss(f *Facts) uint64 {
	if l := f.newestLoss(); l != nil {
		return l.round.GetRound()
	}
	return 0
}

// newestLoss returns the newest loss of devices, or nil.
func (f *Facts) newestLoss() *loss {
	var found *loss
	for _, r := range f.Rounds {
		for _, d := range r.GetDecisions() {
			if d.GetKind() != revoke || !f.concerns(d) {
				continue
			}
			if found == nil {
				found = &loss{round: r, taken: d}
			}
			found.times++
		}
	}
	if found != nil {
		found.places = f.granted(found.taken)
		found.heirs = f.heirs(found)
	}
	return found
}

// owns reports whether a decision is about the sweep, and concerns whether it is about what is explained.
func (f *Facts) owns(d *outbidv1.Decision) bool { return d.GetSweep() == f.Sweep.GetId() }

func (f *Facts) concerns(d *outbidv1.Decision) bool {
	return f.owns(d) && (f.Trial == nil || d.GetTrial() == f.Trial.GetNumber())
}

// granted returns the places of a lease that was taken.
func (f *Facts) granted(taken *outbidv1.Decision) []*outbidv1.LeasePlace {
	for _, r := range f.Rounds {
		for _, d := range r.GetDecisions() {
			if d.GetKind() == grant && f.owns(d) && d.GetTrial() == taken.GetTrial() && d.GetLeaseId() == taken.GetLeaseId() {
				return d.GetPlaces()
			}
		}
	}
	return nil
}

// heirs returns the first grants of each device of a loss after it. Newer leases have larger numbers.
func (f *Facts) heirs(l *loss) []*outbidv1.Decision {
	left := map[string]bool{}
	for _, p := range l.places {
		for _, device := range p.GetDevices() {
			left[fmt.Sprint(p.GetNode(), ":", device)] = true
		}
	}
	var found []*outbidv1.Decision
	for _, r := range f.Later {
		if r.GetRound() < l.round.GetRound() {
			continue
		}
		for _, d := range r.GetDecisions() {
			if d.GetKind() == grant && d.GetLeaseId() > l.taken.GetLeaseId() && takesAny(d, left) {
				found = append(found, d)
			}
		}
	}
	return found
}

// takesAny reports whether a grant includes any of the devices, and removes these.
func takesAny(d *outbidv1.Decision, left map[string]bool) bool {
	takes := false
	for _, p := range d.GetPlaces() {
		for _, device := range p.GetDevices() {
			if key := fmt.Sprint(p.GetNode(), ":", device); left[key] {
				takes = true
				delete(left, key)
			}
		}
	}
	return takes
}

// lost returns the second sentence.
func (f *Facts) lost(l *loss) string {
	if l == nil {
		if f.Trial != nil && f.Trial.GetDeviceSeconds() == 0 && len(f.Trial.GetLeases()) == 0 {
			return fmt.Sprintf("%s has not held devices yet.", f.name())
		}
		return fmt.Sprintf("The policy, %s, did not take devices from %s%s.", f.policy(), f.name(), f.since())
	}
	text := fmt.Sprintf("%s/%d lost %s%s", f.Sweep.GetId(), l.taken.GetTrial(), placeText(l.places), f.ago(l.round))
	text += because(l.taken.GetReason()) + f.heirText(l)
	if l.times > 1 {
		text += fmt.Sprintf(", the newest of %d losses", l.times)
	}
	return text + "."
}

// since limits a statement to the rounds that were read, if older ones exist.
func (f *Facts) since() string {
	if len(f.Rounds) < MaxRounds {
		return ""
	}
	return fmt.Sprintf(" since round %d", f.Rounds[len(f.Rounds)-1].GetRound())
}

// MaxRounds is the number of rounds that are read for an explanation.
const MaxRounds = 100

// heirText names the trials that got the devices of a loss, and compares their sweep with this one.
func (f *Facts) heirText(l *loss) string {
	if len(l.heirs) == 0 {
		return ""
	}
	names, rivals := []string{}, []string{}
	for _, d := range l.heirs {
		name := anothers
		if d.GetSweep() != "" {
			name = fmt.Sprintf("%s/%d", d.GetSweep(), d.GetTrial())
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
		if !f.owns(d) && !slices.Contains(rivals, d.GetSweep()) {
			rivals = append(rivals, d.GetSweep())
		}
	}
	text := "; " + list(names[:min(len(names), maxNames)])
	if more := len(names) - maxNames; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	text += " got them"
	if len(rivals) == 0 {
		return text
	}
	return text + f.comparison(l.round, rivals[0])
}

// maxNames is the number of trials that a sentence names.
const maxNames = 3

// comparison compares the rho of another sweep with this one's in an auction, or else the devices that both hold now.
func (f *Facts) comparison(r *outbidv1.Round, rival string) string {
	if b := bidder(r, rival); b != nil && b.GetRho() > 0 {
		return fmt.Sprintf(", and %s%s had rho %.2f%s", sweepName(rival), heldNothing(b), b.GetRho(), against(f.rho(r)))
	}
	if rival == "" {
		return ""
	}
	return fmt.Sprintf(", and %s now holds %s against %s here", rival, f.held(rival), f.held(f.Sweep.GetId()))
}

// against returns " against 1.20 here", or "" for an unknown rho.
func against(rho float64) string {
	if rho <= 0 {
		return ""
	}
	return fmt.Sprintf(" against %.2f here", rho)
}

// holdsNothing reports whether a bidder was asked because it held no devices: such sweeps come before all others.
func holdsNothing(b *outbidv1.Bidder) bool { return strings.Contains(b.GetWhy(), "holds nothing") }

func heldNothing(b *outbidv1.Bidder) string {
	if holdsNothing(b) {
		return ", which held no devices,"
	}
	return ""
}

// rho returns the sweep's rho in an auction, or else its present one, because auctions record only those who bid. It is
// 0 if neither is known.
func (f *Facts) rho(r *outbidv1.Round) float64 {
	if own := bidder(r, f.Sweep.GetId()); own != nil {
		return own.GetRho()
	}
	return f.Sweep.GetFairness().GetRho()
}

// bidder returns a sweep's part in an auction, or nil.
func bidder(r *outbidv1.Round, sweep string) *outbidv1.Bidder {
	for _, b := range r.GetAuction().GetBidders() {
		if sweep != "" && b.GetSweep() == sweep {
			return b
		}
	}
	return nil
}

// newestAuction returns the newest auction that another sweep won, with the winner whose rho was worst. Both are nil
// without such an auction.
func (f *Facts) newestAuction() (round *outbidv1.Round, winner *outbidv1.Bidder) {
	for _, r := range f.Rounds {
		for _, b := range r.GetAuction().GetBidders() {
			if b.GetSweep() != f.Sweep.GetId() && len(b.GetWon())+len(b.GetLeftover()) > 0 && (winner == nil || b.GetRho() > winner.GetRho()) {
				winner = b
			}
		}
		if winner != nil {
			return r, winner
		}
	}
	return nil, nil
}

// policy returns the name of the policy, which old servers do not send.
func (f *Facts) policy() string {
	if f.Policy == "" {
		return "unknown"
	}
	return f.Policy
}

// placeText describes places, such as "devices 0 and 1 of node a".
func placeText(places []*outbidv1.LeasePlace) string {
	parts := make([]string, len(places))
	for i, p := range places {
		parts[i] = devicesOf(p.GetNode(), p.GetDevices())
	}
	if len(parts) == 0 {
		return "its devices"
	}
	return list(parts)
}

// placesText describes where leases are.
func placesText(leases []*outbidv1.TrialLease) string {
	var parts []string
	for _, l := range leases {
		for _, p := range l.GetPlaces() {
			parts = append(parts, devicesOf(p.GetNode(), p.GetDevices()))
		}
		if l.GetClient() != "" {
			parts = append(parts, "the client "+l.GetClient())
		}
	}
	if len(parts) == 0 {
		return "its devices"
	}
	return list(parts)
}

func devicesOf(node string, devices []int32) string {
	if len(devices) == 1 {
		return fmt.Sprintf("device %d of node %s", devices[0], node)
	}
	return fmt.Sprintf("devices %s of node %s", strings.Trim(strings.Join(strings.Fields(fmt.Sprint(devices)), ", "), "[]"), node)
}
