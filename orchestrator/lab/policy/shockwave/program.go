package shockwave

import (
	"cmp"
	"container/heap"
	"math"
	"slices"
)

// job is a job of a program.
type job struct {
	// devices that it holds in a round, and its weight.
	devices int
	weight  float64
	// done is the part of its work that is done, and perRound the part that it does in a round.
	done, perRound float64
	// remaining is its run time left in seconds, and most what may remain after the window so that it is in time.
	remaining, most float64
	// rho is its estimated finish time over the wanted one.
	rho float64
}

// program is the choice of each job's rounds in a window.
type program struct {
	devices, rounds          int
	seconds, makespan, power float64
	jobs                     []job
}

// leastProgress replaces smaller progress, because the logarithm of 0 is not finite.
const leastProgress = 1e-3

// boundsPerRound is the number of bounds on the run time that remains which are tried for each round of the window.
const boundsPerRound = 4

// solve returns each job's number of rounds. late is set if no choice lets every job finish in time: then weights grow
// with rho.
func (p *program) solve() (rounds []int, late bool) {
	if rounds = p.best(true); rounds != nil {
		return rounds, false
	}
	for i := range p.jobs {
		if j := &p.jobs[i]; j.rho > 1 {
			j.weight *= math.Pow(j.rho, p.power)
		}
	}
	return p.best(false), true
}

// best returns the rounds of the best bound on the run time that remains, or nil if there are too few devices for the
// rounds that jobs need.
func (p *program) best(inTime bool) []int {
	longest := 0.0
	for _, j := range p.jobs {
		longest = max(longest, j.remaining)
	}
	var best []int
	value := math.Inf(-1)
	for bound := range p.rounds*boundsPerRound + 1 {
		remain := longest - float64(bound)*p.seconds/boundsPerRound
		rounds := p.divide(remain, inTime)
		if rounds == nil {
			break // tighter bounds need more
		}
		if v := p.value(rounds); v > value {
			best, value = rounds, v
		}
	}
	return best
}

// divide gives each job the rounds that it needs, and the others to the jobs with the largest gain per device.
func (p *program) divide(remain float64, inTime bool) []int {
	rounds, left := make([]int, len(p.jobs)), p.rounds*p.devices
	more := make(gains, 0, len(p.jobs))
	for i := range p.jobs {
		j := &p.jobs[i]
		least := p.roundsFor(j, remain)
		if inTime {
			least = max(least, p.roundsFor(j, j.most))
		}
		if least > p.rounds || least*j.devices > left || inTime && j.most < 0 {
			return nil
		}
		rounds[i] = least
		left -= least * j.devices
		more = append(more, gain{i, p.gain(j, least)})
	}
	heap.Init(&more)
	for left > 0 && len(more) > 0 {
		g := &more[0]
		j := &p.jobs[g.job]
		if g.gain <= 0 || j.devices > left || rounds[g.job] >= p.rounds {
			heap.Pop(&more)
			continue
		}
		rounds[g.job]++
		left -= j.devices
		g.gain = p.gain(j, rounds[g.job])
		heap.Fix(&more, 0)
	}
	return rounds
}

// progress returns the part of a job's work that is done after a number of rounds.
func (p *program) progress(j *job, rounds int) float64 {
	return min(1, max(leastProgress, j.done+j.perRound*float64(rounds)))
}

// gain returns what one more round adds to the welfare, per device.
func (p *program) gain(j *job, rounds int) float64 {
	return j.weight * (math.Log(p.progress(j, rounds+1)) - math.Log(p.progress(j, rounds))) / float64(j.devices)
}

// value returns the objective.
func (p *program) value(rounds []int) float64 {
	welfare, longest := 0.0, 0.0
	for i := range p.jobs {
		j := &p.jobs[i]
		welfare += j.weight * math.Log(p.progress(j, rounds[i]))
		longest = max(longest, j.remaining-float64(rounds[i])*p.seconds)
	}
	return welfare/float64(len(p.jobs)*p.rounds) - p.makespan*longest
}

// first returns the jobs of the window's first round, the most urgent first: those that need every round of the window,
// then, if jobs are late, those of the largest weight, and otherwise those with the most rounds.
func (p *program) first(rounds []int, late bool) []int {
	order := make([]int, 0, len(rounds))
	for i, n := range rounds {
		if n > 0 {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		all := func(i int) int { return min(0, p.rounds-1-rounds[i]) }
		if c := cmp.Compare(all(a), all(b)); c != 0 {
			return c
		}
		if late {
			if c := cmp.Compare(p.jobs[b].weight, p.jobs[a].weight); c != 0 {
				return c
			}
		}
		return cmp.Compare(rounds[b], rounds[a])
	})
	left := p.devices
	return slices.DeleteFunc(order, func(i int) bool {
		if p.jobs[i].devices > left {
			return true
		}
		left -= p.jobs[i].devices
		return false
	})
}

// gains is a heap of jobs' gains from one more round, largest first.
type gains []gain

type gain struct {
	job  int
	gain float64
}

// Len implements heap.Interface.
func (g gains) Len() int { return len(g) }

// Less implements heap.Interface.
func (g gains) Less(a, b int) bool {
	return g[a].gain > g[b].gain || g[a].gain == g[b].gain && g[a].job < g[b].job
}

// Swap implements heap.Interface.
func (g gains) Swap(a, b int) { g[a], g[b] = g[b], g[a] }

// Push implements heap.Interface.
func (g *gains) Push(x any) {
	if one, ok := x.(gain); ok {
		*g = append(*g, one)
	}
}

// Pop implements heap.Interface.
func (g *gains) Pop() any {
	last := (*g)[len(*g)-1]
	*g = (*g)[:len(*g)-1]
	return last
}
