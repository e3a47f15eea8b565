// Package pbt is population based training: Jaderberg, Dalibard, Osindero, Czarnecki and others, "Population Based
// Training of Neural Networks" (2017), algorithm 1 in its asynchronous form. Every interval steps, a member is compared
// with the newest metrics of the others:
//
//   - exploit by truncation selection (section 4.1.1): a member in the bottom share of the population copies weights
//     and configuration of a member drawn from the top share;
//   - explore by perturbation: each number is multiplied by one of the factors or, with probability resample, redrawn.
//
// The top and the bottom hold floor(quantile * n) of the n ranked members, at least one. A member is ranked once it has
// a metric. NaN ranks last and is never copied. A member that copied another is ranked again after its next interval,
// and counts as a bottom member until then. A completed member stays ranked but is not copied, because its checkpoint
// may be deleted and it has no steps left to try.
//
// Members advance together, so that they are compared at similar steps (see abreast.go). With fewer devices than
// members, a member that finishes its interval gives its device to members behind it, and is compared once all have
// reached the same step.
//
// A copied checkpoint keeps its step. A copy trains until one interval past the larger of the two steps, so that
// targets always increase.
package pbt

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/dustin/go-humanize/english"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/engine"
	"github.com/outbid-dev/outbid/orchestrator/tuner/rank"
	"github.com/outbid-dev/outbid/orchestrator/tuner/saturate"
	"github.com/outbid-dev/outbid/orchestrator/tuner/space"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// pbt trains a population.
type pbt struct {
	*engine.Core
	pcg *rand.PCG
	rng *rand.Rand
	state
	// board ranks the members, best first.
	board []rank.Entry
}

// state is the part of a snapshot besides the trials.
type state struct {
	// Members is indexed by trial.
	Members []member
	Rng     []byte
}

// A member is a trial of the population.
type member struct {
	// Step is the step reached last, Target the step to train until.
	Step, Target int64
	// Config is the configuration as canonical JSON; a copy of the member perturbs it.
	Config string
	// Cost is the cost of the newest metric, or +Inf for NaN.
	Cost   float64
	Ranked bool
	// Begun is set if the member reported since it was last queued, so that it has a device. Compared is set if the
	// decision whether to copy another member was made at Step.
	Begun, Compared bool
}

// exploreStream separates the draws of exploitation and exploration from other uses of the seed.
const exploreStream = 0x6578706c6f7265

// Kind describes the tuner to the registry.
func Kind() *engine.Kind {
	return &engine.Kind{
		Name: "pbt", Fresh: fresh, Traits: tuner.Traits{Copies: true},
		Raise: func(spec *outbidv1.SweepSpec, n int32) error {
			set := spec.GetTuner().GetPbt()
			set.Population = max(n, set.GetPopulation())
			return nil
		},
	}
}

func fresh(c *engine.Core) (engine.Rules, error) {
	pcg := rand.NewPCG(c.Configs.Root, exploreStream)
	return &pbt{Core: c, pcg: pcg, rng: rand.New(pcg)}, nil
}

func (p *pbt) settings() *outbidv1.Pbt { return p.Tuner.GetPbt() }

func (p *pbt) population() int {
	n := int(p.settings().GetPopulation())
	if p.Limit() > 0 {
		n = min(n, p.Limit())
	}
	return n
}

// after returns the target one interval past a step.
func (p *pbt) after(step int64) int64 {
	return min(saturate.Plus(step, p.settings().GetInterval()), p.Steps)
}

// canGrow reports whether the population needs another member.
func (p *pbt) canGrow() bool { return len(p.Trials) < p.population() && p.CanCreate() }

// Ask starts new members first, then waiting members in order of their steps.
func (p *pbt) Ask(n int) error {
	for ; n > 0; n-- {
		if p.canGrow() {
			if ok, err := p.grow(); err != nil || !ok {
				return err
			}
			continue
		}
		t, ok := p.next()
		if !ok {
			return nil
		}
		if p.Trials[t].Phase == engine.Ready {
			p.Members[t].Begun = false
			p.trainOn(t, fmt.Sprintf("the sweep was extended to %s", english.Plural(int(p.Steps), "step", "")))
			continue
		}
		copied, err := p.compare(p.Members[t].Step)
		if err != nil {
			return err
		}
		if n -= copied; p.isWaiting(t) {
			p.Members[t].Begun = false
			p.trainOn(t, "its turn: "+p.standing(t))
		} else {
			n++ // t itself copied another member and was counted in copied
		}
	}
	return nil
}

// compare makes the copy decision for all members that wait at a step, before any of them continues. It returns the
// number of members that copied another one; they are queued for a device. The others continue when it is their turn.
func (p *pbt) compare(at int64) (copied int, err error) {
	for t := range p.Members {
		m := &p.Members[t]
		if p.Trials[t].Phase != engine.Paused || m.Step != at || m.Compared {
			continue
		}
		m.Compared = true
		source, ok := p.source(tuner.Trial(t))
		if !ok {
			continue
		}
		copied++
		if err := p.copyFrom(tuner.Trial(t), source, p.standing(tuner.Trial(t))); err != nil {
			return copied, err
		}
	}
	return copied, nil
}

// grow creates a member, or returns false if no configuration is left.
func (p *pbt) grow() (bool, error) {
	config, ok, err := p.Create(engine.Record{}, p.after(0), 0, fmt.Sprintf("member %d of %d", len(p.Trials)+1, p.population()))
	if err != nil || !ok {
		return false, err
	}
	text, err := space.Canonical(config)
	if err != nil {
		return false, err
	}
	p.Members = append(p.Members, member{Target: p.after(0), Config: text})
	return true, nil
}

func (p *pbt) trainOn(t tuner.Trial, reason string) {
	m := &p.Members[t]
	m.Target = p.after(m.Step)
	p.Train(t, m.Target, reason)
}

func (p *pbt) Reported(e tuner.Reported) {
	p.Members[e.Trial].Begun = true
}

func (p *pbt) Reached(e tuner.Reached) error {
	m := &p.Members[e.Trial]
	if e.Step < m.Target {
		return engine.TooEarly(e, m.Target)
	}
	p.unrank(e.Trial)
	m.Step, m.Cost, m.Begun, m.Compared = e.Step, p.Cost(e.Metric), true, false
	if math.IsNaN(m.Cost) {
		m.Cost = math.Inf(1)
	}
	p.rank(e.Trial)
	if m.Step >= p.Steps {
		p.End(e.Trial, true, fmt.Sprintf("trained for all its %s", english.Plural(int(m.Step), "step", "")))
		return nil
	}
	if why := p.whyWait(e.Trial); why != "" {
		p.Pause(e.Trial, why)
		return nil
	}
	standing := p.standing(e.Trial)
	if source, ok := p.source(e.Trial); !ok {
		p.trainOn(e.Trial, standing)
	} else if err := p.copyFrom(e.Trial, source, standing); err != nil {
		return err
	}
	// It may be the last member that the others at this step waited for. They are compared before it advances.
	_, err := p.compare(e.Step)
	return err
}

// place returns a member's rank, from 0, and the number of members compared.
func (p *pbt) place(t tuner.Trial) (place, among int) {
	place, _ = slices.BinarySearchFunc(p.board, rank.Entry{Cost: p.Members[t].Cost, Trial: t}, rank.Compare)
	return place, len(p.board) + p.copies()
}

func (p *pbt) standing(t tuner.Trial) string {
	place, among := p.place(t)
	return fmt.Sprintf("%s of %d by %s (%.6g)", rank.Ordinal(place+1), among, p.MetricName(), p.metric(p.Members[t].Cost))
}

// source draws the member that t copies. It returns false if t is not in the bottom share or there is no better member.
func (p *pbt) source(t tuner.Trial) (tuner.Trial, bool) {
	place, among := p.place(t)
	share := p.share(among)
	if place < among-share || len(p.board) < 2 {
		return 0, false
	}
	sources := p.sources(min(share, len(p.board)), p.Members[t].Cost)
	if len(sources) == 0 {
		return 0, false
	}
	return sources[p.rng.IntN(len(sources))], true
}

// metric converts a cost back into a metric.
func (p *pbt) metric(cost float64) float64 {
	if math.IsInf(cost, 1) {
		return math.NaN()
	}
	return p.Cost(cost)
}

// copies returns the number of members that copied another and were not ranked since.
func (p *pbt) copies() int {
	n := 0
	for t := range p.Members {
		if m := &p.Members[t]; !m.Ranked && m.Step > 0 && !p.Trials[t].Phase.Ended() {
			n++
		}
	}
	return n
}

// share returns the size of the top share, and of the bottom share, among this many members.
func (p *pbt) share(among int) int {
	q := p.settings().GetQuantile()
	if q == 0 {
		q = 0.2
	}
	return max(1, int(q*float64(among)))
}

// sources returns the top members that are better than cost and can be copied.
func (p *pbt) sources(share int, cost float64) []tuner.Trial {
	var list []tuner.Trial
	for _, e := range p.board[:share] {
		if !p.Trials[e.Trial].Phase.Ended() && e.Cost < cost {
			list = append(list, e.Trial)
		}
	}
	return list
}

func (p *pbt) copyFrom(t, source tuner.Trial, standing string) error {
	m, s := &p.Members[t], &p.Members[source]
	config, err := space.Parse(s.Config)
	if err != nil {
		return err
	}
	config = p.Configs.Space.Perturb(config, p.rng, p.settings().GetResample(), p.settings().GetFactors())
	if m.Config, err = space.Canonical(config); err != nil {
		return err
	}
	p.unrank(t)
	p.Trials[t].Phase, m.Begun = engine.Running, false
	m.Target = p.after(max(m.Step, s.Step))
	p.Do(tuner.Clone{
		Trial: t, Source: source, Config: config, UntilStep: m.Target,
		Reason: fmt.Sprintf("%s; copies trial %d (%.6g) and explores from there", standing, source, p.Cost(s.Cost)),
	})
	return nil
}

func (p *pbt) rank(t tuner.Trial) {
	m := &p.Members[t]
	m.Ranked = true
	e := rank.Entry{Cost: m.Cost, Trial: t}
	i, _ := slices.BinarySearchFunc(p.board, e, rank.Compare)
	p.board = slices.Insert(p.board, i, e)
}

func (p *pbt) unrank(t tuner.Trial) {
	m := &p.Members[t]
	if !m.Ranked {
		return
	}
	m.Ranked = false
	if i, found := slices.BinarySearchFunc(p.board, rank.Entry{Cost: m.Cost, Trial: t}, rank.Compare); found {
		p.board = slices.Delete(p.board, i, i+1)
	}
}

func (p *pbt) HandleExit(e tuner.Exited, _ engine.Phase) {
	p.unrank(e.Trial)
	p.Members[e.Trial].Config = ""
}

func (p *pbt) Extend(old tuner.Settings) error {
	if p.Steps <= tuner.MaxSteps(old.Spec.GetTuner()) {
		return nil
	}
	for t := range p.Trials {
		if p.Trials[t].Phase == engine.Completed {
			p.Trials[t].Phase = engine.Ready
		}
	}
	return nil
}

func (p *pbt) Status() tuner.Status {
	if p.canGrow() {
		return tuner.Status{}
	}
	_, ok := p.next()
	return tuner.Status{Waiting: !ok, Exhausted: !ok && p.countWaiting() == 0}
}

// Outlook counts every member once from its first step to its last. Copies of members that are behind train more.
func (p *pbt) Outlook() tuner.Outlook {
	steps := saturate.Times(int64(p.population()), p.Steps)
	return tuner.Outlook{
		Trials: p.population(), Steps: steps,
		Rungs: []tuner.Rung{{UntilStep: p.Steps, Trials: p.population(), Steps: steps}},
	}
}

func (p *pbt) Save() (any, error) {
	var err error
	p.Rng, err = p.pcg.MarshalBinary()
	return p.state, err
}

func (p *pbt) Load(decode func(any) error) error {
	if err := decode(&p.state); err != nil {
		return err
	}
	if err := p.pcg.UnmarshalBinary(p.Rng); err != nil {
		return fmt.Errorf("%w: %w", tuner.ErrBadSnapshot, err)
	}
	if len(p.Members) != len(p.Trials) {
		return tuner.ErrBadSnapshot
	}
	for t, m := range p.Members {
		if m.Ranked {
			if math.IsNaN(m.Cost) {
				return tuner.ErrBadSnapshot
			}
			p.board = append(p.board, rank.Entry{Cost: m.Cost, Trial: tuner.Trial(t)})
		}
	}
	slices.SortFunc(p.board, rank.Compare)
	return nil
}
