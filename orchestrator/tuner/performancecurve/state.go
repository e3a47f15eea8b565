package performancecurve

import (
	"maps"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/engine"
	"github.com/outbid-dev/outbid/orchestrator/tuner/ladder"
)

func (p *performance) Save() (any, error) {
	p.state.Flat = p.State
	p.Watched = nil
	for _, t := range slices.Sorted(maps.Keys(p.live)) {
		p.Watched = append(p.Watched, *p.live[t])
	}
	return p.state, nil
}

func (p *performance) Load(decode func(any) error) error {
	var saved state
	if err := decode(&saved); err != nil {
		return err
	}
	if saved.Interval < 1 || saved.Grace < 1 || saved.Slots < 0 || saved.Done < 0 || len(saved.Rungs) > ladder.MaxRungs {
		return tuner.ErrBadSnapshot
	}
	p.state, p.State = saved, saved.Flat
	for _, e := range saved.Waiting {
		if e.Trial < 0 || int(e.Trial) >= len(p.Trials) {
			return tuner.ErrBadSnapshot
		}
	}
	for _, w := range saved.Watched {
		if w.Trial < 0 || int(w.Trial) >= len(p.Trials) || p.live[w.Trial] != nil {
			return tuner.ErrBadSnapshot
		}
		p.live[w.Trial] = &w
	}
	p.Watched = nil
	for _, r := range p.Trials {
		if r.Phase == engine.Running {
			p.running++
		}
	}
	return p.State.Check(len(p.Trials))
}
