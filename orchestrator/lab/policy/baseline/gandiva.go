package baseline

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// Gandiva is introspective placement (OSDI 2018) as defined in Themis's evaluation (NSDI 2020, section 6): whenever a
// device becomes available jobs report their placement preferences, and devices go greedily to the highest preference.
// The preference is 1/S for the best place available: the training rate there relative to that with all devices behind
// one fast link. With Migrate, when no job waits, a job in a bad place moves to one that is faster by a factor of Gain.
// Time slicing and packing of several jobs on one device are left out, as in that evaluation.
type Gandiva struct {
	// Migrate moves jobs to places where they train at least Gain times as fast.
	Migrate bool
	Gain    float64

	// moving lists jobs that left their place for a better one; they come first until they have it.
	moving []policy.JobName
}

// Name implements policy.Policy.
func (*Gandiva) Name() string { return "gandiva" }

// NewGandiva makes it from options.
func NewGandiva(o *policy.Options) *Gandiva {
	return &Gandiva{
		Migrate: o.Bool("migrate", true, "move trials in a bad place to a better one"),
		Gain:    o.Float("gain", 1.1, 1, 1e6, "least speed-up for which a trial moves"),
	}
}

// Snapshot implements policy.Policy.
func (g *Gandiva) Snapshot() ([]byte, error) { return json.Marshal(g.moving) }

// Restore implements policy.Policy.
func (g *Gandiva) Restore(b []byte) error {
	g.moving = nil
	if err := json.Unmarshal(b, &g.moving); err != nil {
		return fmt.Errorf("gandiva: snapshot: %w", err)
	}
	return nil
}

// Decide implements policy.Policy.
func (g *Gandiva) Decide(v *policy.View) policy.Plan {
	const round = "the highest placement preference first"
	p := policy.Extend(v)
	if p.Free().FreeDevices() == 0 {
		return p.Plan(round, "")
	}
	left := greedy(v, p, g.reserve(v, p))
	if g.Migrate && left == 0 {
		g.migrate(v, p)
	}
	return p.Plan(round, "")
}

// reserve gives jobs that are moving the best place available, or holds it back while they are still saving. It returns
// the other waiting jobs.
func (g *Gandiva) reserve(v *policy.View, p *policy.Planner) []*policy.Job {
	if len(g.moving) == 0 {
		return v.Waiting()
	}
	still := []policy.JobName{}
	settled := map[*policy.Job]bool{}
	for _, j := range v.Jobs() {
		if !slices.Contains(g.moving, j.Name()) {
			continue
		}
		place, ok := p.Free().Best(j.Demand)
		switch {
		case j.Ending:
			still = append(still, j.Name())
			if ok {
				p.HoldBack(place, j.Demand)
			}
		case j.Waiting() && ok:
			settled[j] = p.PlaceOn(j, place, "the better place that it moves to")
		}
	}
	g.moving = still
	return slices.DeleteFunc(v.Waiting(), func(j *policy.Job) bool { return settled[j] })
}

// greedy places jobs, highest preference first and in order of line among equals, and returns how many still wait.
func greedy(v *policy.View, p *policy.Planner, line []*policy.Job) (left int) {
	var unplaceable policy.Unplaceable
	type offer struct {
		job        *policy.Job
		preference float64
	}
	var worse []offer
	put := func(j *policy.Job, g cluster.Gang, preference float64) bool {
		return p.PlaceOn(j, g, fmt.Sprintf("a place with 1/S = %.3g, the highest preference", preference))
	}
	for i, j := range line {
		if p.Free().FreeDevices() == 0 {
			return left + len(line) - i + len(worse)
		}
		g, ok := bestUnless(p, &unplaceable, j)
		switch preference := preferenceOf(v, j, g); {
		case !ok:
			left++
		case preference < 1: // another job may value these devices more
			worse = append(worse, offer{j, preference})
		case !put(j, g, preference):
			left++
		}
	}
	// Preferences only fall as devices are taken, so the highest offer that is still valid is the highest overall.
	for len(worse) > 0 {
		if p.Free().FreeDevices() == 0 {
			return left + len(worse)
		}
		top := 0
		for i := range worse {
			if worse[i].preference > worse[top].preference {
				top = i
			}
		}
		j, was := worse[top].job, worse[top].preference
		g, ok := bestUnless(p, &unplaceable, j)
		if preference := preferenceOf(v, j, g); ok && preference < was {
			worse[top].preference = preference
			continue
		}
		worse = slices.Delete(worse, top, top+1)
		if !ok || !put(j, g, was) {
			left++
		}
	}
	return left
}

func bestUnless(p *policy.Planner, unplaceable *policy.Unplaceable, j *policy.Job) (cluster.Gang, bool) {
	if unplaceable.Covers(j.Demand) {
		return nil, false
	}
	g, ok := p.Free().Best(j.Demand)
	if !ok {
		unplaceable.Add(j.Demand)
	}
	return g, ok
}

// preferenceOf returns 1/S of a gang for a job, at most 1: its rate there over that of as many devices of its slowest
// type behind one fast link.
func preferenceOf(v *policy.View, j *policy.Job, g cluster.Gang) float64 {
	if len(g) == 0 {
		return 0
	}
	best := 0.0
	for i, place := range g {
		for k, d := range place.Devices {
			if r := j.Speeds.Rate(v.Nodes[place.Node].Devices[d].Type, g.Size(), cluster.SameSlot); i+k == 0 || r < best {
				best = r
			}
		}
	}
	if best <= 0 {
		return 1
	}
	return min(1, cluster.RateOf(v.Nodes, g, j.Speeds)/best)
}

// migrate moves the job that gains most, one at a time.
func (g *Gandiva) migrate(v *policy.View, p *policy.Planner) {
	if len(g.moving) > 0 || p.Free().FreeDevices() == 0 {
		return
	}
	var best *policy.Job
	most := g.Gain
	for _, j := range v.Jobs() {
		if !j.Running() || j.Ending || j.App.Paused || preferenceOf(v, j, j.Gang()) >= 1/g.Gain {
			continue
		}
		now := v.Rate(j, j.Gang())
		if place, ok := p.Free().Best(j.Demand); ok && place.Size() >= j.Gang().Size() && now > 0 {
			if gain := v.Rate(j, place) / now; gain >= most && (best == nil || gain > most) {
				best, most = j, gain
			}
		}
	}
	if best != nil {
		g.moving = append(g.moving, best.Name())
		p.Evict(best, fmt.Sprintf("it moves to a place where it trains %.3g times as fast", most))
	}
}
