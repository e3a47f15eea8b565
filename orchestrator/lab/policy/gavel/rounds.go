package gavel

import (
	"cmp"
	"math"
	"slices"
)

// Rounds is the round-based mechanism (section 5, algorithm 1): in every round each type of worker goes to the jobs
// with the highest priority, which is a job's allocation over the fraction of rounds that it got. The rules are those
// of Gavel's code, which define more than the paper. All fields are its snapshot.
type Rounds struct {
	// Length of a round, in seconds.
	Length float64 `json:"length"`
	// Interval is the least time between two allocations, in seconds; Gavel's default is 1920.
	Interval float64 `json:"interval"`
	// Changed means that jobs were added or removed since the last allocation.
	Changed bool `json:"changed"`
	// Last is when the last allocation was made, in seconds; 0 for never.
	Last float64 `json:"last"`
	// Worked is the total time that jobs ran on each type since then, in seconds.
	Worked []float64 `json:"worked"`
	// Shares are the jobs in order of arrival, which is also that of their numbers.
	Shares []Share `json:"shares,omitempty"`
}

// Share is one job's allocation and the time that it ran.
type Share struct {
	Job int `json:"job"`
	// Target is its allocation, nil until one is made.
	Target []float64 `json:"target,omitempty"`
	// Time it ran on each type since the last allocation, in seconds, plus half a round.
	Time []float64 `json:"time"`
	// Deficit is the allocated time that it did not run, in seconds.
	Deficit []float64 `json:"deficit"`
}

// NewRounds returns the mechanism for a number of worker types.
func NewRounds(types int, length, interval float64) *Rounds {
	return &Rounds{Length: length, Interval: interval, Changed: true, Worked: make([]float64, types)}
}

// Add adds a job, whose number must be above those of all earlier ones. It has no allocation, and so does not run,
// until the next one is made.
func (r *Rounds) Add(job int) {
	s := Share{Job: job, Time: make([]float64, len(r.Worked)), Deficit: make([]float64, len(r.Worked))}
	for t := range s.Time {
		s.Time[t] = r.Length / 2
	}
	r.Shares = append(r.Shares, s)
	r.Changed = true
}

// Remove removes a job.
func (r *Rounds) Remove(job int) {
	r.Retain(func(i int) bool { return r.Shares[i].Job != job })
}

// Retain removes every share for whose index keep returns false.
func (r *Rounds) Retain(keep func(i int) bool) {
	kept := r.Shares[:0]
	for i := range r.Shares {
		if keep(i) {
			kept = append(kept, r.Shares[i])
		}
	}
	if len(kept) < len(r.Shares) {
		clear(r.Shares[len(kept):])
		r.Shares, r.Changed = kept, true
	}
}

// Index returns the index of a job's share, or -1. Job numbers are ascending.
func (r *Rounds) Index(job int) int {
	if i, found := slices.BinarySearchFunc(r.Shares, job, func(s Share, n int) int { return s.Job - n }); found {
		return i
	}
	return -1
}

// Ran records that a job ran on a type for some seconds. They count for the type even if the job is gone.
func (r *Rounds) Ran(job, t int, seconds float64) {
	r.Worked[t] += seconds
	if i := r.Index(job); i >= 0 {
		r.Shares[i].Time[t] += seconds
	}
}

// Retype converts the accounts to another list of types by name.
func (r *Rounds) Retype(from, to []string) {
	r.Worked, r.Changed = retyped(r.Worked, from, to, 0), true
	for i := range r.Shares {
		s := &r.Shares[i]
		s.Time, s.Deficit = retyped(s.Time, from, to, r.Length/2), retyped(s.Deficit, from, to, 0)
		if s.Target != nil {
			s.Target = retyped(s.Target, from, to, 0)
		}
	}
}

func retyped(row []float64, from, to []string, fresh float64) []float64 {
	moved := make([]float64, len(to))
	for i, kind := range to {
		moved[i] = fresh
		if old := slices.Index(from, kind); old >= 0 && old < len(row) {
			moved[i] = row[old]
		}
	}
	return moved
}

// Due reports whether to make a new allocation now: jobs have changed, and the last one is at least Interval ago.
func (r *Rounds) Due(now float64) bool {
	return r.Changed && (r.Last == 0 || now-r.Last >= r.Interval)
}

// Allocate closes the accounts of the old allocation and starts a new one with a row for each of Shares.
func (r *Rounds) Allocate(now float64, targets [][]float64) {
	elapsed := now - r.Last
	clear(r.Worked)
	for i := range r.Shares {
		s := &r.Shares[i]
		for t := range s.Time {
			due := 0.0
			if s.Target != nil {
				due = s.Target[t] * elapsed
			}
			s.Deficit[t] += due - (s.Time[t] - r.Length/2)
			s.Time[t] = r.Length / 2
			r.Worked[t] += s.Time[t]
		}
		s.Target = slices.Clone(targets[i])
	}
	r.Last, r.Changed = now, false
}

// Pick is a job that runs in a round.
type Pick struct {
	Job, Type, Scale int
}

// Round is the input of Pick.
type Round struct {
	// Order in which types are filled; Gavel takes the fastest first, and shuffles them for policies that do not know
	// the types.
	Order []int
	// Workers of each type.
	Workers []int
	// Scale and Throughput of each of the mechanism's Shares, in order.
	Scale      []int
	Throughput [][]float64
	// Strict leaves out jobs of priority 0, as under FIFO; otherwise they fill what is left.
	Strict bool
}

// Pick chooses the jobs of a round. Among equal priorities the larger deficit goes first, then the larger allocation,
// then the earlier arrival. A job without an allocation keeps the workers it is picked for idle, as in Gavel's code.
func (r *Rounds) Pick(round Round) []Pick {
	var picks []Pick
	taken := make([]bool, len(r.Shares))
	queue := make([]candidate, 0, len(r.Shares))
	for _, t := range round.Order {
		left, least := round.Workers[t], math.MaxInt
		queue = queue[:0]
		for i := range r.Shares {
			if taken[i] || round.Scale[i] > left || round.Throughput[i][t] <= 0 {
				continue
			}
			c := r.candidate(i, t)
			if round.Strict && c.priority <= 0 {
				continue
			}
			queue = append(queue, c)
			least = min(least, round.Scale[i])
		}
		slices.SortFunc(queue, candidate.compare)
		for _, c := range queue {
			if left < least {
				break
			}
			scale := round.Scale[c.share]
			if scale > left {
				continue
			}
			left -= scale
			taken[c.share] = true
			if r.Shares[c.share].Target != nil {
				picks = append(picks, Pick{Job: r.Shares[c.share].Job, Type: t, Scale: scale})
			}
		}
	}
	return picks
}

type candidate struct {
	share                        int
	priority, deficit, allocated float64
}

func (a candidate) compare(b candidate) int {
	return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(b.deficit, a.deficit),
		cmp.Compare(b.allocated, a.allocated), a.share-b.share)
}

// unserved is the reciprocal used for a fraction of 0.
const unserved = 1e9

// candidate returns the candidate for a job on a type.
func (r *Rounds) candidate(i, t int) candidate {
	s := &r.Shares[i]
	c := candidate{share: i, deficit: s.Deficit[t]}
	if s.Target == nil {
		return c
	}
	c.allocated = s.Target[t]
	if r.Worked[t] == 0 {
		c.priority = c.allocated * unserved
	} else {
		c.priority = c.allocated / (s.Time[t] / r.Worked[t])
	}
	return c
}

// Place assigns workers to the picks: large jobs first, jobs on their previous workers if these are free, the others
// server by server so that they use few. servers[t] lists the workers of each server of type t; before holds the
// workers of the last round by job.
func Place(picks []Pick, servers [][][]int, before map[int][]int) map[int][]int {
	placed := make(map[int][]int, len(picks))
	for t := range servers {
		of := slices.DeleteFunc(slices.Clone(picks), func(p Pick) bool { return p.Type != t })
		slices.SortStableFunc(of, func(a, b Pick) int { return cmp.Compare(b.Scale, a.Scale) })
		free := map[int]bool{}
		var order []int
		for _, server := range servers[t] {
			for _, w := range server {
				free[w] = true
				order = append(order, w)
			}
		}
		for start := 0; start < len(of); {
			end := start
			for end < len(of) && of[end].Scale == of[start].Scale {
				end++
			}
			placeEqual(of[start:end], order, free, before, placed)
			start = end
		}
	}
	return placed
}

// placeEqual places jobs of one scale: first those that can stay, then the rest.
func placeEqual(picks []Pick, order []int, free map[int]bool, before, placed map[int][]int) {
	for _, p := range picks {
		stay := before[p.Job]
		if len(stay) != p.Scale || slices.ContainsFunc(stay, func(w int) bool { return !free[w] }) {
			continue
		}
		placed[p.Job] = stay
		for _, w := range stay {
			free[w] = false
		}
	}
	for _, p := range picks {
		if placed[p.Job] != nil {
			continue
		}
		for _, w := range order {
			if free[w] && len(placed[p.Job]) < p.Scale {
				placed[p.Job] = append(placed[p.Job], w)
				free[w] = false
			}
		}
	}
}
