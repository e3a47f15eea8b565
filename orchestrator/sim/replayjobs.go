package sim

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
)

// recording returns the collected data in a form that can be simulated.
func (h *historian) recording() (*Recording, error) {
	p := &Recording{Policy: h.policy, Prices: h.prices, Start: h.start, Actual: map[string]Actual{}}
	if h.started > 0 {
		p.Restart = h.starts / time.Duration(h.started)
	}
	p.Forks = h.slots.costs()
	end := h.end()
	for _, alias := range h.names {
		n := h.nodes[alias]
		before := len(p.Stays)
		for _, stay := range n.stays {
			if stay.From > end {
				break // it came back after the work
			}
			if stay.To >= end {
				stay.To = 0 // it was there as long as there was work
			}
			p.Stays = append(p.Stays, stay)
		}
		if len(p.Stays) > before {
			p.Nodes = append(p.Nodes, n.node)
		}
	}
	slices.SortFunc(p.Nodes, func(a, b cluster.Node) int { return cmp.Compare(a.Name, b.Name) })
	unknown := 0
	for _, id := range h.order {
		app, guessed := h.sweeps[id].app(id)
		if guessed {
			unknown++
		}
		p.Apps, p.Actual[id] = append(p.Apps, app), h.actual(id)
	}
	if len(p.Apps) == 0 || len(p.Nodes) == 0 {
		return nil, ErrNothingRan
	}
	p.Assumptions = h.assumptions(p, unknown)
	return p, nil
}

// end returns when the last sweep ended. If some have not, it is when the last node left, or never while one is there.
func (h *historian) end() time.Duration {
	hasEnded := func(id string) bool { return !h.sweeps[id].actual.Ended.IsZero() }
	if len(h.order) > 0 && !slices.ContainsFunc(h.order, func(id string) bool { return !hasEnded(id) }) {
		return h.lastEnd
	}
	last := time.Duration(0)
	for _, n := range h.nodes {
		if n.up {
			return math.MaxInt64
		}
		last = max(last, n.stays[len(n.stays)-1].To)
	}
	return last
}

func (h *historian) assumptions(p *Recording, unknown int) []string {
	said := []string{
		"sweeps arrive, people pause and stop them, and nodes come and go as they did; nodes that were there at the end stay",
		"trials train as fast as they were measured, by device type, number and spread; where they were not, as others of " +
			"their sweep, or in proportion",
		"trials report what they reported, on a straight line between reports; one that is trained further than it was holds " +
			"its last value",
		fmt.Sprintf("taking a trial off its devices costs %s, the mean time from a grant until it trained again",
			p.Restart.Round(time.Millisecond)),
	}
	for _, more := range []struct {
		n    int
		text string
	}{
		{h.failed, "trials failed for good; here their code does not fail"},
		{h.extended, "extensions of sweeps; here they have their last spec from the start"},
		{h.outside, "sweeps left out: their trials ran at clients, or their tuner is a program of its own"},
		{h.forked, "sweeps whose trials may be trained by several forks, which save and are averaged as fast as here on average; under a " +
			"policy that forks none one process trains each trial"},
		{unknown, "sweeps of which no speed is known; their trials do a step per second on each device"},
	} {
		if more.n > 0 {
			said = append(said, fmt.Sprintf("%d %s", more.n, more.text))
		}
	}
	return said
}

// app returns a sweep with the behaviour of its trials. guessed is set if none of its speeds are known.
func (s *recorded) app(id string) (a App, guessed bool) {
	a = App{Spec: proto.CloneOf(s.spec), Submit: s.submit, Commands: s.commands}
	if a.Spec.Labels == nil {
		a.Spec.Labels = map[string]string{}
	}
	a.Spec.Labels["replayed"] = id
	most := int32(0)
	for n := range s.trials {
		most = max(most, n)
	}
	own := speedsOf(s.pace)
	steps := tuner.MaxSteps(s.spec.GetTuner())
	isOpen := steps == 0
	if isOpen {
		steps = s.longest()
	}
	for n := range most + 1 {
		r := s.trials[n]
		if r == nil {
			r = &record{}
		}
		j := r.job(append(slices.Clone(own), s.hints(n)...), steps, int(s.spec.GetResources().GetDevices().GetMax()))
		if isOpen {
			j.Steps = cmp.Or(j.Steps, steps) // trials that were stopped would have ended by themselves too
		}
		a.Jobs = append(a.Jobs, j)
	}
	return a, len(own)+len(s.spec.GetThroughputs()) == 0
}

// longest returns the most steps after which a trial ended by itself, or else the last step that one reported.
func (s *recorded) longest() (steps int64) {
	reported := int64(1)
	for _, r := range s.trials {
		steps = max(steps, r.ended)
		if n := len(r.points); n > 0 {
			reported = max(reported, int64(r.points[n-1].step))
		}
	}
	return cmp.Or(steps, reported)
}

// job returns the behaviour of a trial. steps is how long it would train if it was not seen to end by itself.
func (r *record) job(sweep []cluster.Speed, steps int64, devices int) Job {
	j := Job{Speeds: &cluster.Speeds{Measured: speedsOf(r.pace)}, Steps: r.ended}
	for _, m := range sweep {
		if !slices.ContainsFunc(j.Speeds.Measured, func(o cluster.Speed) bool {
			return o.Type == m.Type && o.Devices == m.Devices && o.Locality == m.Locality
		}) {
			j.Speeds.Measured = append(j.Speeds.Measured, m)
		}
	}
	if len(r.points) > 0 {
		j.Loss = r.at
		j.Every = max(1, r.points[len(r.points)-1].step/float64(len(r.points)))
	}
	fastest := 0.0
	for _, m := range j.Speeds.Measured {
		fastest = max(fastest, j.Speeds.Rate(m.Type, max(1, devices), cluster.SameMachine))
	}
	if fastest == 0 {
		fastest = float64(max(1, devices))
	}
	j.Isolated = float64(cmp.Or(r.ended, steps)) / fastest
	return j
}

// speedsOf returns the measured rates in a fixed order.
func speedsOf(done map[pace]work) []cluster.Speed {
	keys := slices.SortedFunc(maps.Keys(done), func(a, b pace) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.devices, b.devices), cmp.Compare(a.spread, b.spread))
	})
	var all []cluster.Speed
	for _, on := range keys {
		if w := done[on]; w.seconds > 0 && on.kind != "" {
			all = append(all, cluster.Speed{Type: on.kind, Devices: on.devices, Locality: on.spread, Rate: w.steps / w.seconds})
		}
	}
	return all
}

// actual returns how a sweep fared.
func (h *historian) actual(id string) Actual {
	s := h.st.Sweeps[id]
	if s == nil || s.Done() { // deleted or ended
		return h.sweeps[id].actual
	}
	return Actual{DeviceSeconds: s.DeviceSecondsAt(h.st.Time)}
}

// Weighing returns the app with another weight of its sweep from the start.
func (a App) Weighing(weight float64) App {
	a.Spec = proto.CloneOf(a.Spec)
	a.Spec.Weight = weight
	a.Commands = slices.DeleteFunc(slices.Clone(a.Commands), func(c Command) bool { return c.Weight != 0 })
	return a
}
