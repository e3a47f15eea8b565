// Package fork is HadarE's job tracker (Sultana et al., "Hadar: Heterogeneity-Aware Optimization-Based Online Scheduling
// for Deep Learning Clusters", section V): a trial is forked over unlike nodes, round after round. In each round its forks
// begin at the same checkpoint, each trains its share of the steps that are left, or until the slot ends, and saves; what
// they saved adds up, is averaged into the checkpoint of the next round, and counts once.
package fork

import (
	"slices"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Round is one round of a trial. It never changes: what happens makes another one.
type Round struct {
	// From is the step that Start holds: where every fork begins. Start is nil where they begin anew.
	From  int64
	Start *outbidv1.Checkpoint
	// Began is when it did, zero if that is unknown; Ends is when the slot ends, zero for never. Forks is how many there are to be.
	Began, Ends time.Time
	Forks       int32
	// Parts are the forks, in the order of their grants.
	Parts []Part
	// Attempt counts the consolidations that were ordered, and Node is the one that was told to last; "" for none.
	Attempt    int32
	Node, Boot string
	// Void: what it does counts for nothing, as the trial goes on from somewhere else.
	Void bool
	// Lost: a node was lost under one of its forks. Those that are lost after it in this round may be of the same power cut.
	Lost bool
}

// Part is a fork's part of a round.
type Part struct {
	// Lease that it trains under.
	Lease uint64
	// Share is how many steps it is to do, and Done how many it has said that it did.
	Share, Done int64
	// Saved is its newest checkpoint of this round; nil before the first.
	Saved *outbidv1.Checkpoint
	// Over: its lease has ended.
	Over bool
	// Places are where it trains. They are not changed.
	Places []*outbidv1.TrialPlace
	// Forecast is the rate by which its share was made, and Rate the one that was measured in this round, both in steps per
	// second; 0 if unknown.
	Forecast, Rate float64
}

// Steps are those that its checkpoint holds of this round: what counts once the round is over.
func (r *Round) Steps(p *Part) int64 {
	if p.Saved == nil {
		return 0
	}
	return max(0, p.Saved.GetStep()-r.From)
}

// Begin is a round in which nobody trains yet.
func Begin(start *outbidv1.Checkpoint, forks int32, ends time.Time) *Round {
	return &Round{From: start.GetStep(), Start: start, Forks: forks, Ends: ends}
}

// Join adds a fork.
func (r *Round) Join(lease uint64, share int64) *Round {
	next := r.clone()
	next.Parts = append(next.Parts, Part{Lease: lease, Share: share})
	return next
}

// Placed takes in where a fork trains, and the rate by which its share was made.
func (r *Round) Placed(lease uint64, places []*outbidv1.TrialPlace, forecast float64) *Round {
	return r.with(lease, func(p *Part) { p.Places, p.Forecast = places, forecast })
}

// Part is the part of a lease, and its index; nil and -1 if it has none.
func (r *Round) Part(lease uint64) (*Part, int) {
	if r == nil {
		return nil, -1
	}
	i := slices.IndexFunc(r.Parts, func(p Part) bool { return p.Lease == lease })
	if i < 0 {
		return nil, -1
	}
	return &r.Parts[i], i
}

// Until is the step that a fork is to train until.
func (r *Round) Until(lease uint64) int64 {
	p, _ := r.Part(lease)
	if p == nil {
		return r.From
	}
	return r.From + p.Share
}

// Reported takes in how far a fork is, by its own count. One that was started anew may be further back than before.
func (r *Round) Reported(lease uint64, step int64) *Round {
	return r.with(lease, func(p *Part) { p.Done = max(0, step-r.From) })
}

// Measured takes in how fast a fork trains, in steps per second.
func (r *Round) Measured(lease uint64, rate float64) *Round {
	return r.with(lease, func(p *Part) { p.Rate = rate })
}

// Saved takes in a checkpoint of a fork. An older one than it has changes nothing.
func (r *Round) Saved(lease uint64, c *outbidv1.Checkpoint) *Round {
	return r.with(lease, func(p *Part) {
		if p.Saved == nil || c.GetStep() >= p.Saved.GetStep() {
			p.Saved = c
		}
	})
}

// Ended takes in that a fork's lease has ended, and with it what was not saved.
func (r *Round) Ended(lease uint64) *Round {
	return r.with(lease, func(p *Part) { p.Over, p.Done = true, r.Steps(p) })
}

// Ordered takes in that a node is to consolidate, and which boot of it.
func (r *Round) Ordered(attempt int32, node, boot string) *Round {
	next := r.clone()
	next.Attempt, next.Node, next.Boot = attempt, node, boot
	return next
}

// LostNode takes in that a node was lost under one of its forks.
func (r *Round) LostNode() *Round {
	next := r.clone()
	next.Lost = true
	return next
}

// Voided takes in that the trial goes on from somewhere else.
func (r *Round) Voided() *Round {
	next := r.clone()
	next.Void = true
	return next
}

// Dropped takes in that what all forks began with was dropped: what they did is not there any more, and is not counted.
func (r *Round) Dropped() *Round {
	next := r.Voided()
	for i := range next.Parts {
		next.Parts[i].Done, next.Parts[i].Saved = 0, nil
	}
	return next
}

// Step is how far the trial is by what its forks said: where they began, and what each has done since.
func (r *Round) Step() int64 {
	step := r.From
	for i := range r.Parts {
		step += r.Parts[i].Done
	}
	return step
}

// Counts is how far the trial is by what its forks saved: what the round adds up to.
func (r *Round) Counts() int64 {
	step := r.From
	for i := range r.Parts {
		step += r.Steps(&r.Parts[i])
	}
	return step
}

// Rate is that of all forks that train, in steps per second.
func (r *Round) Rate() (sum float64) {
	for i := range r.Parts {
		if !r.Parts[i].Over {
			sum += r.Parts[i].Rate
		}
	}
	return sum
}

// Overdue says whether the slot has ended.
func (r *Round) Overdue(now time.Time) bool { return !r.Ends.IsZero() && !now.Before(r.Ends) }

// Sources are the forks that saved steps, those that did most first: what is consolidated, each by the steps that it did.
func (r *Round) Sources() []Part {
	var parts []Part
	for i := range r.Parts {
		if !r.Void && r.Steps(&r.Parts[i]) > 0 {
			parts = append(parts, r.Parts[i])
		}
	}
	slices.SortStableFunc(parts, func(a, b Part) int { return int(r.Steps(&b) - r.Steps(&a)) })
	return parts
}

// Over says whether the lease of every fork has ended.
func (r *Round) Over() bool {
	return !slices.ContainsFunc(r.Parts, func(p Part) bool { return !p.Over })
}

func (r *Round) clone() *Round {
	next := *r
	next.Parts = slices.Clone(r.Parts)
	return &next
}

func (r *Round) with(lease uint64, change func(*Part)) *Round {
	if _, i := r.Part(lease); i >= 0 {
		next := r.clone()
		change(&next.Parts[i])
		return next
	}
	return r
}
