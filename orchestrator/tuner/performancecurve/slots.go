package performancecurve

import (
	"fmt"
	"math"
	"slices"

	"github.com/dustin/go-humanize/english"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/engine"
	"github.com/outbid-dev/outbid/orchestrator/tuner/rank"
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
	if p.CanCreate() && p.newTrialMerit() > own {
		rival = "a new trial"
	}
	if p.someoneWaits() && -waiting.Top().Cost > max(own, p.newTrialMeritOrZero()) {
		rival = fmt.Sprintf("trial %d", waiting.Top().Trial)
	}
	if rival == "" {
		p.trainOn(w, reason)
		return
	}
	p.running--
	waiting = p.heap()
	waiting.Push(rank.Entry{Cost: -own, Trial: w.Trial})
	p.Waiting = waiting.Items
	p.Pause(w.Trial, reason+"; "+rival+" has the better chance for its steps")
}

// promising reports whether a running trial is among those that slots are reserved for. The threshold p is the one that
// reserves the most useful slots: no more than p times all slots, which trials with a chance of p deserve, and no more
// than there are trials above p (section 3.2 of the paper).
func (p *performance) promising(w *watched) bool {
	var chances []float64
	for _, other := range p.live {
		if p.Trials[other.Trial].Phase == engine.Running && !math.IsNaN(other.Chance) {
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
		if other == w || p.Trials[other.Trial].Phase != engine.Running || math.IsNaN(other.Chance) {
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
	return chance / float64(max(1, p.Steps-w.Step))
}

// newTrialMerit returns the merit of a new trial: the probability that a new draw is the best so far, divided by the
// average steps of the trials that ended.
func (p *performance) newTrialMerit() float64 {
	each := float64(p.Steps)
	if p.Ended > 0 {
		each = max(1, float64(p.EndedSteps)/float64(p.Ended))
	}
	return 1 / float64(len(p.Trials)+1) / each
}

// worthMore reports whether a trial has at least the merit of a new one.
func (p *performance) worthMore(w *watched) bool {
	return p.CanCreate() && p.merit(w) >= p.newTrialMerit()
}

func (p *performance) newTrialMeritOrZero() float64 {
	if p.CanCreate() {
		return p.newTrialMerit()
	}
	return 0
}

func (p *performance) heap() *rank.Ranking {
	waiting := rank.HeapOf(rank.Ahead, p.Waiting)
	return &waiting
}

// someoneWaits reports whether a paused trial waits, and moves the best one to the top of the heap.
func (p *performance) someoneWaits() bool {
	waiting := p.heap()
	ok := waiting.DropTop(func(e rank.Entry) bool { return p.live[e.Trial] != nil && p.Trials[e.Trial].Phase == engine.Paused })
	p.Waiting = waiting.Items
	return ok
}

func (p *performance) Ask(n int) error {
	p.Slots = p.running + n
	for n > 0 && len(p.Resume) > 0 {
		t := p.Resume[0]
		p.Resume = p.Resume[1:]
		if p.Trials[t].Phase != engine.Ready {
			continue
		}
		p.resume(t, p.Done, fmt.Sprintf("the sweep was extended to %s", english.Plural(int(p.Steps), "step", "")))
		n--
	}
	for n > 0 {
		waits := p.someoneWaits()
		switch {
		case waits && (!p.CanCreate() || -p.Waiting[0].Cost > p.newTrialMerit()):
			waiting := p.heap()
			t := waiting.Pop().Trial
			p.Waiting = waiting.Items
			p.resume(t, p.live[t].Step, "its turn: of all that wait it has the best chance for the steps it needs")
			n--
		case p.CanCreate():
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

func (p *performance) resume(t tuner.Trial, from int64, reason string) {
	p.running++
	p.Train(t, p.next(from), reason)
}

// begin creates a trial, or returns false if no configuration is left.
func (p *performance) begin() (bool, error) {
	reason := fmt.Sprintf("%s %d", p.Label, len(p.Trials)+1)
	if p.Limit() > 0 {
		reason += fmt.Sprintf(" of %d", p.Limit())
	}
	_, ok, err := p.Create(engine.Record{}, p.next(0), 0, reason)
	if ok {
		p.running++
	}
	return ok, err
}

func (p *performance) Status() tuner.Status {
	idle := len(p.Resume) == 0 && !p.CanCreate() && !p.someoneWaits()
	return tuner.Status{Waiting: idle, Exhausted: idle}
}
