package tuner

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/tuner/space"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// pbt is population based training: Jaderberg, Dalibard, Osindero, Czarnecki and others, "Population Based Training of
// Neural Networks" (2017), algorithm 1 in its asynchronous form. Every member trains on its own; every interval steps
// it is ready and looks at the newest metrics of the others:
//
//   - exploit by truncation selection (section 4.1.1): a member in the bottom share of the population copies weights
//     and configuration of a member drawn from the top share;
//   - explore by perturbing: each number times one of the factors, or, with chance resample, drawn anew.
//
// The top and the bottom hold floor(quantile * n) of the n members ranked, at least one. A member is ranked once it
// has a metric; NaN ranks last, and gives no copies. A member that copied is ranked again after its next interval. One
// that completed stays ranked but is not copied: its checkpoint may be gone, and it has no steps left to try.
//
// A checkpoint brings the step of its training with it. A copy trains until one interval past the further of the
// two, so that targets always grow.
type pbt struct {
	*core
	pcg *rand.PCG
	rng *rand.Rand
	pbtState
	// board ranks the members, best first.
	board []entry
}

// pbtState is what a snapshot holds beside the trials.
type pbtState struct {
	// Members by trial.
	Members []member
	// Resume holds members that completed before an extension and are to be trained on.
	Resume []Trial
	Rng    []byte
}

// A member is a trial of the population.
type member struct {
	// Step it reached last, Target it is to train until.
	Step, Target int64
	// Config as canonical JSON: what a copy of it perturbs.
	Config string
	// Cost of its newest metric, +Inf for NaN.
	Cost   float64
	Ranked bool
}

func newPBT(c *core) (rules, error) {
	if err := checkPBT(c.spec.GetTuner().GetPbt()); err != nil {
		return nil, err
	}
	pcg := rand.NewPCG(c.configs.root, exploreStream)
	return &pbt{core: c, pcg: pcg, rng: rand.New(pcg)}, nil
}

func checkPBT(set *outbidv1.Pbt) error {
	switch q := set.GetQuantile(); {
	case set.GetMaxSteps() < 1:
		return fmt.Errorf("tuner.pbt.max_steps: %d steps are no training; use 1 or more", set.GetMaxSteps())
	case set.GetInterval() < 1 || set.GetInterval() > set.GetMaxSteps():
		return fmt.Errorf("tuner.pbt.interval: %d is not from 1 to max_steps %d", set.GetInterval(), set.GetMaxSteps())
	case set.GetPopulation() < 0 || set.GetPopulation() == 1:
		return fmt.Errorf("tuner.pbt.population: %d members cannot learn from each other; use 2 or more", set.GetPopulation())
	case !(q >= 0 && q <= 0.5):
		return fmt.Errorf("tuner.pbt.quantile: %v is not from 0 to 0.5", q)
	case !(set.GetResample() >= 0 && set.GetResample() <= 1):
		return fmt.Errorf("tuner.pbt.resample: %v is not a chance from 0 to 1", set.GetResample())
	}
	for i, f := range set.GetFactors() {
		if !(f > 0) || math.IsInf(f, 0) {
			return fmt.Errorf("tuner.pbt.factors[%d]: %v is not a positive number", i, f)
		}
	}
	return nil
}

func (p *pbt) set() *outbidv1.Pbt { return p.spec.GetTuner().GetPbt() }

func (p *pbt) population() int {
	n := int(p.set().GetPopulation())
	if n == 0 {
		n = 10
	}
	if p.limit() > 0 {
		n = min(n, p.limit())
	}
	return n
}

// after is the target one interval past a step.
func (p *pbt) after(step int64) int64 {
	return min(plus(step, p.set().GetInterval()), p.set().GetMaxSteps())
}

func (p *pbt) ask(n int) error {
	for n > 0 && len(p.Resume) > 0 {
		t := p.Resume[0]
		p.Resume = p.Resume[1:]
		if p.trials[t].phase != ready {
			continue
		}
		p.goOn(t, fmt.Sprintf("the sweep was extended to %s", count(int(p.set().GetMaxSteps()), "step")))
		n--
	}
	for ; n > 0 && len(p.trials) < p.population(); n-- {
		reason := fmt.Sprintf("member %d of %d", len(p.trials)+1, p.population())
		config, ok, err := p.create(record{}, p.after(0), 0, reason)
		if err != nil || !ok {
			return err
		}
		text, err := space.Canonical(config)
		if err != nil {
			return err
		}
		p.Members = append(p.Members, member{Target: p.after(0), Config: text})
	}
	return nil
}

func (p *pbt) goOn(t Trial, reason string) {
	m := &p.Members[t]
	m.Target = p.after(m.Step)
	p.train(t, m.Target, reason)
}

func (p *pbt) reported(Reported) {}

func (p *pbt) reached(e Reached) error {
	m := &p.Members[e.Trial]
	if e.Step < m.Target {
		return tooEarly(e, m.Target)
	}
	p.unrank(e.Trial)
	m.Step, m.Cost = e.Step, p.cost(e.Metric)
	if math.IsNaN(m.Cost) {
		m.Cost = math.Inf(1)
	}
	place := p.rank(e.Trial)
	if m.Step >= p.set().GetMaxSteps() {
		p.end(e.Trial, true, fmt.Sprintf("trained for all its %s", count(int(m.Step), "step")))
		return nil
	}
	standing := fmt.Sprintf("%s of %d by %s (%.6g)", ordinal(place+1), len(p.board), p.metricName(), e.Metric)
	share := p.share()
	if place < len(p.board)-share || len(p.board) < 2 {
		p.goOn(e.Trial, standing)
		return nil
	}
	sources := p.sources(share, m.Cost)
	if len(sources) == 0 {
		p.goOn(e.Trial, standing+", but there is no better member to copy")
		return nil
	}
	return p.copyFrom(e.Trial, sources[p.rng.IntN(len(sources))], standing)
}

// share is the number of members at the top, and at the bottom.
func (p *pbt) share() int {
	q := p.set().GetQuantile()
	if q == 0 {
		q = 0.2
	}
	return max(1, int(q*float64(len(p.board))))
}

// sources are the members at the top that can be copied by one of that cost.
func (p *pbt) sources(share int, cost float64) []Trial {
	var list []Trial
	for _, e := range p.board[:share] {
		if !p.trials[e.Trial].phase.ended() && e.Cost < cost {
			list = append(list, e.Trial)
		}
	}
	return list
}

func (p *pbt) copyFrom(t, source Trial, standing string) error {
	m, s := &p.Members[t], &p.Members[source]
	config, err := space.Parse(s.Config)
	if err != nil {
		return err
	}
	factors := p.set().GetFactors()
	if len(factors) == 0 {
		factors = []float64{0.8, 1.2}
	}
	resample := 0.25
	if p.set().Resample != nil {
		resample = p.set().GetResample()
	}
	config = p.configs.space.Perturb(config, p.rng, resample, factors)
	if m.Config, err = space.Canonical(config); err != nil {
		return err
	}
	p.unrank(t)
	m.Target = p.after(max(m.Step, s.Step))
	p.do(Clone{
		Trial: t, Source: source, Config: config, UntilStep: m.Target,
		Reason: fmt.Sprintf("%s; copies trial %d (%.6g) and explores from there", standing, source, p.cost(s.Cost)),
	})
	return nil
}

func (p *pbt) rank(t Trial) int {
	m := &p.Members[t]
	m.Ranked = true
	e := entry{m.Cost, t}
	i, _ := slices.BinarySearchFunc(p.board, e, compareEntries)
	p.board = slices.Insert(p.board, i, e)
	return i
}

func (p *pbt) unrank(t Trial) {
	m := &p.Members[t]
	if !m.Ranked {
		return
	}
	m.Ranked = false
	if i, found := slices.BinarySearchFunc(p.board, entry{m.Cost, t}, compareEntries); found {
		p.board = slices.Delete(p.board, i, i+1)
	}
}

func (p *pbt) left(e Exited, _ phase) {
	p.unrank(e.Trial)
	p.Members[e.Trial].Config = ""
}

func (p *pbt) extend(old Settings) error {
	if maxSteps(p.spec) <= maxSteps(old.Spec) {
		return nil
	}
	for t := range p.trials {
		if p.trials[t].phase == completed {
			p.trials[t].phase = ready
			p.Resume = append(p.Resume, Trial(t))
		}
	}
	return nil
}

func (p *pbt) status() Status {
	idle := len(p.Resume) == 0 && len(p.trials) >= p.population()
	return Status{Waiting: idle, Exhausted: idle}
}

// outlook counts every member once from its first step to its last; a copy of a member that is behind trains more.
func (p *pbt) outlook() Outlook {
	steps := times(int64(p.population()), p.set().GetMaxSteps())
	return Outlook{
		Trials: p.population(), Steps: steps,
		Rungs: []Rung{{UntilStep: p.set().GetMaxSteps(), Trials: p.population(), Steps: steps}},
	}
}

func (p *pbt) save() (any, error) {
	var err error
	p.Rng, err = p.pcg.MarshalBinary()
	return p.pbtState, err
}

func (p *pbt) load(decode func(any) error) error {
	if err := decode(&p.pbtState); err != nil {
		return err
	}
	if err := p.pcg.UnmarshalBinary(p.Rng); err != nil {
		return fmt.Errorf("%w: %w", ErrBadSnapshot, err)
	}
	if len(p.Members) != len(p.trials) || (flatState{Resume: p.Resume}).check(len(p.trials)) != nil {
		return ErrBadSnapshot
	}
	for t, m := range p.Members {
		if m.Ranked {
			if math.IsNaN(m.Cost) {
				return ErrBadSnapshot
			}
			p.board = append(p.board, entry{m.Cost, Trial(t)})
		}
	}
	slices.SortFunc(p.board, compareEntries)
	return nil
}
