package tuner

import "fmt"

// Members of a population advance abreast.
//
// Where some wait for a device, a member that is ready pauses while another is behind it: one that waits at an earlier
// step, or one that still trains towards the step that it is at itself. The devices go to those that are least far, so that
// no two members are ever more than an interval apart.
//
// Where every member has a device, one that is ready goes on at once, without a checkpoint being loaded, as long as it
// is no more than an interval ahead of the others. That costs no time in all: the population is done when its slowest
// member is. A member that was not heard of since it was queued may well have no device yet, so it is waited for as in the
// first case.
//
// Members that are further behind than this can come about by themselves, such as those that an extension added, hold
// nobody back.

// next is the member that goes on next: of those that wait, the one that is least far; false if all must wait.
func (p *pbt) next() (Trial, bool) {
	best, found := Trial(0), false
	targets := p.targets(-1)
	for t := range p.Members {
		if !p.waitsFor(Trial(t)) || found && p.Members[t].Step >= p.Members[best].Step {
			continue
		}
		if !p.held(p.Members[t].Step, targets, true) {
			best, found = Trial(t), true
		}
	}
	return best, found
}

// waits says why a member that is ready leaves its device; "" if it goes on at once.
func (p *pbt) waits(t Trial) string {
	at := p.Members[t].Step
	if p.canGrow() {
		return fmt.Sprintf("waits until %s more have begun", count(p.population()-len(p.trials), "member"))
	}
	for o := range p.Members {
		if p.waitsFor(Trial(o)) && p.Members[o].Step < at {
			return fmt.Sprintf("waits for trial %d, which is at step %d", o, p.Members[o].Step)
		}
	}
	if p.held(at, p.targets(t), p.waiting() > 0) {
		return fmt.Sprintf("waits for the other members to come to step %d", at)
	}
	return ""
}

// waitsFor says whether a member has no device and waits for one.
func (p *pbt) waitsFor(t Trial) bool {
	return p.trials[t].phase == paused || p.trials[t].phase == ready
}

// waiting is the number of members that wait for a device.
func (p *pbt) waiting() int {
	n := 0
	for t := range p.Members {
		if p.waitsFor(Trial(t)) {
			n++
		}
	}
	return n
}

// A pbtTarget is a step that members are on their way to; begun says whether they were heard of.
type pbtTarget struct {
	step  int64
	begun bool
}

// targets are the steps that running members other than one are on their way to. They are few, however many members.
func (p *pbt) targets(but Trial) map[pbtTarget]bool {
	set := map[pbtTarget]bool{}
	for t := range p.Members {
		if m := &p.Members[t]; Trial(t) != but && p.trials[t].phase == running {
			set[pbtTarget{m.Target, m.Begun}] = true
		}
	}
	return set
}

// held reports whether a member at a step must wait for some that are on their way to the targets.
func (p *pbt) held(at int64, targets map[pbtTarget]bool, scarce bool) bool {
	interval := p.set().GetInterval()
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
