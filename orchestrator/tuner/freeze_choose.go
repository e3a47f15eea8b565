package tuner

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/curve/population"
)

// Streams of the seed.
const (
	drawStream  = 0x667265657a65
	scaleStream = 0x7363616c65
	poolStream  = 0x706f6f6c
)

const (
	// loyal is how many times as likely to win another must be before a trial leaves its device for it.
	loyal = 1.3
	// leastSeen is how many trials must have a cost before configurations are chosen by the model.
	leastSeen = 4
	// drawnPool and nearPool are how many configurations a new trial's is chosen from: drawn ones, and some near the best.
	drawnPool, nearPool = 48, 16
	// chanceShare is the share of new trials whose configuration is drawn whatever the model says.
	chanceShare = 0.2
	// keepShare is the part of all steps that trials get which are drawn at random and trained to the end: random search within the
	// search. It learns how curves end where the forecasts would not look, and bounds what forecasts that are wrong can cost.
	keepShare = 0.25
	// leastEnds is how many trials must have got to the end before any is stopped as poor.
	leastEnds = 3
	// scaleTries is how many scales of the model are tried at each look.
	scaleTries = 2
)

// A freezeView is what is thought of all trials at one time.
type freezeView struct {
	model *population.Model
	paths map[Trial]*population.Path
	best  float64
	// seen is how many trials have a cost.
	seen int
	// ends is how many got to the last look.
	ends int
	// hits are of the newest margin that was asked for, by look.
	margin float64
	hits   map[int]*population.Hit
	// next is the configuration of a new trial, nil if it is to be drawn, and fresh what is thought of it.
	next  Config
	x     []float64
	why   string
	fresh *population.Path
}

// look is what is thought of all trials now.
func (z *freeze) look() *freezeView {
	if z.view == nil {
		z.view = z.think(0)
	}
	return z.view
}

// think thinks all trials through. It tries to learn more of configurations; what it thinks is what it would think with what it
// learned, and so follows from what a snapshot holds.
func (z *freeze) think(tries int) *freezeView {
	var curves []population.Curve
	var whose []Trial
	for _, t := range slices.Sorted(maps.Keys(z.live)) {
		w := z.live[t]
		curves, whose = append(curves, population.Curve{X: w.X, Costs: w.Costs}), append(whose, t)
	}
	for _, w := range z.Past {
		curves = append(curves, population.Curve{X: w.X, Costs: w.Costs})
	}
	v := &freezeView{paths: map[Trial]*population.Path{}}
	for _, c := range curves {
		if len(c.Costs) > 0 {
			v.seen++
		}
		if len(c.Costs) == len(z.Looks) {
			v.ends++
		}
	}
	v.model = population.Learn(curves, population.Settings{
		Looks: len(z.Looks), Choices: z.configs.space.Unordered(), Scale: z.Scale, Tries: tries,
		Random: rand.New(rand.NewPCG(z.configs.root, scaleStream+uint64(z.Seen))),
	})
	z.Scale = v.model.Scale(z.Scale)
	for i, t := range whose {
		v.paths[t] = v.model.Of(i)
	}
	v.best = v.model.Warp.At(z.goal())
	return v
}

// goal is the cost to beat: the target, or the best that was seen; NaN if there is none.
func (z *freeze) goal() float64 {
	if l := z.spec.GetLimits(); l != nil && l.Target != nil {
		return z.cost(l.GetTarget())
	}
	if z.Seen == 0 {
		return math.NaN()
	}
	return z.Best.Cost
}

// A dare is what a decision asks of trials: to beat the best by a margin, within some steps.
type dare struct {
	margin float64
	within int64
}

// dare draws one.
func (z *freeze) dare() dare {
	z.Draws++
	rng := rand.New(rand.NewPCG(z.configs.root, drawStream+z.Draws))
	return dare{math.Pow(10, -3+2.5*rng.Float64()), 1 + int64(rng.Float64()*float64(z.steps()))}
}

// score is the chance of a trial at a step to meet a dare.
func (z *freeze) score(p *population.Path, step int64, d dare) float64 {
	if len(p.Mean) == 0 {
		return 0
	}
	to := min(z.steps(), plus(step, d.within))
	k := p.From
	for k+1 < len(z.Looks) && z.Looks[k] < to {
		k++
	}
	return p.Chance(z.hits(d.margin, k))
}

// hits are the chances to beat the best by a margin by a look.
func (z *freeze) hits(margin float64, look int) *population.Hit {
	v := z.look()
	if v.margin != margin || v.hits == nil {
		v.margin, v.hits = margin, map[int]*population.Hit{}
	}
	if v.hits[look] == nil {
		v.hits[look] = v.model.Hits(v.best-margin, look)
	}
	return v.hits[look]
}

// chance is that of a trial to beat the goal at one of the looks to come.
func (z *freeze) chance(p *population.Path) float64 {
	return p.Chance(z.hits(0, len(z.Looks)-1))
}

// judge says whether a trial at a look goes on, waits or ends.
func (z *freeze) judge(w *frozen) {
	at := fmt.Sprintf("step %d: ", w.Step)
	if len(w.Costs) == 0 || z.Seen == 0 || math.IsNaN(w.Costs[len(w.Costs)-1]) {
		z.train(w.Trial, z.next(w.Step), at+z.metricName()+" was not reported yet")
		return
	}
	v := z.look()
	p := v.paths[w.Trial]
	chance, says := z.chance(p), z.says(p)
	if !w.Kept && chance < z.poor() && v.ends >= leastEnds {
		z.stop(w, false, at+fmt.Sprintf("poor: %s, below %.2g", says, z.poor()))
		return
	}
	if w.Kept {
		z.train(w.Trial, z.next(w.Step), at+"kept: drawn at random, and trained to the end; "+says)
		return
	}
	d := z.dare()
	own, rival, whose := z.score(p, w.Step, d), 0.0, ""
	if other, score := z.waiting(d); other != nil {
		rival, whose = score, fmt.Sprintf("trial %d", other.Trial)
	}
	if z.canCreate() {
		if score := z.score(z.candidate().fresh, 0, d); score > rival {
			rival, whose = score, "a new trial"
		}
	}
	if whose == "" || rival <= loyal*own {
		z.train(w.Trial, z.next(w.Step), at+says)
		return
	}
	z.running--
	z.pause(w.Trial, at+says+fmt.Sprintf("; to beat the best within %s, %s has a chance of %.2g and this one %.2g",
		count(int(d.within), "step"), whose, rival, own))
	z.spare()
}

// spare ends the trial with the least chance of those that wait, if too many do.
func (z *freeze) spare() {
	if len(z.live)-z.running <= waitingKept {
		return
	}
	var least *frozen
	lowest := math.Inf(1)
	for _, t := range slices.Sorted(maps.Keys(z.live)) {
		if z.trials[t].phase != paused {
			continue
		}
		if chance := z.chance(z.look().paths[t]); chance < lowest {
			least, lowest = z.live[t], chance
		}
	}
	if least != nil {
		z.stop(least, false, fmt.Sprintf("step %d: of %s that wait it has the least chance to beat the best, %.2g",
			least.Step, count(waitingKept+1, "trial"), lowest))
	}
}

// says is a path in words.
func (z *freeze) says(p *population.Path) string {
	v, end := z.look(), p.Last()
	spread := 2.13 * math.Sqrt(p.Var[end]) // holds 90 % of Student's t with four degrees of freedom
	metric := func(warped float64) float64 { return z.cost(v.model.Warp.Back(warped)) }
	return fmt.Sprintf("%s %.4g at step %d, from %.4g to %.4g at 90 %%; a chance of %.2g to beat %.6g",
		z.metricName(), metric(p.Mean[end]), z.steps(), metric(p.Mean[end]-spread), metric(p.Mean[end]+spread),
		z.chance(p), z.cost(z.goal()))
}

// waiting is the best of the trials that wait, and its score; nil if none does.
func (z *freeze) waiting(d dare) (best *frozen, score float64) {
	for _, t := range slices.Sorted(maps.Keys(z.live)) {
		if z.trials[t].phase != paused {
			continue
		}
		w := z.live[t]
		if s := z.score(z.look().paths[t], w.Step, d); best == nil || s > score {
			best, score = w, s
		}
	}
	return best, score
}

// candidate settles the configuration of the next new trial. It follows from the seed, the trial's number and the view.
func (z *freeze) candidate() *freezeView {
	v := z.look()
	if v.fresh != nil {
		return v
	}
	v.fresh = v.model.Fresh(nil)
	rng := rand.New(rand.NewPCG(z.configs.root, poolStream+uint64(len(z.trials))))
	if !z.modelled() || v.seen < leastSeen || len(z.trials) < len(z.configs.points) || rng.Float64() < chanceShare {
		return v
	}
	margin := v.best - 0.05
	chance := -1.0
	for _, u := range z.pool(rng) {
		config := z.configs.space.At(u)
		if !z.configs.space.Allowed(config) {
			continue
		}
		x := z.configs.space.Coordinates(config, u, math.NaN())
		mean, variance := v.model.End(x)
		if c := population.Below(mean, variance, margin); c > chance {
			chance, v.next, v.x = c, config, x
		}
	}
	if v.next != nil {
		v.fresh = v.model.Fresh(v.x)
		v.why = fmt.Sprintf("of %s the one with the best chance, %.2g, to end better than the best", count(drawnPool+nearPool, "draw"), chance)
	}
	return v
}

// pool is what a new configuration is chosen from.
func (z *freeze) pool(rng *rand.Rand) [][]float64 {
	var pool [][]float64
	dims := z.configs.space.Dims()
	for range drawnPool {
		u := make([]float64, dims)
		for i := range u {
			u[i] = rng.Float64()
		}
		pool = append(pool, u)
	}
	best := z.leaders()
	for i := 0; i < nearPool && len(best) > 0; i++ {
		u := slices.Clone(best[i%len(best)])
		for j := range u {
			switch {
			case math.IsNaN(u[j]) || rng.Float64() < 0.1:
				u[j] = rng.Float64()
			case rng.Float64() < 0.5:
				u[j] = min(max(u[j]+0.1*rng.NormFloat64(), 0), 1)
			}
		}
		pool = append(pool, u)
	}
	return pool
}

// leaders are the configurations of the trials with the best newest costs.
func (z *freeze) leaders() [][]float64 {
	const most = 4
	type leader struct {
		entry
		x []float64
	}
	var all []leader
	add := func(w *frozen) {
		if n := len(w.Costs); n > 0 && w.X != nil && !math.IsNaN(w.Costs[n-1]) {
			all = append(all, leader{entry{w.Costs[n-1], w.Trial}, w.X})
		}
	}
	for _, w := range z.live {
		add(w)
	}
	for i := range z.Past {
		add(&z.Past[i])
	}
	slices.SortFunc(all, func(a, b leader) int { return cmp.Or(cmp.Compare(a.Cost, b.Cost), cmp.Compare(a.Trial, b.Trial)) })
	var xs [][]float64
	for _, l := range all[:min(most, len(all))] {
		xs = append(xs, l.x)
	}
	return xs
}

func (z *freeze) ask(n int) error {
	for n > 0 && len(z.Resume) > 0 {
		t := z.Resume[0]
		z.Resume = z.Resume[1:]
		if z.trials[t].phase != ready {
			continue
		}
		z.thaw(t, z.next(z.Done), fmt.Sprintf("the sweep was extended to %s", count(int(z.steps()), "step")))
		n--
	}
	for ; n > 0; n-- {
		going, err := z.start()
		if err != nil || !going {
			return err
		}
	}
	return nil
}

func (z *freeze) thaw(t Trial, until int64, reason string) {
	z.running++
	z.train(t, until, reason)
}

// start gives a device to a trial that waits or to a new one, and reports whether there was any.
func (z *freeze) start() (bool, error) {
	if z.owing() && z.canCreate() {
		return z.begin()
	}
	d := z.dare()
	other, score := z.waiting(d)
	if z.canCreate() && (other == nil || z.score(z.candidate().fresh, 0, d) > score) {
		return z.begin()
	}
	if other == nil {
		return false, nil
	}
	z.thaw(other.Trial, z.next(other.Step), fmt.Sprintf("step %d: %s; of all that wait it is the likeliest to beat the best within %s",
		other.Step, z.says(z.look().paths[other.Trial]), count(int(d.within), "step")))
	return true, nil
}

// owing reports whether the next new trial is one to keep.
func (z *freeze) owing() bool { return float64(z.Given) <= keepShare*float64(z.Spent) }

// begin creates a trial, unless the configurations have run dry.
func (z *freeze) begin() (bool, error) {
	v, keep := z.candidate(), z.owing()
	if keep {
		v.next, v.x, v.fresh = nil, nil, nil
		z.Given = plus(z.Given, z.steps())
	}
	reason := fmt.Sprintf("%s %d", z.label, len(z.trials)+1)
	if v.next != nil {
		reason = fmt.Sprintf("trial %d", len(z.trials)+1)
	}
	if z.limit() > 0 {
		reason += fmt.Sprintf(" of %d", z.limit())
	}
	config := v.next
	if config != nil {
		z.add(record{}, config, z.next(0), 0, reason+": "+v.why)
	} else {
		var ok bool
		var err error
		if config, ok, err = z.create(record{}, z.next(0), 0, reason); err != nil || !ok {
			return ok, err
		}
	}
	w := &frozen{Trial: Trial(len(z.trials) - 1), X: v.x, Kept: keep}
	if z.modelled() && w.X == nil {
		w.X = z.configs.space.Coordinates(config, nil, math.NaN())
	}
	z.live[w.Trial] = w
	z.running++
	// What is thought of the others stays, but the next new trial is another one.
	v.paths[w.Trial] = v.model.Fresh(w.X)
	v.next, v.x, v.fresh = nil, nil, nil
	return true, nil
}

func (z *freeze) status() Status {
	idle := len(z.Resume) == 0 && !z.canCreate()
	if idle {
		for t := range z.live {
			idle = idle && z.trials[t].phase != paused
		}
	}
	return Status{Waiting: idle, Exhausted: idle}
}
