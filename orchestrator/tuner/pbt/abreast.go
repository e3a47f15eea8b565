package pbt

import (
	"fmt"

	"github.com/dustin/go-humanize/english"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/engine"
)

// The members of a population advance abreast.
//
// If members wait for a device, a member that finishes its interval pauses while another is behind it: waiting at an
// earlier step, or still training towards the same step. Devices go to the members with the fewest steps, so that no
// two members are more than an interval apart.
//
// If every member has a device, a member that finishes its interval continues without reloading a checkpoint, unless it
// is more than an interval ahead of the others. This does not delay the population, which is done when its slowest
// member is. A member that did not report since it was queued may not have a device yet, so others wait for it as in
// the first case.
//
// Members can be further behind than this, for example after an extension added them. The others do not wait for those.

// next returns the waiting member with the fewest steps that may continue, or false if all must wait.
func (p *pbt) next() (tuner.Trial, bool) {
	best, found := tuner.Trial(0), false
	targets := p.targets(-1)
	for t := range p.Members {
		if !p.isWaiting(tuner.Trial(t)) || found && p.Members[t].Step >= p.Members[best].Step {
			continue
		}
		if !p.mustWait(p.Members[t].Step, targets, true) {
			best, found = tuner.Trial(t), true
		}
	}
	return best, found
}

// whyWait explains why a member that finished its interval must leave its device. It returns "" if the member continues
// at once.
func (p *pbt) whyWait(t tuner.Trial) string {
	at := p.Members[t].Step
	if p.canGrow() {
		return fmt.Sprintf("waits until %s more have begun", english.Plural(p.population()-len(p.Trials), "member", ""))
	}
	for o := range p.Members {
		if p.isWaiting(tuner.Trial(o)) && p.Members[o].Step < at {
			return fmt.Sprintf("waits for trial %d, which is at step %d", o, p.Members[o].Step)
		}
	}
	if p.mustWait(at, p.targets(t), p.countWaiting() > 0) {
		return fmt.Sprintf("waits for the other members to come to step %d", at)
	}
	return ""
}

// isWaiting reports whether a member waits for a device.
func (p *pbt) isWaiting(t tuner.Trial) bool {
	return p.Trials[t].Phase == engine.Paused || p.Trials[t].Phase == engine.Ready
}

// countWaiting returns the number of members that wait for a device.
func (p *pbt) countWaiting() int {
	n := 0
	for t := range p.Members {
		if p.isWaiting(tuner.Trial(t)) {
			n++
		}
	}
	return n
}

// A target is a step that members train towards. begun is set if these members have reported since they were queued.
type target struct {
	step  int64
	begun bool
}

// targets returns the steps that running members, except for one, train towards. There are few, even in a large
// population.
func (p *pbt) targets(but tuner.Trial) map[target]bool {
	set := map[target]bool{}
	for t := range p.Members {
		if m := &p.Members[t]; tuner.Trial(t) != but && p.Trials[t].Phase == engine.Running {
			set[target{m.Target, m.Begun}] = true
		}
	}
	return set
}

// mustWait reports whether a member at a step must wait for members that train towards the targets.
func (p *pbt) mustWait(at int64, targets map[target]bool, scarce bool) bool {
	interval := p.settings().GetInterval()
	for target := range targets {
		lead, least := at-target.step, interval
		if scarce || !target.begun {
			least = 0
		}
		if lead >= least && lead < 2*interval {
			return true
		}
	}
	return false
}
