package tuner

import (
	"fmt"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// asha is what both forms of asynchronous successive halving share: Li, Jamieson, Rostamizadeh, Gonina, Ben-tzur,
// Hardt, Recht and Talwalkar, "A System for Massively Parallel Hyperparameter Tuning" (MLSys 2020).
//
// Bracket s begins at rung r eta^s, as algorithms 1 and 2 have it; with several brackets a new trial goes to the one
// that is furthest behind its share. The shares are Hyperband's sizes n_s = ceil(K eta^(K-1-s)/(K-s)) for K rungs, so
// that every bracket gets about the same steps.
type asha struct {
	*core
	low, eta int64
	ashaState
	// quotas are the trials that each bracket gets of the limit, nil without one.
	quotas []int
}

// ashaState is what a snapshot holds beside the trials.
type ashaState struct {
	Brackets []ashaBracket
	// Queue holds trials that completed before an extension of the stop-only form and are to go on.
	Queue []Trial
}

// An ashaBracket is a ladder of rungs.
type ashaBracket struct {
	Share   int64
	Created int
	Rungs   []ashaRung
}

// An ashaRung is one stage of a bracket.
type ashaRung struct {
	Level int64
	// Size counts the trials that got here or failed on the way, Promoted those that went on.
	Size, Promoted int
	// Extra is 1 where an extension put the rung above: at least the best trial goes on.
	Extra int
	// Top and Rest are the stop-only form's: the best 1/eta of the metrics seen here, and the others.
	Top, Rest []entry

	// What the promotion form derives from the trials: those that wait here, best first and worst first, their number
	// without those that exited, and the number of those on their way here.
	best, worst     ranking
	held, expecting int
}

func newASHA(c *core) (rules, error) {
	set := c.spec.GetTuner().GetAsha()
	a := &asha{core: c}
	var err error
	a.low, a.eta, err = checkRungs("asha", set.GetMaxSteps(), set.GetMinSteps(), int64(set.GetEta()))
	if err != nil {
		return nil, err
	}
	if err := a.makeBrackets(set); err != nil {
		return nil, err
	}
	a.quotas = a.allot()
	switch set.GetForm() {
	case "", "promote":
		return &ashaPromote{a}, nil
	case "stop":
		return &ashaStop{asha: a}, nil
	default:
		return nil, fmt.Errorf("tuner.asha.form: %q is unknown; use promote or stop", set.GetForm())
	}
}

func (a *asha) makeBrackets(set *outbidv1.Asha) error {
	levels := risingLevels(a.low, set.GetMaxSteps(), a.eta)
	n := int(set.GetBrackets())
	switch {
	case n < 0:
		return fmt.Errorf("tuner.asha.brackets: %d is negative; use 1 or more", n)
	case n > len(levels):
		return fmt.Errorf("tuner.asha.brackets: %d are more than the %d rungs from min_steps %d to max_steps %d", n,
			len(levels), a.low, set.GetMaxSteps())
	}
	for s := range max(n, 1) {
		share := min(hyperbandTrials(len(levels)-1, len(levels)-1-s, a.eta), maxTrials)
		b := ashaBracket{Share: share}
		for _, level := range levels[s:] {
			b.Rungs = append(b.Rungs, ashaRung{Level: level, best: bestFirst(), worst: worstFirst()})
		}
		a.Brackets = append(a.Brackets, b)
	}
	return nil
}

// turn is the bracket that gets the next trial after those counted: the one furthest behind its share.
func (a *asha) turn(counts []int) int {
	total, made := int64(0), int64(1)
	for i, n := range counts {
		total += a.Brackets[i].Share
		made += int64(n)
	}
	best, lag := 0, int64(0)
	for i, n := range counts {
		// |lag| stays below total, because every bracket keeps within one trial of its share.
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

// allot plays the creation of all trials that the limit still allows, nil without a limit.
func (a *asha) allot() []int {
	if a.limit() == 0 {
		return nil
	}
	counts := a.counts()
	if len(counts) == 1 {
		counts[0] = a.limit()
		return counts
	}
	made := 0
	for _, n := range counts {
		made += n
	}
	for ; made < a.limit(); made++ {
		counts[a.turn(counts)]++
	}
	return counts
}

// add creates one trial at the bottom of the bracket whose turn it is.
func (a *asha) add() (bool, error) {
	i := a.turn(a.counts())
	b := &a.Brackets[i]
	reason := fmt.Sprintf("%s: nothing to promote, so a new trial", a.where(i, 0))
	_, ok, err := a.create(record{bracket: int32(i)}, b.Rungs[0].Level, i, reason)
	if ok {
		b.Created++
		b.Rungs[0].expecting++
	}
	return ok, err
}

func (a *asha) rung(t Trial) *ashaRung {
	r := a.trials[t]
	return &a.Brackets[r.bracket].Rungs[r.rung]
}

func (b *ashaBracket) top() int { return len(b.Rungs) - 1 }

// places is how many of the n trials of a rung may go on.
func (a *asha) places(r *ashaRung, n int) int { return max(n/int(a.eta), min(n, r.Extra)) }

// where names a rung for people.
func (a *asha) where(bracket, rung int) string {
	b := &a.Brackets[bracket]
	at := fmt.Sprintf("rung %d at step %d", rung, b.Rungs[rung].Level)
	if len(a.Brackets) == 1 {
		return at
	}
	return fmt.Sprintf("bracket %d, %s", bracket, at)
}

func (a *asha) whereIs(t Trial) string {
	return a.where(int(a.trials[t].bracket), int(a.trials[t].rung))
}

// raise puts rungs up to high above every bracket.
func (a *asha) raise(high int64) {
	for i := range a.Brackets {
		b := &a.Brackets[i]
		for _, level := range higherLevels(b.Rungs[b.top()].Level, high, a.eta) {
			b.Rungs[b.top()].Extra = 1
			b.Rungs = append(b.Rungs, ashaRung{Level: level, best: bestFirst(), worst: worstFirst()})
		}
	}
}

func (a *asha) save() (any, error) { return a.ashaState, nil }

// load is the part of both forms: the state, checked against the trials.
func (a *asha) load(decode func(any) error) error {
	var state ashaState
	if err := decode(&state); err != nil {
		return err
	}
	if len(state.Brackets) != len(a.Brackets) {
		return ErrBadSnapshot
	}
	a.ashaState = state
	for i := range a.Brackets {
		if n := len(a.Brackets[i].Rungs); n == 0 || n > maxRungs || a.Brackets[i].Created < 0 {
			return ErrBadSnapshot
		}
	}
	for _, r := range a.trials {
		if r.bracket < 0 || int(r.bracket) >= len(a.Brackets) || int(r.rung) >= len(a.Brackets[r.bracket].Rungs) {
			return ErrBadSnapshot
		}
	}
	for _, t := range a.Queue {
		if t < 0 || int(t) >= len(a.trials) {
			return ErrBadSnapshot
		}
	}
	a.quotas = a.allot()
	return nil
}
