package tuner

import (
	"maps"
	"slices"
)

func (p *performance) save() (any, error) {
	p.performanceState.Flat = p.singleStageState
	p.Watched = nil
	for _, t := range slices.Sorted(maps.Keys(p.live)) {
		p.Watched = append(p.Watched, *p.live[t])
	}
	return p.performanceState, nil
}

func (p *performance) load(decode func(any) error) error {
	var state performanceState
	if err := decode(&state); err != nil {
		return err
	}
	if state.Interval < 1 || state.Grace < 1 || state.Slots < 0 || state.Done < 0 || len(state.Rungs) > maxRungs {
		return ErrBadSnapshot
	}
	p.performanceState, p.singleStageState = state, state.Flat
	for _, e := range state.Waiting {
		if e.Trial < 0 || int(e.Trial) >= len(p.trials) {
			return ErrBadSnapshot
		}
	}
	for _, w := range state.Watched {
		if w.Trial < 0 || int(w.Trial) >= len(p.trials) || p.live[w.Trial] != nil {
			return ErrBadSnapshot
		}
		p.live[w.Trial] = &w
	}
	p.Watched = nil
	for _, r := range p.trials {
		if r.phase == running {
			p.running++
		}
	}
	return p.singleStageState.check(len(p.trials))
}
