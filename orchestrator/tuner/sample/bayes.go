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

// A Learner is a sampler that learns from the costs of trials.
type Learner interface {
	Sampler
	// Took records the configuration of the next trial: that of the last Next, or one given by the user.
	Took(Config)
	// Told records the cost of a trial that ended, or NaN if it failed; lower is better. A later call for the same
	// trial replaces the cost.
	Told(trial int, cost float64)
}

// Bayes chooses the configuration with the highest expected improvement under a Gaussian process of all earlier trials
// (package surrogate).
type Bayes struct {
	space   *space.Space
	snapper *space.Snapper
	first   *Sobol
	seed    uint64
	// last is the point returned by the last Next.
	last []float64
	// past are earlier sweeps, and models the models of them once isRecalled is set.
	past       []Past
	models     []*surrogate.Past
	isRecalled bool
	bayesState
}

var _ Learner = (*Bayes)(nil)

// bayesState is the state in a snapshot.
type bayesState struct {
	// Trials is the number of trials that have a configuration.
	Trials int
	// Kept are the numbers, in order, of the trials that the model learns from; Points and Costs belong to them. A cost
	// is +Inf until it is known.
	Kept   []int
	Points [][]float64
	Costs  []float64
	// Vectors are the costs of the kept trials by objective, and nil until trials have several. Costs then only say
	// whether they are known.
	Vectors [][]float64
	// Settings are the result of the last fit, which was made when Fitted trials had ended.
	Settings surrogate.Settings
	Fitted   int
	// Ended is the number of trials that ended.
	Ended int
	// First is the position in the sequence of initial configurations.
	First uint64
}

const (
	// bayesStream separates the model's randomness from other uses of a sweep's seed.
	bayesStream = 0x6261796573
	// mostKept is the maximum number of trials that the model learns from: the better half of those that ended, and the
	// newest. Sweeps of more than manyTrials keep fewKept trials and search fewTries of the points, because their
	// trials are short and must not wait for the model.
	mostKept, manyTrials, fewKept, fewTries = 120, 250, 64, 0.25
	// The model is used after firstTrials trials plus one for each parameter, and at most mostFirst.
	firstTrials, mostFirst = 2, 10
	// Every exploreEach-th trial explores, from exploreFrom on.
	exploreEach, exploreFrom = 6, 20
	// evaluations is the number of settings that a fit tries, firstEvaluations that of the first fit.
	evaluations, firstEvaluations = 10, 40
)

// NewBayes returns a Bayesian sampler.
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
	if u, ok := b.initial(); ok {
		b.last = u
		return b.space.At(zeroes(u)), true, nil
	}
	cfg, ok, err := b.first.Next()
	b.First, b.last = b.first.next, nil
	return cfg, ok, err
}

// zeroes returns a copy of the point with NaN, which marks absent parameters, replaced by 0.
func zeroes(u []float64) []float64 {
	out := slices.Clone(u)
	for i, x := range out {
		if math.IsNaN(x) {
			out[i] = 0
		}
	}
	return out
}

// propose returns the model's choice, or false if the model knows too few trials.
func (b *Bayes) propose() ([]float64, bool) {
	past := b.recalled()
	if b.Trials < b.firstModelled(past) {
		return nil, false
	}
	parameters := b.parameters()
	var seen []surrogate.Seen
	var pending []int
	for i, cost := range b.weighted() {
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
	case b.Ended >= b.Fitted+1+b.Fitted/10, b.Vectors != nil && b.Trials <= manyTrials: // other weights, another function
		tries = evaluations
	}
	m, settings, ok := surrogate.Learn(parameters, seen, b.Settings, tries, past...)
	if !ok {
		return nil, false
	}
	if tries > 0 {
		b.Settings, b.Fitted = settings, max(b.Ended, 1)
	}
	if len(pending) > 0 { // running trials are assumed to cost what the model predicts (Ginsbourger, Le Riche and Carraro 2010)
		for _, i := range pending {
			mean, _ := m.Predict(b.Points[i])
			seen = append(seen, surrogate.Seen{At: b.Points[i], Cost: mean})
		}
		if m, _, ok = surrogate.Learn(parameters, seen, b.Settings, 0, past...); !ok {
			return nil, false
		}
	}
	effort := 1.0
	if b.Trials > manyTrials {
		effort = fewTries
	}
	random := rand.New(rand.NewPCG(b.seed, bayesStream+uint64(b.Trials)))
	if b.Trials >= exploreFrom && b.Trials%exploreEach == exploreEach-1 {
		if p, ok := m.Explore(b.Points, b.snapper.Snap, random); ok {
			return p, true
		}
	}
	return m.Propose(b.Points, b.snapper.Snap, effort, random)
}

func (b *Bayes) parameters() []surrogate.Parameter {
	parameters := make([]surrogate.Parameter, 0, b.space.Dims())
	for _, n := range b.space.Choices() {
		parameters = append(parameters, surrogate.Parameter{Choices: n})
	}
	return parameters
}

// Took implements Learner.
func (b *Bayes) Took(cfg Config) {
	u := b.last
	if u == nil {
		u = b.space.Coordinates(cfg, nil, math.NaN())
	}
	b.last = nil
	b.Kept, b.Points, b.Costs = append(b.Kept, b.Trials), append(b.Points, u), append(b.Costs, math.Inf(1))
	if b.Vectors != nil {
		b.Vectors = append(b.Vectors, nil)
	}
	b.Trials++
	most := mostKept
	if b.Trials > manyTrials {
		most = fewKept
	}
	for len(b.Kept) > most {
		b.forget()
	}
}

// forget drops the oldest trial of the worse half of those that ended.
func (b *Bayes) forget() {
	var ended []float64
	costs := b.ranks()
	for _, cost := range costs {
		if !math.IsInf(cost, 1) && !math.IsNaN(cost) {
			ended = append(ended, cost)
		}
	}
	slices.Sort(ended)
	for i, cost := range costs {
		if !math.IsInf(cost, 1) && (math.IsNaN(cost) || cost > ended[len(ended)/2]) {
			b.drop(i)
			return
		}
	}
	b.drop(0) // no trial ended, or all have the same cost
}

func (b *Bayes) drop(i int) {
	b.Kept, b.Points, b.Costs = slices.Delete(b.Kept, i, i+1), slices.Delete(b.Points, i, i+1), slices.Delete(b.Costs, i, i+1)
	if b.Vectors != nil {
		b.Vectors = slices.Delete(b.Vectors, i, i+1)
	}
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

// Widen makes Next choose from a wider space and converts the points of earlier trials to its coordinates.
func (b *Bayes) Widen(s *space.Space) error {
	for i, u := range b.Points {
		b.Points[i] = s.Coordinates(b.space.At(zeroes(u)), nil, math.NaN())
	}
	b.Settings, b.Fitted, b.last = surrogate.Settings{}, 0, nil
	b.Remember(nil) // its points are those of the old space
	b.use(s)
	return nil
}

// Snapshot returns what the sampler has learned.
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
	if len(b.Kept) != len(b.Points) || len(b.Kept) != len(b.Costs) || b.Vectors != nil && len(b.Vectors) != len(b.Kept) || !slices.IsSorted(b.Kept) {
		return nil, fmt.Errorf("%w: its columns differ in length or are not sorted", ErrBadSnapshot)
	}
	objectives := 0
	for _, v := range b.Vectors {
		if objectives = max(objectives, len(v)); len(v) != 0 && len(v) != objectives {
			return nil, fmt.Errorf("%w: its trials have different numbers of costs", ErrBadSnapshot)
		}
	}
	for _, p := range b.Points {
		if len(p) != s.Dims() {
			return nil, fmt.Errorf("%w: it has a point with %d parameters, but the space has %d", ErrBadSnapshot, len(p), s.Dims())
		}
	}
	if n := len(b.Settings.Scales); n != 0 && n != s.Dims() {
		return nil, fmt.Errorf("%w: it has %d length scales for %d parameters", ErrBadSnapshot, n, s.Dims())
	}
	b.first.next = b.First
	return b, nil
}
