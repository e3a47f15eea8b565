// Package asha is asynchronous successive halving: Li, Jamieson, Rostamizadeh, Gonina, Ben-tzur, Hardt, Recht and
// Talwalkar, "A System for Massively Parallel Hyperparameter Tuning" (MLSys 2020).
//
// Bracket s begins at rung r eta^s, as in algorithms 1 and 2. With several brackets, a new trial goes to the bracket
// that is furthest behind its share. The shares are Hyperband's sizes n_s = ceil(K eta^(K-1-s)/(K-s)) for K rungs, so
// that every bracket gets about the same number of steps.
package asha

import (
	"fmt"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/engine"
	"github.com/outbid-dev/outbid/orchestrator/tuner/ladder"
	"github.com/outbid-dev/outbid/orchestrator/tuner/rank"
	"github.com/outbid-dev/outbid/orchestrator/tuner/space"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// asha is the common part of both forms.
type asha struct {
	*engine.Core
	low, eta int64
	state
	// quotas are the trials of the limit that each bracket gets, or nil without a limit.
	quotas []int
}

// state is the part of a snapshot besides the trials.
type state struct {
	Brackets []bracket
	// Queue lists the trials of the stop-only form that completed before an extension and are to be resumed.
	Queue []tuner.Trial
}

// A bracket is a sequence of rungs.
type bracket struct {
	Share   int64
	Created int
	Rungs   []rung
}

// A rung is one stage of a bracket.
type rung struct {
	Level int64
	// Size counts the trials that reached the rung or failed on the way, Promoted those that continued.
	Size, Promoted int
	// Extra is 1 if an extension added the rung above: at least the best trial continues.
	Extra int
	// Top and Rest belong to the stop-only form: the best 1/eta of the metrics seen in the rung, and the others.
	Top, Rest []rank.Entry

	// The promotion form derives these from the trials: the waiting trials, best first and worst first, their number
	// without those that exited, and the number of trials that train towards the rung.
	best, worst     rank.Ranking
	held, expecting int
}

// Kind describes the tuner to the registry.
func Kind() *engine.Kind {
	return &engine.Kind{
		Name: "asha", Fresh: fresh, Check: check, Rule: true,
		Traits: tuner.Traits{Endless: true, Rungs: tuner.AsynchronousRungs},
	}
}

func check(t *outbidv1.Tuner, _ *space.Space) error {
	set := t.GetAsha()
	if most := ladder.LogFloor(set.GetMinSteps(), set.GetMaxSteps(), int64(set.GetEta())) + 1; int(set.GetBrackets()) > most {
		return fmt.Errorf("tuner.asha.brackets: must be from 1 to %d, the number of rungs, got %d", most, set.GetBrackets())
	}
	return nil
}

func fresh(c *engine.Core) (engine.Rules, error) {
	set := c.Tuner.GetAsha()
	a := &asha{Core: c, low: set.GetMinSteps(), eta: int64(set.GetEta())}
	a.makeBrackets(int(set.GetBrackets()))
	a.quotas = a.allot()
	if set.GetForm() == "stop" {
		return &stopping{asha: a}, nil
	}
	return &promoting{a}, nil
}

func (a *asha) makeBrackets(n int) {
	levels := ladder.Rising(a.low, a.Steps, a.eta)
	for s := range n {
		share := min(ladder.BracketTrials(len(levels)-1, len(levels)-1-s, a.eta), ladder.MaxTrials)
		b := bracket{Share: share}
		for _, level := range levels[s:] {
			b.Rungs = append(b.Rungs, rung{Level: level, best: rank.BestFirst(), worst: rank.WorstFirst()})
		}
		a.Brackets = append(a.Brackets, b)
	}
}

// turn returns the bracket for the next trial, given the number of trials in each: the one furthest behind its share.
func (a *asha) turn(counts []int) int {
	total, made := int64(0), int64(1)
	for i, n := range counts {
		total += a.Brackets[i].Share
		made += int64(n)
	}
	best, lag := 0, int64(0)
	for i, n := range counts {
		// lag| stays below total because every bracket stays within one trial of its share.
		l := a.Brackets[i].Share*made - total*int64(n)
		if i == 0 || l > lag {
			best, lag = i, l
		}
	}
	return best
}

func (a *asha) counts() []int {
	counts := make([]int, len(a.Brackets))
	for i := range counts {
		counts[i] = a.Brackets[i].Created
	}
	return counts
}

// allot distributes all trials that the limit still allows over the brackets. It returns nil without a limit.
func (a *asha) allot() []int {
	if a.Limit() == 0 {
		return nil
	}
	counts := a.counts()
	if len(counts) == 1 {
		counts[0] = a.Limit()
		return counts
	}
	made := 0
	for _, n := range counts {
		made += n
	}
	for ; made < a.Limit(); made++ {
		counts[a.turn(counts)]++
	}
	return counts
}

// add creates a trial in the bottom rung of the bracket whose turn it is.
func (a *asha) add() (bool, error) {
	i := a.turn(a.counts())
	b := &a.Brackets[i]
	reason := fmt.Sprintf("%s: nothing to promote, so a new trial", a.where(i, 0))
	_, ok, err := a.Create(engine.Record{Bracket: int32(i)}, b.Rungs[0].Level, i, reason)
	if ok {
		b.Created++
		b.Rungs[0].expecting++
	}
	return ok, err
}

func (a *asha) rung(t tuner.Trial) *rung {
	r := a.Trials[t]
	return &a.Brackets[r.Bracket].Rungs[r.Rung]
}

func (b *bracket) top() int { return len(b.Rungs) - 1 }

// places returns how many of the n trials in a rung may continue.
func (a *asha) places(r *rung, n int) int { return max(n/int(a.eta), min(n, r.Extra)) }

// where describes a rung in reasons.
func (a *asha) where(bracket, rung int) string {
	b := &a.Brackets[bracket]
	at := fmt.Sprintf("rung %d at step %d", rung, b.Rungs[rung].Level)
	if len(a.Brackets) == 1 {
		return at
	}
	return fmt.Sprintf("bracket %d, %s", bracket, at)
}

func (a *asha) whereIs(t tuner.Trial) string {
	return a.where(int(a.Trials[t].Bracket), int(a.Trials[t].Rung))
}

// raise adds rungs up to high above every bracket.
func (a *asha) raise(high int64) {
	for i := range a.Brackets {
		b := &a.Brackets[i]
		for _, level := range ladder.Higher(b.Rungs[b.top()].Level, high, a.eta) {
			b.Rungs[b.top()].Extra = 1
			b.Rungs = append(b.Rungs, rung{Level: level, best: rank.BestFirst(), worst: rank.WorstFirst()})
		}
	}
}

func (a *asha) Save() (any, error) { return a.state, nil }

// Load restores the common state of both forms and checks it against the trials.
func (a *asha) Load(decode func(any) error) error {
	var saved state
	if err := decode(&saved); err != nil {
		return err
	}
	if len(saved.Brackets) != len(a.Brackets) {
		return tuner.ErrBadSnapshot
	}
	a.state = saved
	for i := range a.Brackets {
		if n := len(a.Brackets[i].Rungs); n == 0 || n > ladder.MaxRungs || a.Brackets[i].Created < 0 {
			return tuner.ErrBadSnapshot
		}
	}
	for _, r := range a.Trials {
		if r.Bracket < 0 || int(r.Bracket) >= len(a.Brackets) || int(r.Rung) >= len(a.Brackets[r.Bracket].Rungs) {
			return tuner.ErrBadSnapshot
		}
	}
	for _, t := range a.Queue {
		if t < 0 || int(t) >= len(a.Trials) {
			return tuner.ErrBadSnapshot
		}
	}
	a.quotas = a.allot()
	return nil
}
