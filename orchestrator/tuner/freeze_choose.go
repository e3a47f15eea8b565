package tuner

import (
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
	// loyal is how many times as much another's steps must be worth before a trial leaves its device for it; the more the less
	// forecasts are believed.
	loyal = 1.3
	// leastSeen is how many trials must have a cost before configurations are chosen by the model.
	leastSeen = 4
	// drawnPool and nearPool are how many configurations a new trial's is chosen from: drawn ones, and some near the best.
	drawnPool, nearPool = 48, 16
	// chanceShare is the share of new trials whose configuration is drawn whatever the model says, and doubtfulShare that in full doubt.
	chanceShare, doubtfulShare = 0.2, 0.5
	// doubtful is how many times the variance of ends is added, in full doubt, to that of what unended trials say of their configurations.
	doubtful = 8
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
	// hit is of beating the best at all, nil if it was not asked for.
	hit *population.Hit
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
		Random: rand.New(rand.NewPCG(z.configs.root, scaleStream+uint64(z.Seen))), Doubt: doubtful * z.doubt(),
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

// drawWorth draws what a decision asks of trials: what their steps are worth if the best is to be beaten by a margin. Some margins are bold,
// and some careful.
func (z *freeze) drawWorth() *population.Worth {
	z.Draws++
	rng := rand.New(rand.NewPCG(z.configs.root, drawStream+z.Draws))
	v, margin := z.look(), math.Pow(10, -3+2.5*rng.Float64())
	return v.model.Hits(v.best-margin, len(z.Looks)-1).Worth(z.Looks)
}

// score is what the steps of a trial are worth.
func score(p *population.Path, d *population.Worth) float64 {
	if len(p.Mean) == 0 {
		return 0
	}
	return p.Worth(d)
}

// chance is that of a trial to beat the goal at one of the looks to come.
func (z *freeze) chance(p *population.Path) float64 {
	v := z.look()
	if v.hit == nil {
		v.hit = v.model.Hits(v.best, len(z.Looks)-1)
	}
	return p.Chance(v.hit)
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
	chance, says, believed := z.chance(p), z.says(p), 1-z.doubt()
	if !w.Kept && chance < z.poor()*believed && v.ends >= leastEnds {
		z.stop(w, false, at+fmt.Sprintf("poor: %s, below %.2g", says, z.poor()*believed))
		return
	}
	if w.Kept {
		z.keep(w, at, says)
		return
	}
	d := z.drawWorth()
	own, rival, whose := score(p, d), 0.0, ""
	if other, worth := z.waiting(d); other != nil {
		rival, whose = worth, fmt.Sprintf("trial %d", other.Trial)
	}
	if z.canCreate() {
		if worth := score(z.candidate().fresh, d); worth > rival {
			rival, whose = worth, "a new trial"
		}
	}
	if whose == "" || rival*believed <= loyal*own {
		z.train(w.Trial, z.next(w.Step), at+says)
		return
	}
	z.running--
	z.pause(w.Trial, at+says+fmt.Sprintf("; a step of %s is worth a chance of %.2g to beat the best, and one of this trial %.2g", whose, rival, own))
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

// waiting is the trial whose steps are worth most of those that wait, and what they are worth; nil if none does.
func (z *freeze) waiting(d *population.Worth) (best *frozen, worth float64) {
	for _, t := range slices.Sorted(maps.Keys(z.live)) {
		if z.trials[t].phase != paused {
			continue
		}
		w := z.live[t]
		if s := score(z.look().paths[t], d); best == nil || s > worth {
			best, worth = w, s
		}
	}
	return best, worth
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
	d := z.drawWorth()
	other, worth := z.waiting(d)
	if z.canCreate() && (other == nil || score(z.candidate().fresh, d) > worth) {
		return z.begin()
	}
	if other == nil {
		return false, nil
	}
	z.thaw(other.Trial, z.next(other.Step), fmt.Sprintf("step %d: %s; of all that wait its steps are worth most, each a chance of %.2g to beat the best",
		other.Step, z.says(z.look().paths[other.Trial]), worth))
	return true, nil
}

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
	if keep {
		reason += ": kept, one of " + z.grounds()
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
