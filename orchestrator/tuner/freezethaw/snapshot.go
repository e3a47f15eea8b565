package freezethaw

import (
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/curve/population"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/engine"
)

func (z *freeze) Save() (any, error) {
	z.state.Flat = z.State
	z.Live = nil
	for _, t := range z.live.numbers() {
		z.Live = append(z.Live, *z.live[t])
	}
	return z.state, nil
}

func (z *freeze) Load(decode func(any) error) error {
	var saved state
	if err := decode(&saved); err != nil {
		return err
	}
	other := len(saved.Beliefs.Weights) != len(population.CorrelationModels()) // written by a version with other models, or with none
	if other {
		saved.Beliefs = population.Prior()
	}
	if len(saved.Looks) == 0 || saved.Looks[len(saved.Looks)-1] != z.Steps || !slices.IsSorted(saved.Looks) || saved.Looks[0] < 1 ||
		len(saved.Scale.Lengths) != z.Configs.Space.Dims() || !saved.Beliefs.Whole() {
		return tuner.ErrBadSnapshot
	}
	z.state, z.State = saved, saved.Flat
	z.gittins = population.NewGittinsIndex(z.Looks)
	for _, w := range slices.Concat(saved.Live, saved.Past) {
		if w.Trial < 0 || int(w.Trial) >= len(z.Trials) || len(w.Costs) > len(z.Looks) || w.X != nil && len(w.X) != z.Configs.Space.Dims() {
			return tuner.ErrBadSnapshot
		}
	}
	for _, w := range saved.Live {
		if z.live[w.Trial] != nil {
			return tuner.ErrBadSnapshot
		}
		z.live[w.Trial] = &w
	}
	z.Live = nil
	if other {
		z.Beliefs = population.Believe(z.curves(z.live), z.gittins)
	}
	for _, r := range z.Trials {
		if r.Phase == engine.Running {
			z.running++
		}
	}
	return z.State.Check(len(z.Trials))
}
