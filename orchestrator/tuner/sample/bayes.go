package sample

import (
	"bytes"
	"encoding/gob"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/tuner/space"
	"github.com/outbid-dev/outbid/orchestrator/tuner/surrogate"
)

// A Learner is a sampler whose configurations follow from what trials cost.
type Learner interface {
	Sampler
	// Took says which configuration the next trial has: that of the last Next, or one that a user gave.
	Took(Config)
	// Told says how a trial has ended: its cost, lower being better, or NaN if it failed. Told again, the last counts.
	Told(trial int, cost float64)
}

// Bayes chooses each configuration by the expected improvement under a Gaussian process of all trials before it; see package surrogate.
type Bayes struct {
	space   *space.Space
	snapper *space.Snapper
	first   *Sobol
	seed    uint64
	// last is the point of the last Next.
	last []float64
	bayesState
}

var _ Learner = (*Bayes)(nil)

// bayesState is what a snapshot holds.
type bayesState struct {
	// Trials is how many have a configuration.
	Trials int
	// Kept are those that the model learns from, by number; Points and Costs are theirs. A cost of +Inf is not known yet.
	Kept   []int
	Points [][]float64
	Costs  []float64
	// Settings are those of the last fit, which was made when Fitted trials had ended.
	Settings surrogate.Settings
	Fitted   int
	// Ended is how many trials have.
	Ended int
	// First is the place in the sequence that the first configurations are drawn from.
	First uint64
}

const (
	// bayesStream separates the model's randomness from other uses of a sweep's seed.
	bayesStream = 0x6261796573
	// mostKept is how many trials the model learns from at the most: the best half of those that ended, and the newest. In a sweep of more than
	// manyTrials it is fewKept, and each choice is made among a quarter of the points: such trials are short, and must not wait for the model.
	mostKept, manyTrials, fewKept, fewTries = 120, 250, 64, 0.25
	// firstTrials and the number of parameters are how many configurations are drawn before the model has a say, up to mostFirst.
	firstTrials, mostFirst = 2, 10
	// exploreEach is every how many trials one explores.
	exploreEach = 6
	// evaluations are how many settings a fit tries, and firstEvaluations the first one.
	evaluations, firstEvaluations = 10, 40
)

// NewBayes makes one.
func NewBayes(s *space.Space, seed uint64) *Bayes {
	b := &Bayes{seed: seed}
	b.use(s)
	return b
}

func (b *Bayes) use(s *space.Space) {
	b.space, b.snapper, b.first = s, s.Snapper(), NewSobol(s, b.seed)
	b.first.next = b.First
}

// Next chooses a configuration.
func (b *Bayes) Next() (Config, bool, error) {
	if b.space.Dims() == 0 {
		return NewRandom(b.space, b.seed).Next()
	}
	if u, ok := b.propose(); ok {
		b.last = u
		return b.space.At(zeroes(u)), true, nil
	}
	if b.Trials == 0 { // what its author thinks is about right is in the middle
		u := slices.Repeat([]float64{0.5}, b.space.Dims())
		if cfg := b.space.At(u); b.space.Allowed(cfg) {
			b.last = u
			return cfg, true, nil
		}
	}
	cfg, ok, err := b.first.Next()
	b.First, b.last = b.first.next, nil
	return cfg, ok, err
}

// zeroes is a point with 0 for what is absent.
func zeroes(u []float64) []float64 {
	out := slices.Clone(u)
	for i, x := range out {
		if math.IsNaN(x) {
			out[i] = 0
		}
	}
	return out
}

// propose asks the model; false if it does not know enough.
func (b *Bayes) propose() ([]float64, bool) {
	if b.Trials < min(b.space.Dims()+firstTrials, mostFirst) {
		return nil, false
	}
	parameters := make([]surrogate.Parameter, 0, b.space.Dims())
	for _, n := range b.space.Choices() {
		parameters = append(parameters, surrogate.Parameter{Choices: n})
	}
	var seen []surrogate.Seen
	var pending []int
	for i, cost := range b.Costs {
		if math.IsInf(cost, 1) {
			pending = append(pending, i)
			continue
		}
		seen = append(seen, surrogate.Seen{At: b.Points[i], Cost: cost})
	}
	tries := 0
	switch {
	case b.Fitted == 0:
		tries = firstEvaluations
	case b.Ended >= b.Fitted+1+b.Fitted/10:
		tries = evaluations
	}
	m, settings, ok := surrogate.Learn(parameters, seen, b.Settings, tries)
	if !ok {
		return nil, false
	}
	if tries > 0 {
		b.Settings, b.Fitted = settings, max(b.Ended, 1)
	}
	if len(pending) > 0 { // those that run are believed to cost what the model thinks (Ginsbourger, Le Riche and Carraro 2010)
		for _, i := range pending {
			mean, _ := m.Predict(b.Points[i])
			seen = append(seen, surrogate.Seen{At: b.Points[i], Cost: mean})
		}
		if m, _, ok = surrogate.Learn(parameters, seen, b.Settings, 0); !ok {
			return nil, false
		}
	}
	effort := 1.0
	if b.Trials > manyTrials {
		effort = fewTries
	}
	random := rand.New(rand.NewPCG(b.seed, bayesStream+uint64(b.Trials)))
	if b.Trials%exploreEach == exploreEach-1 {
		if p, ok := m.Explore(b.Points, b.snapper.Snap, random); ok {
			return p, true
		}
	}
	return m.Propose(b.Points, b.snapper.Snap, effort, random)
}

// Took implements Learner.
func (b *Bayes) Took(cfg Config) {
	u := b.last
	if u == nil {
		u = b.space.Coordinates(cfg, nil, math.NaN())
	}
	b.last = nil
	b.Kept, b.Points, b.Costs = append(b.Kept, b.Trials), append(b.Points, u), append(b.Costs, math.Inf(1))
	b.Trials++
	most := mostKept
	if b.Trials > manyTrials {
		most = fewKept
	}
	for len(b.Kept) > most {
		b.forget()
	}
}

// forget drops the oldest of the worse half of the trials that ended.
func (b *Bayes) forget() {
	var ended []float64
	for _, cost := range b.Costs {
		if !math.IsInf(cost, 1) && !math.IsNaN(cost) {
			ended = append(ended, cost)
		}
	}
	slices.Sort(ended)
	for i, cost := range b.Costs {
		if !math.IsInf(cost, 1) && (math.IsNaN(cost) || cost > ended[len(ended)/2]) {
			b.drop(i)
			return
		}
	}
	b.drop(0) // nothing ended, or all alike
}

func (b *Bayes) drop(i int) {
	b.Kept, b.Points, b.Costs = slices.Delete(b.Kept, i, i+1), slices.Delete(b.Points, i, i+1), slices.Delete(b.Costs, i, i+1)
}

// Told implements Learner.
func (b *Bayes) Told(trial int, cost float64) {
	i, kept := slices.BinarySearch(b.Kept, trial)
	if !kept {
		return
	}
	if math.IsInf(b.Costs[i], 1) {
		b.Ended++
	}
	if math.IsInf(cost, 0) {
		cost = math.NaN()
	}
	b.Costs[i] = cost
}

// Widen chooses later configurations from a wider space, in which those before have other places.
func (b *Bayes) Widen(s *space.Space) error {
	for i, u := range b.Points {
		b.Points[i] = s.Coordinates(b.space.At(zeroes(u)), nil, math.NaN())
	}
	b.Settings, b.Fitted, b.last = surrogate.Settings{}, 0, nil
	b.use(s)
	return nil
}

// Snapshot returns what it has learnt.
func (b *Bayes) Snapshot() ([]byte, error) {
	var buf bytes.Buffer
	if err := gob.NewEncoder(&buf).Encode(b.bayesState); err != nil {
		return nil, fmt.Errorf("snapshot of the Bayesian sampler: %w", err)
	}
	return json.Marshal(state{Kind: "bayes", Seed: b.seed, Learnt: buf.Bytes()})
}

func restoreBayes(s *space.Space, st state) (*Bayes, error) {
	b := NewBayes(s, st.Seed)
	if err := gob.NewDecoder(bytes.NewReader(st.Learnt)).Decode(&b.bayesState); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadSnapshot, err)
	}
	if len(b.Kept) != len(b.Points) || len(b.Kept) != len(b.Costs) || !slices.IsSorted(b.Kept) {
		return nil, fmt.Errorf("%w: columns of unlike length", ErrBadSnapshot)
	}
	for _, p := range b.Points {
		if len(p) != s.Dims() {
			return nil, fmt.Errorf("%w: a point of %d parameters in a space of %d", ErrBadSnapshot, len(p), s.Dims())
		}
	}
	if n := len(b.Settings.Scales); n != 0 && n != s.Dims() {
		return nil, fmt.Errorf("%w: %d lengths for %d parameters", ErrBadSnapshot, n, s.Dims())
	}
	b.first.next = b.First
	return b, nil
}
