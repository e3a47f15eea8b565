package sample

import (
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/tuner/surrogate"
)

// A Past is an earlier sweep: its trials as points of the new sweep's space, which may lie outside of the unit cube, and
// their costs.
type Past struct {
	Points [][]float64
	Costs  []float64
}

// A Rememberer is a sampler that can start from earlier sweeps.
type Rememberer interface {
	// Remember gives it earlier sweeps. They are not a part of its snapshots, so it is called again after Restore.
	Remember(past []Past)
}

var _ Rememberer = (*Bayes)(nil)

const (
	// A sweep that remembers others begins with a configuration that was good in them, the centre, and one of the
	// sequence of initial configurations. Then, from guidedFrom on, earlier sweeps are a part of the model. From
	// guidedUntil on they no longer are: the sweep's own trials say more, and misleading sweeps are forgotten.
	guidedFrom, guidedUntil = 3, 7
)

// Remember implements Rememberer.
func (b *Bayes) Remember(past []Past) { b.past, b.models, b.isRecalled = past, nil, false }

// recalled returns models of the earlier sweeps that may still guide this one. They are made when they are first needed.
func (b *Bayes) recalled() []*surrogate.Past {
	if b.Trials >= guidedUntil || b.Vectors != nil {
		return nil
	}
	if !b.isRecalled {
		b.isRecalled = true
		for _, p := range b.past {
			var seen []surrogate.Seen
			for i, at := range p.Points {
				seen = append(seen, surrogate.Seen{At: at, Cost: p.Costs[i]})
			}
			if m, ok := surrogate.Recall(b.parameters(), seen); ok {
				b.models = append(b.models, m)
			}
		}
	}
	return b.models
}

// initial returns one of the first two configurations, or false if the sequence of initial configurations has the next.
func (b *Bayes) initial() ([]float64, bool) {
	past := b.recalled()
	if b.Trials == 0 && len(past) > 0 {
		if u, ok := surrogate.Guess(past, b.snapper.Snap); ok {
			return u, true
		}
	}
	if b.Trials == 0 || b.Trials == 1 && len(past) > 0 { // the centre, because users put what they think is right in the middle of a range
		u := slices.Repeat([]float64{0.5}, b.space.Dims())
		return u, b.space.Allowed(b.space.At(u))
	}
	return nil, false
}

// firstModelled returns the first trial whose configuration the model chooses.
func (b *Bayes) firstModelled(past []*surrogate.Past) int {
	usual := min(b.space.Dims()+firstTrials, mostFirst)
	if len(past) > 0 {
		return min(usual, guidedFrom)
	}
	return usual
}
