// Package halving runs brackets of synchronous successive halving: successive halving has one bracket, Hyperband
// several. Brackets are filled in order, and a later one is filled while an earlier one's rungs wait.
//
// A rung is decided when every trial in it has reached its step or exited: the best continue, the others end. A trial
// that can no longer be among the best ends at once. That changes no decision and frees its checkpoint early. NaN is
// worst, and an exit is worse than NaN. Neither continues, even if places stay empty. In higher rungs, both count as
// the worst trials.
package halving

import (
	"fmt"
	"math"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/engine"
	"github.com/outbid-dev/outbid/orchestrator/tuner/ladder"
	"github.com/outbid-dev/outbid/orchestrator/tuner/rank"
)

// Rules run the brackets of a Design.
type Rules struct {
	*engine.Core
	design Design
	state
	// next is the bracket being filled. ready is the number of queued trials that have not exited.
	next, ready int
}

// A Design derives the brackets from a spec.
type Design interface {
	// Brackets returns all brackets, regardless of the trial limit.
	Brackets(tuner.Settings) ([]Bracket, error)
	// Added returns the brackets that the new settings have in addition to those of the old ones.
	Added(old, now tuner.Settings) ([]Bracket, error)
}

// state is the part of a snapshot besides the trials.
type state struct {
	Brackets []Bracket
	Queue    []promotion
}

// A promotion is a trial that the next Ask can resume.
type promotion struct {
	Trial tuner.Trial
	// Rank is its rank, from 1, in the rung that it comes from.
	Rank int
}

// A Bracket is one run of successive halving.
type Bracket struct {
	Label int
	// Full is the number of trials in the definition, N the number that the trial limit allows, Created the number of
	// existing trials.
	Full, N, Created int
	Eta              int
	Rungs            []Rung
}

// A Rung is one stage of a bracket.
type Rung struct {
	Level int64
	// Extra is 1 if an extension added the rung above: at least the best trial continues.
	Extra int
	// In is the number of trials that entered, Here the number of those that reached the level or exited.
	In, Here int
	Decided  bool

	// worst ranks the waiting trials. held is their number without those that exited.
	worst rank.Ranking
	held  int
}

// NewBracket returns a bracket of n trials whose rungs end at the levels.
func NewBracket(label, n int, eta int64, levels []int64) Bracket {
	b := Bracket{Label: label, Full: n, Eta: int(eta)}
	for _, level := range levels {
		b.Rungs = append(b.Rungs, Rung{Level: level, worst: rank.WorstFirst()})
	}
	return b
}

// sizes returns the number of trials that enter each rung: n_i = floor(n / eta^i).
func (b *Bracket) sizes() []int {
	sizes := make([]int, len(b.Rungs))
	n := b.N
	for i := range b.Rungs {
		sizes[i] = n
		n = b.places(i, n)
	}
	return sizes
}

// places returns how many of the n trials in a rung continue.
func (b *Bracket) places(rung, n int) int {
	return max(n/b.Eta, min(n, b.Rungs[rung].Extra))
}

// promotions returns how many trials continue from a rung.
func (b *Bracket) promotions(rung int) int {
	n := b.N
	for i := range rung + 1 {
		n = b.places(i, n)
	}
	return n
}

func (b *Bracket) top() int { return len(b.Rungs) - 1 }

// canPromote reports whether a trial may still be promoted.
func (b Bracket) canPromote() bool { return b.N > 0 && b.top() > 0 && !b.Rungs[b.top()-1].Decided }

// complete reports whether a rung can be decided.
func (b *Bracket) complete(rung int) bool {
	if rung == 0 && b.Created < b.N || rung > 0 && !b.Rungs[rung-1].Decided {
		return false
	}
	return b.Rungs[rung].Here == b.Rungs[rung].In
}

// Bare returns rules without brackets, to load a snapshot into.
func Bare(c *engine.Core, d Design) *Rules { return &Rules{Core: c, design: d} }

// Start returns the rules of a new sweep with the brackets of a design.
func Start(c *engine.Core, d Design) (*Rules, error) {
	h := Bare(c, d)
	var err error
	if h.Brackets, err = d.Brackets(tuner.Settings{Spec: c.Spec}); err != nil {
		return nil, err
	}
	h.allot()
	return h, nil
}

// allot assigns the trials that the limit allows to the brackets in order. The bracket in which the limit falls is
// reduced, with its rungs. Later brackets get no trials until the limit is raised.
func (h *Rules) allot() {
	room := math.MaxInt32
	if h.Limit() > 0 {
		room = h.Limit()
	}
	for i := range h.Brackets {
		room -= h.Brackets[i].N
	}
	for i := 0; i < len(h.Brackets) && room > 0; i++ {
		b := &h.Brackets[i]
		more := min(b.Full-b.N, room)
		switch {
		case more <= 0:
			continue
		case b.Rungs[0].Decided:
			rest := NewBracket(b.Label, b.Full-b.N, int64(b.Eta), nil)
			for _, r := range b.Rungs {
				rest.Rungs = append(rest.Rungs, Rung{Level: r.Level, Extra: r.Extra, worst: rank.WorstFirst()})
			}
			b.Full = b.N
			h.Brackets = append(h.Brackets, rest)
		default:
			b.N += more
			room -= more
		}
	}
	h.next = 0
}

// Status implements engine.Rules.
func (h *Rules) Status() tuner.Status {
	create := h.fill() != nil && h.CanCreate()
	s := tuner.Status{Waiting: h.ready == 0 && !create}
	s.Exhausted = s.Waiting && !slices.ContainsFunc(h.Brackets, Bracket.canPromote)
	return s
}

// fill returns the bracket for the next new trial, or nil if all are full.
func (h *Rules) fill() *Bracket {
	for h.next < len(h.Brackets) {
		if b := &h.Brackets[h.next]; b.Created < b.N {
			return b
		}
		h.next++
	}
	return nil
}

// Outlook implements engine.Rules.
func (h *Rules) Outlook() tuner.Outlook {
	var o tuner.Outlook
	for i := range h.Brackets {
		b := &h.Brackets[i]
		o.Trials += b.N
		levels := make([]int64, len(b.Rungs))
		for k := range levels {
			levels[k] = b.Rungs[k].Level
		}
		ladder.AddOutlook(&o, b.Label, levels, b.sizes())
	}
	return o
}

// Extend implements engine.Rules.
func (h *Rules) Extend(old tuner.Settings) error {
	now := tuner.Settings{Spec: h.Spec}
	if h.Steps > tuner.MaxSteps(old.Spec.GetTuner()) {
		h.raise(h.Steps)
	}
	added, err := h.design.Added(old, now)
	if err != nil {
		return err
	}
	for _, a := range added {
		last := &h.Brackets[len(h.Brackets)-1]
		if last.Label == a.Label && last.top() == a.top() && !last.Rungs[0].Decided {
			last.Full += a.Full
			continue
		}
		h.Brackets = append(h.Brackets, a)
	}
	h.allot()
	for i := range h.Brackets {
		h.decideRungs(i, -1)
	}
	return nil
}

// raise adds rungs above every bracket. The trials that completed the last rung before may continue.
func (h *Rules) raise(high int64) {
	for i := range h.Brackets {
		b := &h.Brackets[i]
		for _, level := range ladder.Higher(b.Rungs[b.top()].Level, high, int64(b.Eta)) {
			b.Rungs[b.top()].Extra = 1
			b.Rungs = append(b.Rungs, Rung{Level: level, worst: rank.WorstFirst()})
		}
	}
	h.restoreRungs()
}

// Save implements engine.Rules.
func (h *Rules) Save() (any, error) { return h.state, nil }

// Load implements engine.Rules.
func (h *Rules) Load(decode func(any) error) error {
	if err := decode(&h.state); err != nil {
		return err
	}
	for i := range h.Brackets {
		b := &h.Brackets[i]
		if len(b.Rungs) == 0 || len(b.Rungs) > ladder.MaxRungs || b.Eta < 2 || b.N < 0 || b.Created > b.N {
			return tuner.ErrBadSnapshot
		}
	}
	for _, r := range h.Trials {
		if r.Bracket < 0 || int(r.Bracket) >= len(h.Brackets) ||
			int(r.Rung) >= len(h.Brackets[r.Bracket].Rungs) {
			return tuner.ErrBadSnapshot
		}
		if r.Phase == engine.Ready {
			h.ready++
		}
	}
	for _, p := range h.Queue {
		if p.Trial < 0 || int(p.Trial) >= len(h.Trials) {
			return tuner.ErrBadSnapshot
		}
	}
	h.restoreRungs()
	return nil
}

// restoreRungs rebuilds the rankings from the trials.
func (h *Rules) restoreRungs() {
	for i := range h.Brackets {
		for k := range h.Brackets[i].Rungs {
			r := &h.Brackets[i].Rungs[k]
			r.worst, r.held = rank.WorstFirst(), 0
		}
	}
	for t, r := range h.Trials {
		b := &h.Brackets[r.Bracket]
		if r.Phase == engine.Paused || r.MayContinue(b.top()) && !b.Rungs[r.Rung].Decided {
			h.admit(tuner.Trial(t))
		}
	}
}

// maxFirstRung is the maximum number of trials of a first rung, to catch a mistyped max_steps.
const maxFirstRung = 1_000_000

// CheckFirstRung rejects settings whose first rung would have too many trials for one of them to reach the last rung.
func CheckFirstRung(tuner string, high, low, eta int64) error {
	if n := math.Pow(float64(eta), float64(ladder.LogFloor(low, high, eta))); n > maxFirstRung {
		return fmt.Errorf("tuner.%s.min_steps: %d up to max_steps %d makes a first rung of %.0f trials, more than %d; raise it",
			tuner, low, high, n, maxFirstRung)
	}
	return nil
}
