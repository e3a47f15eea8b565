// Package fork implements HadarE's job tracker (Sultana et al., "Hadar: Heterogeneity-Aware Optimization-Based Online
// Scheduling for Deep Learning Clusters", section V): a trial is forked over different nodes, one fork slot after
// another. In each slot its forks start from the same checkpoint. Each trains its share of the remaining steps, or
// until the slot ends, and saves. The saved steps add up and count once, and the checkpoints are averaged into the
// start of the next slot.
package fork

import (
	"slices"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Slot is a fork slot of a trial. It is immutable: changes return a new one.
type Slot struct {
	// From is the step of Start, from which every fork starts. Start is nil if they start from the beginning.
	From  int64
	Start *outbidv1.Checkpoint
	// Began is when the slot began, or zero if unknown. Ends is when it ends, or zero for never. Forks is the planned
	// number of forks.
	Began, Ends time.Time
	Forks       int32
	// Parts are the forks in the order of their grants.
	Parts []Part
	// Attempt counts the averages that were ordered. Node is the node that was last ordered to average, or "".
	Attempt    int32
	Node, Boot string
	// Void reports that the slot's work does not count, because the trial continues from another checkpoint.
	Void bool
	// Lost reports that a fork's node was lost. Further losses in this slot may have the same cause, such as a power
	// cut.
	Lost bool
}

// Part is a fork's part of a slot.
type Part struct {
	// Lease under which the fork trains.
	Lease uint64
	// Share is the number of steps to train, and Done the number that the fork has reported.
	Share, Done int64
	// Saved is the fork's newest checkpoint in this slot, or nil.
	Saved *outbidv1.Checkpoint
	// Over reports that the fork's lease has ended.
	Over bool
	// Places are where the fork trains. They must not be changed.
	Places []*outbidv1.TrialPlace
	// Forecast is the rate from which the share was computed, and Rate the rate that was measured in this slot, both
	// in steps per second; 0 if unknown.
	Forecast, Rate float64
}

// Steps returns the steps of this slot in the part's checkpoint, which count once the slot is over.
func (s *Slot) Steps(p *Part) int64 {
	if p.Saved == nil {
		return 0
	}
	return max(0, p.Saved.GetStep()-s.From)
}

// Begin returns a slot without forks.
func Begin(start *outbidv1.Checkpoint, forks int32, ends time.Time) *Slot {
	return &Slot{From: start.GetStep(), Start: start, Forks: forks, Ends: ends}
}

// Join adds a fork.
func (s *Slot) Join(lease uint64, share int64) *Slot {
	next := s.clone()
	next.Parts = append(next.Parts, Part{Lease: lease, Share: share})
	return next
}

// Placed sets where a fork trains, and the rate from which its share was computed.
func (s *Slot) Placed(lease uint64, places []*outbidv1.TrialPlace, forecast float64) *Slot {
	return s.with(lease, func(p *Part) { p.Places, p.Forecast = places, forecast })
}

// Part returns the part of a lease and its index, or nil and -1.
func (s *Slot) Part(lease uint64) (*Part, int) {
	if s == nil {
		return nil, -1
	}
	i := slices.IndexFunc(s.Parts, func(p Part) bool { return p.Lease == lease })
	if i < 0 {
		return nil, -1
	}
	return &s.Parts[i], i
}

// Until returns a fork's target step.
func (s *Slot) Until(lease uint64) int64 {
	p, _ := s.Part(lease)
	if p == nil {
		return s.From
	}
	return s.From + p.Share
}

// Reported sets a fork's step by its own count. It may go back if the fork restarted.
func (s *Slot) Reported(lease uint64, step int64) *Slot {
	return s.with(lease, func(p *Part) { p.Done = max(0, step-s.From) })
}

// Measured sets how fast a fork trains, in steps per second.
func (s *Slot) Measured(lease uint64, rate float64) *Slot {
	return s.with(lease, func(p *Part) { p.Rate = rate })
}

// Saved sets a fork's checkpoint, unless the fork has a newer one.
func (s *Slot) Saved(lease uint64, c *outbidv1.Checkpoint) *Slot {
	return s.with(lease, func(p *Part) {
		if p.Saved == nil || c.GetStep() >= p.Saved.GetStep() {
			p.Saved = c
		}
	})
}

// Ended records that a fork's lease has ended. Steps that it has not saved are lost.
func (s *Slot) Ended(lease uint64) *Slot {
	return s.with(lease, func(p *Part) { p.Over, p.Done = true, s.Steps(p) })
}

// Ordered records that a boot of a node was ordered to average.
func (s *Slot) Ordered(attempt int32, node, boot string) *Slot {
	next := s.clone()
	next.Attempt, next.Node, next.Boot = attempt, node, boot
	return next
}

// LostNode records that a fork's node was lost.
func (s *Slot) LostNode() *Slot {
	next := s.clone()
	next.Lost = true
	return next
}

// Voided records that the trial continues from another checkpoint.
func (s *Slot) Voided() *Slot {
	next := s.clone()
	next.Void = true
	return next
}

// Dropped records that the checkpoint from which all forks started was dropped: their steps and checkpoints no longer
// count.
func (s *Slot) Dropped() *Slot {
	next := s.Voided()
	for i := range next.Parts {
		next.Parts[i].Done, next.Parts[i].Saved = 0, nil
	}
	return next
}

// Step returns the trial's step from the reports of its forks: the start of the slot, and the steps of each since.
func (s *Slot) Step() int64 {
	step := s.From
	for i := range s.Parts {
		step += s.Parts[i].Done
	}
	return step
}

// Counts returns the trial's step from the checkpoints of its forks, which is the result of the slot.
func (s *Slot) Counts() int64 {
	step := s.From
	for i := range s.Parts {
		step += s.Steps(&s.Parts[i])
	}
	return step
}

// Rate returns the total rate of all forks that are training, in steps per second.
func (s *Slot) Rate() (sum float64) {
	for i := range s.Parts {
		if !s.Parts[i].Over {
			sum += s.Parts[i].Rate
		}
	}
	return sum
}

// Overdue reports whether the slot's time is over.
func (s *Slot) Overdue(now time.Time) bool { return !s.Ends.IsZero() && !now.Before(s.Ends) }

// Sources returns the forks that saved steps, those with the most steps first. Their checkpoints are averaged,
// weighted by steps.
func (s *Slot) Sources() []Part {
	var parts []Part
	for i := range s.Parts {
		if !s.Void && s.Steps(&s.Parts[i]) > 0 {
			parts = append(parts, s.Parts[i])
		}
	}
	slices.SortStableFunc(parts, func(a, b Part) int { return int(s.Steps(&b) - s.Steps(&a)) })
	return parts
}

// Over reports whether the lease of every fork has ended.
func (s *Slot) Over() bool {
	return !slices.ContainsFunc(s.Parts, func(p Part) bool { return !p.Over })
}

func (s *Slot) clone() *Slot {
	next := *s
	next.Parts = slices.Clone(s.Parts)
	return &next
}

func (s *Slot) with(lease uint64, change func(*Part)) *Slot {
	if _, i := s.Part(lease); i >= 0 {
		next := s.clone()
		change(&next.Parts[i])
		return next
	}
	return s
}
