package explain

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// state returns the first sentence with its cause.
func (f *Facts) state() (Cause, string) {
	switch f.Sweep.GetState() {
	case outbidv1.SweepState_SWEEP_STATE_PAUSED:
		if f.Trial == nil || !hasEnded(f.Trial) {
			return Paused, fmt.Sprintf("%s is paused because a person paused its sweep%s.", f.name(), inBrackets(f.Sweep.GetReason()))
		}
	case outbidv1.SweepState_SWEEP_STATE_STOPPING:
		if f.Trial == nil {
			return Stopped, fmt.Sprintf("%s is stopping, and its trials save first%s.", f.name(), inBrackets(f.Sweep.GetReason()))
		}
	case outbidv1.SweepState_SWEEP_STATE_DONE:
		if f.Trial == nil {
			return Done, fmt.Sprintf("%s is done%s.", f.name(), because(f.Sweep.GetReason()))
		}
	case outbidv1.SweepState_SWEEP_STATE_STOPPED:
		if f.Trial == nil {
			return Stopped, fmt.Sprintf("%s is stopped%s.", f.name(), because(f.Sweep.GetReason()))
		}
	case outbidv1.SweepState_SWEEP_STATE_FAILED:
		if f.Trial == nil {
			return Failed, fmt.Sprintf("%s has failed%s%s.", f.name(), because(f.Sweep.GetReason()), f.failedTrial())
		}
	}
	if f.Trial != nil {
		return f.trialState()
	}
	return f.runningState()
}

// runningState describes a running sweep.
func (f *Facts) runningState() (Cause, string) {
	n := f.Sweep.GetCounts()
	switch {
	case n.GetQueued() > 0:
		cause, why := f.waiting()
		return cause, fmt.Sprintf("%s for %s.", f.trials(n.GetQueued(), "waits", "wait"), why)
	case n.GetRunning() > 0:
		return Training, fmt.Sprintf("%s on %s.", f.trials(n.GetRunning(), "trains", "train"), f.held(f.Sweep.GetId()))
	case n.GetPaused() > 0:
		return Tuner, fmt.Sprintf("%s waits for its tuner, %s, to continue one of its %s or to start a new one.", f.name(), f.tuner(),
			count(int(n.GetPaused()), "paused trial"))
	case f.Sweep.GetSpec().GetExternal() != nil:
		return Tuner, fmt.Sprintf("%s waits for a client to ask for a trial.", f.name())
	default:
		if cause, why := f.waiting(); cause != Devices {
			return cause, fmt.Sprintf("%s waits for %s.", f.name(), why)
		}
		return Tuner, fmt.Sprintf("%s waits for its tuner, %s, to start a trial.", f.name(), f.tuner())
	}
}

// trialState describes a trial.
func (f *Facts) trialState() (Cause, string) {
	t, step := f.Trial, fmt.Sprintf("at step %d", f.Trial.GetStep())
	switch t.GetState() {
	case outbidv1.TrialState_TRIAL_STATE_QUEUED:
		cause, why := f.waiting()
		return cause, fmt.Sprintf("%s waits %s for %s.", f.name(), step, why)
	case outbidv1.TrialState_TRIAL_STATE_PAUSED:
		return Tuner, fmt.Sprintf("%s is paused %s until its tuner, %s, continues it%s.", f.name(), step, f.tuner(), inBrackets(t.GetReason()))
	case outbidv1.TrialState_TRIAL_STATE_COMPLETED:
		return Done, fmt.Sprintf("%s is completed %s%s.", f.name(), step, because(t.GetReason()))
	case outbidv1.TrialState_TRIAL_STATE_STOPPED:
		return Pruned, fmt.Sprintf("%s was pruned %s%s%s.", f.name(), step, f.rank(), inBrackets(t.GetReason()))
	case outbidv1.TrialState_TRIAL_STATE_CANCELLED:
		return Stopped, fmt.Sprintf("%s was stopped %s%s.", f.name(), step, because(t.GetReason()))
	case outbidv1.TrialState_TRIAL_STATE_FAILED:
		return Failed, fmt.Sprintf("%s has failed %s%s%s.", f.name(), step, f.failedOn(t), because(t.GetReason()))
	default:
		return Training, fmt.Sprintf("%s trains %s%s on %s.", f.name(), step, until(t), placesText(t.GetLeases()))
	}
}

func until(t *outbidv1.Trial) string {
	if t.GetUntilStep() == 0 {
		return ""
	}
	return fmt.Sprintf(" of %d", t.GetUntilStep())
}

// waiting returns what queued trials wait for, as text after "waits for", with its cause.
func (f *Facts) waiting() (Cause, string) {
	text := strings.TrimPrefix(f.Sweep.GetWaiting(), "waits for ")
	switch {
	case f.Sweep.GetWaiting() == "" || strings.HasPrefix(text, "devices"):
		return Devices, f.devicesWanted()
	case strings.HasPrefix(text, "a node that can start its trials"):
		return Nodes, text
	case strings.HasPrefix(text, "trial "):
		return Suspected, "a node without other trials, because nodes were lost while it ran"
	case strings.Contains(text, "quota") || strings.HasPrefix(text, "tenant "):
		return Quota, "its tenant's quota: " + text
	default:
		return Unplaceable, "a node that could run it: " + text
	}
}

// devicesWanted describes the devices that others hold.
func (f *Facts) devicesWanted() string {
	holders, free, all := map[string]int{}, 0, 0
	for _, n := range f.Nodes {
		held := map[int32]string{}
		for _, u := range n.GetUses() {
			held[u.GetDevice()] = cmp.Or(u.GetFork().GetSweep(), anothers)
		}
		for _, d := range n.GetInfo().GetDevices() {
			if !f.accepts(d.GetType()) {
				continue
			}
			if all++; held[d.GetIndex()] != "" {
				holders[held[d.GetIndex()]]++
			} else if n.GetState() == outbidv1.NodeState_NODE_STATE_UP {
				free++
			}
		}
	}
	if len(holders) == 0 {
		return "devices"
	}
	by := make([]string, 0, len(holders))
	for sweep, n := range holders {
		if sweep == f.Sweep.GetId() {
			sweep += " itself"
		}
		by = append(by, fmt.Sprintf("%d by %s", n, sweep))
	}
	slices.Sort(by)
	text := fmt.Sprintf("devices: of the %d that it accepts %s", all, isHeld(by))
	if least := max(1, int(f.Sweep.GetSpec().GetResources().GetDevices().GetMin())); free > 0 {
		text += fmt.Sprintf(" and %d free, while each trial needs %d", free, least)
	}
	return text + f.passedOver()
}

// isHeld returns "6 are held by a, 2 by b" for texts such as "6 by a".
func isHeld(by []string) string {
	first, rest, _ := strings.Cut(by[0], " ")
	verb := "are held "
	if first == "1" {
		verb = "is held "
	}
	return list(append([]string{first + " " + verb + rest}, by[1:]...))
}

// passedOver says how the sweep fared in the newest auction without winning, or returns "".
func (f *Facts) passedOver() string {
	round, winner := f.newestAuction()
	if winner == nil || len(bidder(round, f.Sweep.GetId()).GetWon()) > 0 {
		return ""
	}
	worse := ""
	if own := f.rho(round); own > 0 && own < winner.GetRho() {
		worse = "the worse "
	}
	return fmt.Sprintf(", and in round %d %s%s won with %srho %.2f%s", round.GetRound(), sweepName(winner.GetSweep()), heldNothing(winner),
		worse, winner.GetRho(), against(f.rho(round)))
}

// accepts reports whether the sweep's trials may run on a type of device.
func (f *Facts) accepts(kind string) bool {
	of := f.Sweep.GetSpec().GetResources()
	return (len(of.GetTypes()) == 0 || slices.Contains(of.GetTypes(), kind)) && !slices.Contains(of.GetExcludeTypes(), kind)
}

// rank returns the rank of a pruned trial among those that were as far, or "".
func (f *Facts) rank() string {
	own, ok := f.Values[f.Trial.GetNumber()]
	if !ok || math.IsNaN(own) {
		return ""
	}
	better, all := 0, 0
	for _, v := range f.Values {
		if all++; f.Sweep.GetSpec().GetMode() == "max" && v > own || f.Sweep.GetSpec().GetMode() != "max" && v < own {
			better++
		}
	}
	return fmt.Sprintf(", where it ranked %d of %d by %s", better+1, all, f.Sweep.GetSpec().GetMetric())
}

// failedTrial names a failed trial of the sweep and its node.
func (f *Facts) failedTrial() string {
	if f.Failed == nil {
		return ""
	}
	return fmt.Sprintf(", such as trial %d%s", f.Failed.GetNumber(), f.failedOn(f.Failed))
}

// failedOn names the node of a trial's last grant, or returns "".
func (f *Facts) failedOn(t *outbidv1.Trial) string {
	if t.GetNode() != "" {
		return " on node " + t.GetNode()
	}
	for _, r := range f.Rounds {
		for _, d := range r.GetDecisions() {
			if d.GetKind() == grant && f.owns(d) && d.GetTrial() == t.GetNumber() && len(d.GetPlaces()) > 0 {
				return " on node " + d.GetPlaces()[0].GetNode()
			}
		}
	}
	return ""
}

// held counts the devices that a sweep holds.
func (f *Facts) held(sweep string) string {
	n, nodes := 0, 0
	for _, node := range f.Nodes {
		here := 0
		for _, u := range node.GetUses() {
			if u.GetFork().GetSweep() == sweep {
				here++
			}
		}
		if n += here; here > 0 {
			nodes++
		}
	}
	if n == 0 {
		return "no devices"
	}
	return count(n, "device") + " of " + count(nodes, "node")
}

// tuner names the sweep's tuner.
func (f *Facts) tuner() string {
	m := f.Sweep.GetSpec().GetTuner().ProtoReflect()
	if m.IsValid() {
		if field := m.WhichOneof(m.Descriptor().Oneofs().ByName("kind")); field != nil {
			return string(field.Name())
		}
	}
	return "the default"
}

// name returns the id of the sweep or the trial.
func (f *Facts) name() string {
	if f.Trial != nil {
		return fmt.Sprintf("%s/%d", f.Sweep.GetId(), f.Trial.GetNumber())
	}
	return f.Sweep.GetId()
}

func hasEnded(t *outbidv1.Trial) bool {
	switch t.GetState() {
	case outbidv1.TrialState_TRIAL_STATE_COMPLETED, outbidv1.TrialState_TRIAL_STATE_STOPPED, outbidv1.TrialState_TRIAL_STATE_CANCELLED,
		outbidv1.TrialState_TRIAL_STATE_FAILED:
		return true
	default:
		return false
	}
}
