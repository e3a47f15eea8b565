package tuner

import (
	"fmt"
	"math"
	"slices"

	"github.com/dustin/go-humanize/english"
)

// keepSlotOrYield decides whether a trial that is not poor keeps its slot.
func (p *performance) keepSlotOrYield(w *watched, at, why string) {
	if p.promising(w) {
		p.trainOn(w, at+"promising: "+why)
		return
	}
	reason := at + "opportunistic: " + why
	waiting := p.heap()
	rival := ""
	own := p.merit(w)
	if p.canCreate() && p.newTrialMerit() > own {
		rival = "a new trial"
	}
	if p.someoneWaits() && -waiting.top().Cost > max(own, p.newTrialMeritOrZero()) {
		rival = fmt.Sprintf("trial %d", waiting.top().Trial)
	}
	if rival == "" {
		p.trainOn(w, reason)
		return
	}
	p.running--
	waiting = p.heap()
	waiting.push(entry{Cost: -own, Trial: w.Trial})
	p.Waiting = waiting.items
	p.pause(w.Trial, reason+"; "+rival+" has the better chance for its steps")
}

// promising reports whether a running trial is among those that slots are reserved for. The threshold p is the one that
// reserves the most useful slots: no more than p times all slots, which trials with a chance of p deserve, and no more
// than there are trials above p (section 3.2 of the paper).
func (p *performance) promising(w *watched) bool {
	var chances []float64
	for _, other := range p.live {
		if p.trials[other.Trial].phase == running && !math.IsNaN(other.Chance) {
			chances = append(chances, other.Chance)
		}
	}
	slices.Sort(chances)
	slices.Reverse(chances)
	threshold, aside := math.Inf(1), 0.0
	for i, chance := range chances {
		if useful := min(float64(i+1), chance*float64(p.slots())); useful > aside {
			threshold, aside = chance, useful
		}
	}
	if w.Chance < threshold {
		return false
	}
	better := 0
	for _, other := range p.live {
		if other == w || p.trials[other.Trial].phase != running || math.IsNaN(other.Chance) {
			continue
		}
		if other.Chance > w.Chance || other.Chance == w.Chance && other.Trial < w.Trial {
			better++
		}
	}
	return better < int(math.Round(aside))
}

// slots returns the number of trials that can run at once.
func (p *performance) slots() int { return max(p.Slots, p.running) }

// merit returns a trial's chance divided by its remaining steps.
func (p *performance) merit(w *watched) float64 {
	chance := w.Chance
	if math.IsNaN(chance) {
		chance = 0
	}
	return chance / float64(max(1, p.steps-w.Step))
}

// newTrialMerit returns the merit of a new trial: the probability that a new draw is the best so far, divided by the
// average steps of the trials that ended.
func (p *performance) newTrialMerit() float64 {
	each := float64(p.steps)
	if p.Ended > 0 {
		each = max(1, float64(p.EndedSteps)/float64(p.Ended))
	}
	return 1 / float64(len(p.trials)+1) / each
}

// worthMore reports whether a trial has at least the merit of a new one.
func (p *performance) worthMore(w *watched) bool {
	return p.canCreate() && p.merit(w) >= p.newTrialMerit()
}

func (p *performance) newTrialMeritOrZero() float64 {
	if p.canCreate() {
		return p.newTrialMerit()
	}
	return 0
}

func (p *performance) heap() *ranking {
	waiting := heapOf(ahead, p.Waiting)
	return &waiting
}

// someoneWaits reports whether a paused trial waits, and moves the best one to the top of the heap.
func (p *performance) someoneWaits() bool {
	waiting := p.heap()
	ok := waiting.dropTop(func(e entry) bool { return p.live[e.Trial] != nil && p.trials[e.Trial].phase == paused })
	p.Waiting = waiting.items
	return ok
}

func (p *performance) ask(n int) error {
	p.Slots = p.running + n
	for n > 0 && len(p.Resume) > 0 {
		t := p.Resume[0]
		p.Resume = p.Resume[1:]
		if p.trials[t].phase != ready {
			continue
		}
		p.resume(t, p.Done, fmt.Sprintf("the sweep was extended to %s", english.Plural(int(p.steps), "step", "")))
		n--
	}
	for n > 0 {
		waits := p.someoneWaits()
		switch {
		case waits && (!p.canCreate() || -p.Waiting[0].Cost > p.newTrialMerit()):
			waiting := p.heap()
			t := waiting.pop().Trial
			p.Waiting = waiting.items
			p.resume(t, p.live[t].Step, "its turn: of all that wait it has the best chance for the steps it needs")
			n--
		case p.canCreate():
			ok, err := p.begin()
			if err != nil {
				return err
			}
			if ok {
				n--
			}
		default:
			return nil
		}
	}
	return nil
}

func (p *performance) resume(t Trial, from int64, reason string) {
	p.running++
	p.train(t, p.next(from), reason)
}

// begin creates a trial, or returns false if no configuration is left.
func (p *performance) begin() (bool, error) {
	reason := fmt.Sprintf("%s %d", p.label, len(p.trials)+1)
	if p.limit() > 0 {
		reason += fmt.Sprintf(" of %d", p.limit())
	}
	_, ok, err := p.create(record{}, p.next(0), 0, reason)
	if ok {
		p.running++
	}
	return ok, err
}

func (p *performance) status() Status {
	idle := len(p.Resume) == 0 && !p.canCreate() && !p.someoneWaits()
	return Status{Waiting: idle, Exhausted: idle}
}
