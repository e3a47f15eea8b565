package rounds

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/lab/policy/gavel"
	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// begin begins a round, or begins it again if jobs are added or removed at the same time: the allocation is made again
// with them, and the types are drawn in the same order.
func (p *Policy) begin(v *policy.View) policy.Plan {
	now := p.clock(v.Now)
	again := v.Now.Equal(p.s.Begun)
	if again {
		p.reseed(p.random.Draws, p.s.Drawn)
	}
	p.s.Drawn = p.shuffle.Draws
	if p.whole {
		p.recordWholeRound(v)
	} else {
		p.recordRound(now)
	}
	p.count(v)
	p.matchJobs(v)
	p.lookUpRates(v)
	p.s.On, p.s.Begun, p.s.Apps, p.s.Assignments = false, v.Now, len(v.Apps), p.s.Assignments[:0]
	free := v.Free.FreeDevices()
	if len(p.turn.jobs) == 0 || len(p.s.Types) == 0 {
		p.s.Free = free
		return policy.Plan{Reason: "no job wants devices, or there are none", Next: p.nextIfIdle(v)}
	}
	why := ""
	if p.s.Rounds.Due(now) || again && p.s.Rounds.Changed && p.s.Rounds.Last == now {
		why = p.allocate(now, v)
	}
	picks := p.pick()
	if len(picks) == 0 && p.s.Rounds.Changed {
		why = p.allocate(now, v)
		picks = p.pick()
	}
	plan := p.place(v, picks)
	p.s.On = len(p.s.Assignments) > 0
	if p.whole {
		p.setRoundLength()
	}
	p.s.Free = free
	for _, g := range plan.Grants {
		p.s.Free -= g.Gang.Size()
	}
	plan.Next = p.next()
	plan.Reason = fmt.Sprintf("a round begins: %d of %d jobs run%s", len(p.s.Assignments), len(p.turn.jobs), why)
	return plan
}

// nextIfIdle returns when to decide again although nothing can run: never, unless a job waits.
func (p *Policy) nextIfIdle(v *policy.View) (next time.Time) {
	for _, a := range v.Apps {
		if len(a.Jobs) > 0 && !a.Paused {
			return p.next()
		}
	}
	return next
}

// recordRound records what ran in the round that ends.
func (p *Policy) recordRound(now float64) {
	begun := p.clock(p.s.Begun)
	for i := range p.s.Assignments {
		s := &p.s.Assignments[i]
		until := now
		if s.Left {
			until = s.To
		}
		if s.Given && s.Type < len(p.s.Types) {
			if ran := until - max(begun, s.From); ran > 0 {
				p.s.Rounds.Ran(s.Job, s.Type, ran)
			}
		}
	}
}

// allocate makes a new allocation, and returns a remark about it if the program failed.
func (p *Policy) allocate(now float64, v *policy.View) (why string) {
	t := &p.turn
	in := &Input{policy: p}
	for _, n := range p.s.Workers {
		in.Workers = append(in.Workers, float64(n))
	}
	at := make([]int, 0, len(t.jobs))
	for i := range t.jobs {
		best := slices.Max(t.rate[i])
		if best <= 0 {
			continue
		}
		heavy, steps, elapsed := p.outlook(i, v)
		if steps <= 0 {
			steps = best * max(elapsed, p.seconds) // unknown: assume as long again as it has been here
		}
		at = append(at, i)
		in.Number, in.Whole = append(in.Number, p.s.Rounds.Shares[i].Job), append(in.Whole, t.scale[i])
		in.Throughput, in.may = append(in.Throughput, t.rate[i]), append(in.may, t.may[i])
		in.Scale = append(in.Scale, float64(t.scale[i]))
		in.Weight = append(in.Weight, heavy)
		in.Steps, in.Elapsed = append(in.Steps, steps), append(in.Elapsed, elapsed)
	}
	nothing := make([]float64, len(p.s.Types))
	x := make([][]float64, len(t.jobs))
	for i := range x {
		x[i] = nothing
	}
	if len(at) > 0 {
		a, err := p.rule.Allocate(in)
		if err != nil {
			a.X, why = in.Isolated(), fmt.Sprintf("; equal shares, as %v", err)
		}
		for k, i := range at {
			x[i] = a.X[k]
		}
	}
	p.s.Rounds.Allocate(now, x)
	return why
}

// outlook returns a job's weight, its steps left, 0 if unknown, and the seconds since it arrived.
func (p *Policy) outlook(i int, v *policy.View) (heavy, steps, elapsed float64) {
	if p.whole {
		c := &p.s.Counts[i]
		return c.Weight, float64(c.Left), p.clock(v.Now) - c.Came
	}
	j := p.turn.jobs[i]
	if max(j.TotalSteps, j.UntilStep) > 0 {
		steps = max(1, v.StepsLeft(j))
	}
	return weight(j), steps, max(0, v.Now.Sub(j.Created).Seconds())
}

func weight(j *policy.Job) float64 {
	w := j.Weight * j.App.Weight
	if !(w > 0) {
		return 1
	}
	return w
}

// ordered returns the names of types in the order in which Gavel fills them.
func ordered() []string { return []string{"v100", "p100", "k80"} }

// pick picks the jobs of the round.
func (p *Policy) pick() []gavel.Pick {
	t := &p.turn
	return p.s.Rounds.Pick(gavel.Round{
		Order: p.order(), Workers: p.s.Workers, Scale: t.scale, Throughput: t.rate, Strict: p.rule.Strict,
	})
}

// order returns the order in which types are filled: the fastest first, or shuffled. Gavel shuffles all three types
// that it knows, including those that the cluster lacks.
func (p *Policy) order() []int {
	names, known := ordered(), 0
	for _, kind := range p.s.Types {
		if slices.Contains(names, kind) {
			known++
		}
	}
	if known < len(p.s.Types) {
		names = p.bySpeed()
	}
	order := make([]int, len(names))
	for i := range order {
		order[i] = slices.Index(p.s.Types, names[i])
	}
	if !p.rule.Aware {
		p.shuffle.Shuffle(order)
	}
	return slices.DeleteFunc(order, func(t int) bool { return t < 0 })
}

// bySpeed sorts types by how fast jobs run on them, relative to each job's best type.
func (p *Policy) bySpeed() []string {
	t := &p.turn
	sum := make([]float64, len(p.s.Types))
	for _, row := range t.rate {
		if best := slices.Max(row); best > 0 {
			for k, rate := range row {
				sum[k] += rate / best
			}
		}
	}
	names := slices.Clone(p.s.Types)
	slices.SortStableFunc(names, func(a, b string) int {
		return cmp.Compare(sum[slices.Index(p.s.Types, b)], sum[slices.Index(p.s.Types, a)])
	})
	return names
}
