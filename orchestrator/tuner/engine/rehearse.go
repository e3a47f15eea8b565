package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
)

// rehearsalWidth is the number of trials that a rehearsal trains at once.
const rehearsalWidth = 64

// Rehearse runs a new tuner to its end on random metrics and counts the trials and steps of each rung, for a preview.
// No trial fails, and a trial's metric does not depend on the order of the trials. If the tuner creates more
// than limit trials, Rehearse returns the tuner's own Outlook.
func Rehearse(t tuner.Tuner, limit int) (tuner.Outlook, error) {
	r := rehearsal{tuner: t}
	for !r.tuner.Status().Exhausted || len(r.queue) > 0 {
		if len(r.trials) > limit {
			return t.Outlook(), nil
		}
		before := len(r.queue)
		if before < rehearsalWidth && !t.Status().Waiting {
			if err := r.send(tuner.Ask{N: rehearsalWidth - before}); err != nil {
				return tuner.Outlook{}, err
			}
			if len(r.queue) > before {
				continue
			}
		}
		if len(r.queue) == 0 {
			if t.Status().Exhausted {
				break
			}
			return tuner.Outlook{}, fmt.Errorf("tuner: it waits for an event of a trial, but no trial is running")
		}
		if err := r.next(); err != nil {
			return tuner.Outlook{}, err
		}
	}
	return r.Outlook(), nil
}

// A rehearsal trains trials in the order in which the tuner starts them.
type rehearsal struct {
	tuner  tuner.Tuner
	trials []rehearsed
	queue  []tuner.Trial
	rungs  []tuner.Rung
}

type rehearsed struct {
	bracket      int
	step, target int64
}

// next lets the trial that has waited longest reach its target, or exit if it has none.
func (r *rehearsal) next() error {
	t := r.queue[0]
	r.queue = r.queue[1:]
	metric := rand.New(rand.NewPCG(uint64(t), rehearsalWidth)).Float64()
	if r.trials[t].target == 0 {
		return r.send(tuner.Exited{Trial: t, Metric: metric})
	}
	r.trials[t].step = r.trials[t].target
	return r.send(tuner.Reached{Trial: t, Step: r.trials[t].step, Metric: metric})
}

func (r *rehearsal) send(e tuner.Event) error {
	actions, err := r.tuner.Handle(e)
	if err != nil {
		return err
	}
	for _, a := range actions {
		switch a := a.(type) {
		case tuner.Create:
			r.trials = append(r.trials, rehearsed{bracket: a.Bracket})
			r.start(tuner.Trial(len(r.trials)-1), a.UntilStep)
		case tuner.Train:
			r.start(a.Trial, a.UntilStep)
		case tuner.Clone:
			r.trials[a.Trial].step = r.trials[a.Source].step
			r.start(a.Trial, a.UntilStep)
		}
	}
	return nil
}

func (r *rehearsal) start(t tuner.Trial, until int64) {
	trial := &r.trials[t]
	steps := max(0, until-trial.step)
	trial.target = until
	r.queue = append(r.queue, t)
	i := slices.IndexFunc(r.rungs, func(g tuner.Rung) bool { return g.Bracket == trial.bracket && g.UntilStep == until })
	if i < 0 {
		i = len(r.rungs)
		r.rungs = append(r.rungs, tuner.Rung{Bracket: trial.bracket, UntilStep: until})
	}
	r.rungs[i].Trials++
	r.rungs[i].Steps += steps
}

// Outlook returns the counts: brackets in the order in which they began, and their rungs from the bottom.
func (r *rehearsal) Outlook() tuner.Outlook {
	o := tuner.Outlook{Trials: len(r.trials)}
	order := map[int]int{}
	for i, g := range r.rungs {
		if _, known := order[g.Bracket]; !known {
			order[g.Bracket] = i
		}
		o.Steps += g.Steps
	}
	o.Rungs = r.rungs
	slices.SortStableFunc(o.Rungs, func(a, b tuner.Rung) int {
		if a.Bracket != b.Bracket {
			return order[a.Bracket] - order[b.Bracket]
		}
		return int(min(max(a.UntilStep-b.UntilStep, -1), 1))
	})
	return o
}
