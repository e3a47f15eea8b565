package freezethaw

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/dustin/go-humanize/english"

	"github.com/outbid-dev/outbid/orchestrator/curve/population"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/engine"
)

// The streams separate the uses of the seed.
const (
	scaleStream = 0x7363616c65
	poolStream  = 0x706f6f6c
)

const (
	// switchFactor is the ratio of worth above which a trial is paused for another one, because a pause costs time.
	switchFactor = 1.1
	// leastSeen is the number of trials that must have a cost before the model chooses configurations.
	leastSeen = 4
	// A new trial's configuration is chosen from drawnPool random configurations and nearPool ones near the best.
	drawnPool, nearPool = 48, 16
	// chosenShare is the share of new trials whose configuration the model chooses if ranks certainly predict final
	// ranks. It is lowered where they may not, because the model would learn from trials whose ranks mean little.
	chosenShare = 0.5
	// warmupTrials is the number of trials that are begun and reach two looks before any trial is trained further: until
	// then it is unknown how much trials differ. Waiting trials are not wasted, because where ranks predict nothing
	// they are as good as any others.
	warmupTrials = 8
	// leastEnds is the number of trials that must have reached the end before any is stopped as poor.
	leastEnds = 3
	// scaleTries is the number of scales of the model that are tried at each look.
	scaleTries = 4
)

// A view is the forecast of all trials at one time.
type view struct {
	model *population.Model
	paths map[tuner.Trial]population.Outlook
	// seen is the number of trials that have a cost.
	seen int
	// ends is the number of trials that reached the last look.
	ends int
}

// currentView returns the current forecast of all trials.
func (z *freeze) currentView() *view {
	if z.view == nil {
		z.view = z.forecastAll(0)
	}
	return z.view
}

// forecastAll forecasts all trials. It tries this many new scales of the model first. The forecast uses the scale that
// was learned, so it depends only on the state in a snapshot.
func (z *freeze) forecastAll(tries int) *view {
	curves := z.curves(z.live)
	v := &view{paths: map[tuner.Trial]population.Outlook{}}
	for _, c := range curves {
		if len(c.Costs) > 0 {
			v.seen++
		}
		if len(c.Costs) == len(z.Looks) {
			v.ends++
		}
	}
	v.model = population.Learn(curves, population.Settings{
		Gittins: z.gittins, Beliefs: z.Beliefs, Choices: z.Configs.Space.Unordered(), Scale: z.Scale, Tries: tries,
		Random: rand.New(rand.NewPCG(z.Configs.Root, scaleStream+uint64(z.Seen))),
	})
	z.Scale = v.model.Scale(z.Scale)
	for i, t := range z.live.numbers() {
		v.paths[t] = v.model.Of(i)
	}
	return v
}

// judge decides whether a trial at a look continues, waits or ends.
func (z *freeze) judge(w *frozen) {
	at := fmt.Sprintf("step %d: ", w.Step)
	if len(w.Costs) == 0 || z.Seen == 0 || math.IsNaN(w.Costs[len(w.Costs)-1]) {
		z.Train(w.Trial, z.next(w.Step), at+z.MetricName()+" was not reported yet")
		return
	}
	v := z.currentView()
	own, says := v.paths[w.Trial], z.describe(w)
	switch {
	case w.Kept:
		z.Train(w.Trial, z.next(w.Step), at+"kept, and trained to the end; "+says)
		return
	case own.Chance < z.poor() && v.ends >= leastEnds:
		z.stop(w, false, at+fmt.Sprintf("poor: %s, below %.2g", says, z.poor()))
		return
	case len(w.Costs) >= 2 && z.isWarmingUp() && z.CanCreate():
		z.running--
		z.Pause(w.Trial, at+says+fmt.Sprintf("; it waits until %s are begun, as how much they differ tells how soon to choose among them", english.Plural(warmupTrials, "trial", "")))
		return
	}
	if z.isKeptDue() && (z.isYoung(w) || z.keepable(z.live.index(w.Trial))) {
		z.Train(w.Trial, z.next(w.Step), at+z.assignKept(w)+"; "+says)
		return
	}
	rival, whose := 0.0, ""
	if other, worth := z.waiting(); other != nil {
		rival, whose = worth, fmt.Sprintf("trial %d", other.Trial)
	}
	if z.CanCreate() {
		if worth := v.model.Fresh().Worth; worth > rival {
			rival, whose = worth, "a new trial"
		}
	}
	if whose == "" || rival <= switchFactor*own.Worth {
		z.Train(w.Trial, z.next(w.Step), at+says)
		return
	}
	z.running--
	z.Pause(w.Trial, at+says+fmt.Sprintf("; training %s is worth a chance of %.2g to end among the best, and training this one %.2g", whose, rival, own.Worth))
	z.dropWorstWaiting()
}

// dropWorstWaiting ends the waiting trial with the least chance if too many wait.
func (z *freeze) dropWorstWaiting() {
	if len(z.live)-z.running <= maxWaiting {
		return
	}
	var least *frozen
	lowest := math.Inf(1)
	for _, t := range z.live.numbers() {
		if z.Trials[t].Phase != engine.Paused {
			continue
		}
		if chance := z.currentView().paths[t].Chance; chance < lowest {
			least, lowest = z.live[t], chance
		}
	}
	if least != nil {
		z.stop(least, false, fmt.Sprintf("step %d: of %s that wait it has the least chance to beat the best, %.2g",
			least.Step, english.Plural(maxWaiting+1, "trial", ""), lowest))
	}
}

// describe describes the forecast of a trial.
func (z *freeze) describe(w *frozen) string {
	v := z.currentView()
	p := v.paths[w.Trial]
	place, of := v.model.Standing(z.live.index(w.Trial))
	says := fmt.Sprintf("number %d of %d by %s; expected to end among the best %.0f %%, from %.0f to %.0f at 90 %%",
		place, of, z.MetricName(), best(p.Mean), best(p.Mean+1.645*p.Spread), best(p.Mean-1.645*p.Spread))
	if v.ends > 0 {
		says += fmt.Sprintf("; a chance of %.2g to beat all that ended", p.Chance)
	}
	return says
}

// best returns the percentage of all configurations that end above a place.
func best(place float64) float64 { return max(50*math.Erfc(place/math.Sqrt2), 1) }

// waiting returns the waiting trial whose steps are worth most, and their worth, or nil if no trial waits.
func (z *freeze) waiting() (most *frozen, worth float64) {
	for _, t := range z.live.numbers() {
		if z.Trials[t].Phase != engine.Paused {
			continue
		}
		if s := z.currentView().paths[t].Worth; most == nil || s > worth {
			most, worth = z.live[t], s
		}
	}
	return most, worth
}

func (z *freeze) Ask(n int) error {
	for n > 0 && len(z.Resume) > 0 {
		t := z.Resume[0]
		z.Resume = z.Resume[1:]
		if z.Trials[t].Phase != engine.Ready {
			continue
		}
		z.resume(t, z.next(z.Done), fmt.Sprintf("the sweep was extended to %s", english.Plural(int(z.Steps), "step", "")))
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

func (z *freeze) resume(t tuner.Trial, until int64, reason string) {
	z.running++
	z.Train(t, until, reason)
}

// start gives a device to a waiting or new trial and reports whether there was one.
func (z *freeze) start() (bool, error) {
	if z.isKeptDue() {
		if w := z.nextKept(); w != nil {
			says := z.describe(w)
			z.resume(w.Trial, z.next(w.Step), fmt.Sprintf("step %d: %s; %s", w.Step, z.assignKept(w), says))
			return true, nil
		}
		if z.CanCreate() {
			return z.begin()
		}
	}
	other, worth := z.waiting()
	if z.CanCreate() && (other == nil || z.isWarmingUp() || z.currentView().model.Fresh().Worth > worth) {
		return z.begin()
	}
	if other == nil {
		return false, nil
	}
	z.resume(other.Trial, z.next(other.Step), fmt.Sprintf("step %d: %s; of all that wait training it is worth most, a chance of %.2g to end among the best",
		other.Step, z.describe(other), worth))
	return true, nil
}

// begin creates a trial, or returns false if no configuration is left.
func (z *freeze) begin() (bool, error) {
	var config tuner.Config
	var x []float64
	var why string
	w := &frozen{}
	owed := ""
	switch {
	case len(z.Trials) == 0: // its end shows earliest how well ranks predict
		w.Kept, owed = true, z.keptReason()
		z.Given = z.Steps
	case z.isKeptDue():
		owed = z.assignKept(w)
	default:
		config, x, why = z.choose()
	}
	reason := fmt.Sprintf("%s %d", z.Label, len(z.Trials)+1)
	if config != nil {
		reason = fmt.Sprintf("trial %d", len(z.Trials)+1)
	}
	if z.Limit() > 0 {
		reason += fmt.Sprintf(" of %d", z.Limit())
	}
	if owed != "" {
		reason += ": " + owed
	}
	if config != nil {
		z.Add(engine.Record{}, config, z.next(0), 0, reason+": "+why)
	} else {
		var ok bool
		var err error
		if config, ok, err = z.Create(engine.Record{}, z.next(0), 0, reason); err != nil || !ok {
			return ok, err
		}
	}
	w.Trial, w.X = tuner.Trial(len(z.Trials)-1), x
	if z.modelled() && w.X == nil {
		w.X = z.Configs.Space.Coordinates(config, nil, math.NaN())
	}
	z.live[w.Trial] = w
	z.running++
	// The forecasts of the others stay valid.
	z.currentView().paths[w.Trial] = z.currentView().model.Fresh()
	return true, nil
}

func (z *freeze) Status() tuner.Status {
	idle := len(z.Resume) == 0 && !z.CanCreate()
	if idle {
		for t := range z.live {
			idle = idle && z.Trials[t].Phase != engine.Paused
		}
	}
	return tuner.Status{Waiting: idle, Exhausted: idle}
}

// isWarmingUp reports whether too few trials were begun to know how much they differ.
func (z *freeze) isWarmingUp() bool { return len(z.Trials) < warmupTrials }
