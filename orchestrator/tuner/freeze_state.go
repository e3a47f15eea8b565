package tuner

import (
	"maps"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/curve/population"
)

func (z *freeze) save() (any, error) {
	z.freezeState.Flat = z.singleStageState
	z.Live = nil
	for _, t := range slices.Sorted(maps.Keys(z.live)) {
		z.Live = append(z.Live, *z.live[t])
	}
	return z.freezeState, nil
}

func (z *freeze) load(decode func(any) error) error {
	var state freezeState
	if err := decode(&state); err != nil {
		return err
	}
	other := len(state.Beliefs.Weights) != len(population.CorrelationModels()) // written by a version with other models, or with none
	if other {
		state.Beliefs = population.Prior()
	}
	if len(state.Looks) == 0 || state.Looks[len(state.Looks)-1] != z.steps || !slices.IsSorted(state.Looks) || state.Looks[0] < 1 ||
		len(state.Scale.Lengths) != z.configs.space.Dims() || !state.Beliefs.Whole() {
		return ErrBadSnapshot
	}
	z.freezeState, z.singleStageState = state, state.Flat
	z.gittins = population.NewGittinsIndex(z.Looks)
	for _, w := range slices.Concat(state.Live, state.Past) {
		if w.Trial < 0 || int(w.Trial) >= len(z.trials) || len(w.Costs) > len(z.Looks) || w.X != nil && len(w.X) != z.configs.space.Dims() {
			return ErrBadSnapshot
		}
	}
	for _, w := range state.Live {
		if z.live[w.Trial] != nil {
			return ErrBadSnapshot
		}
		z.live[w.Trial] = &w
	}
	z.Live = nil
	if other {
		z.Beliefs = population.Believe(z.curves(), z.gittins)
	}
	for _, r := range z.trials {
		if r.phase == running {
			z.running++
		}
	}
	return z.singleStageState.check(len(z.trials))
}
