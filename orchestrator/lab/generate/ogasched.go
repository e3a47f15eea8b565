package generate

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/outbid-dev/outbid/orchestrator/trace"
)

// OGASchedOptions describe the simulations of the OGASched paper, table II.
type OGASchedOptions struct {
	Seed uint64
	// Ports (|L|), Instances (|R|), Kinds of resource (K) and Slots (T).
	Ports, Instances, Kinds, Slots int
	// Alpha and Beta are the ranges of the gains' and the overheads' coefficients.
	Alpha, Beta [2]float64
	// Arrival is the probability that a port has a job in a slot (rho).
	Arrival float64
	// Contention multiplies the ports' requests.
	Contention float64
	// Density is the mean number of ports that an instance serves; at most Ports.
	Density float64
	// Request and Capacity are the ranges of a port's request, before contention, and of an instance's capacity, per
	// kind.
	Request, Capacity [2]float64
}

// OGASchedDefaults returns the paper's options. The paper takes requests and capacities from Alibaba's traces without
// giving them, and its table has a density of 2 to 3, so these ranges are Outbid's.
func OGASchedDefaults() OGASchedOptions {
	return OGASchedOptions{
		Ports: 10, Instances: 128, Kinds: 6, Slots: 2000,
		Alpha: [2]float64{1, 1.5}, Beta: [2]float64{.3, .5},
		Arrival: .7, Contention: 10, Density: 2.5,
		Request: [2]float64{.1, 1}, Capacity: [2]float64{4, 16},
	}
}

// Gain is the form of a reward for resources: the paper's equation 60.
type Gain string

// The four forms of the paper.
const (
	Linear     Gain = "linear"
	Log        Gain = "log"
	Reciprocal Gain = "reciprocal"
	Poly       Gain = "poly"
)

// OGASchedWorkload is the workload of the paper's simulations: a bipartite graph of ports and instances, and arrivals.
type OGASchedWorkload struct {
	Name string
	// Request of a port, [l][k], and Capacity of an instance, [r][k].
	Request, Capacity [][]float64
	// Edges are the instances that a port may use, [l], ascending.
	Edges [][]int
	// Alpha [r][k] and Gains [k] belong to the reward, Beta [k] to the overhead.
	Alpha [][]float64
	Gains []Gain
	Beta  []float64
	// Arrivals are set if a port has a job in a slot, [t][l].
	Arrivals [][]bool
	source   string
}

// MakeOGASched generates the workload of the paper's simulations. Every port reaches an instance and every instance
// serves a port.
func MakeOGASched(o OGASchedOptions) (*OGASchedWorkload, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	out := &OGASchedWorkload{Name: fmt.Sprintf("ogasched-%d", o.Seed)}
	out.source = fmt.Sprintf("made with the figures of the OGASched paper: seed %d, %d ports, %d instances, %d slots, "+
		"arrival %g, contention %g", o.Seed, o.Ports, o.Instances, o.Slots, o.Arrival, o.Contention)
	sizes, coefficients := newDraw(o.Seed, "ogasched sizes"), newDraw(o.Seed, "ogasched coefficients")
	out.Request = sizes.matrix(o.Ports, o.Kinds, o.Request[0]*o.Contention, o.Request[1]*o.Contention)
	out.Capacity = sizes.matrix(o.Instances, o.Kinds, o.Capacity[0], o.Capacity[1])
	out.Alpha = coefficients.matrix(o.Instances, o.Kinds, o.Alpha[0], o.Alpha[1])
	gains := []Gain{Linear, Log, Reciprocal, Poly}
	for range o.Kinds {
		out.Beta = append(out.Beta, coefficients.between(o.Beta[0], o.Beta[1]))
		out.Gains = append(out.Gains, gains[coefficients.IntN(len(gains))])
	}
	out.Edges = o.edges()
	arrivals := newDraw(o.Seed, "ogasched arrivals")
	for range o.Slots {
		slot := make([]bool, o.Ports)
		for l := range slot {
			slot[l] = arrivals.Float64() < o.Arrival
		}
		out.Arrivals = append(out.Arrivals, slot)
	}
	return out, nil
}

func (o *OGASchedOptions) check() error {
	const maker = "make an ogasched workload"
	for _, r := range []struct {
		name  string
		value [2]float64
	}{{"alpha", o.Alpha}, {"beta", o.Beta}, {"request", o.Request}, {"capacity", o.Capacity}} {
		if !trace.Finite(r.value[0], r.value[1]) || r.value[0] <= 0 || r.value[1] < r.value[0] {
			return fmt.Errorf("%s: %s is %g to %g: want 0 < low <= high", maker, r.name, r.value[0], r.value[1])
		}
	}
	if !(o.Arrival >= 0 && o.Arrival <= 1) {
		return fmt.Errorf("%s: arrival is %g: want 0 to 1", maker, o.Arrival)
	}
	if !(o.Density > 0 && o.Density <= float64(o.Ports)) {
		return fmt.Errorf("%s: density is %g: want more than 0 and at most the %d ports", maker, o.Density, o.Ports)
	}
	return positive(maker, setting{"ports", float64(o.Ports)}, setting{"instances", float64(o.Instances)},
		setting{"kinds", float64(o.Kinds)}, setting{"slots", float64(o.Slots)}, setting{"contention", o.Contention})
}

func (d draw) matrix(rows, columns int, low, high float64) [][]float64 {
	m := make([][]float64, rows)
	for i := range m {
		m[i] = make([]float64, columns)
		for j := range m[i] {
			m[i][j] = d.between(low, high)
		}
	}
	return m
}

// edges returns the edges of the graph: one for each instance and for each port without one, the rest at random.
func (o *OGASchedOptions) edges() [][]int {
	d, edges := newDraw(o.Seed, "ogasched edges"), make([][]int, o.Ports)
	more := 0.0
	if o.Ports > 1 {
		more = max(0, o.Density-1) / float64(o.Ports-1)
	}
	for r := range o.Instances {
		sure := d.IntN(o.Ports)
		for l := range o.Ports {
			if at := d.Float64(); l == sure || at < more {
				edges[l] = append(edges[l], r)
			}
		}
	}
	for l := range edges {
		if len(edges[l]) == 0 {
			edges[l] = []int{d.IntN(o.Instances)}
		}
		slices.Sort(edges[l])
	}
	return edges
}

// Trace returns the workload in neutral form: each arrival is a job of one slot that requests as many GPUs as its
// port's request of one kind of resource, rounded up.
func (w *OGASchedWorkload) Trace(kind int, slotSeconds float64) (*trace.Trace, error) {
	if kind < 0 || kind >= len(w.Beta) || !trace.Finite(slotSeconds) || slotSeconds <= 0 {
		return nil, fmt.Errorf("ogasched as a trace: kind %d, slot of %g s: want a kind below %d and a slot above 0",
			kind, slotSeconds, len(w.Beta))
	}
	out := &trace.Trace{Name: w.Name, Source: w.source}
	for t, slot := range w.Arrivals {
		for l, arrives := range slot {
			if !arrives {
				continue
			}
			gpus := int(w.Request[l][kind]) + 1
			out.Jobs = append(out.Jobs, trace.Job{
				ID: strconv.Itoa(t) + "/" + strconv.Itoa(l), Tenant: "port-" + strconv.Itoa(l),
				Submit: float64(t) * slotSeconds, MinGPUs: gpus, MaxGPUs: gpus, Share: 1, Duration: slotSeconds, Weight: 1,
			})
		}
	}
	return out, nil
}

// Rewarded returns Trace with elastic jobs and utilities. A job may have from one device to its port's request. Its
// reward is that request if it ends within two slots, and falls to nothing in the next. In the paper, resources that a
// job does not get in its slot reduce its reward at once; here the job continues and ends later.
func (w *OGASchedWorkload) Rewarded(kind int, slotSeconds float64) (*trace.Trace, error) {
	out, err := w.Trace(kind, slotSeconds)
	if err != nil {
		return nil, err
	}
	for i := range out.Jobs {
		j := &out.Jobs[i]
		j.MinGPUs = 1
		j.Utility = &trace.Utility{Priority: float64(j.MaxGPUs), Decay: 10 / slotSeconds, Target: 2.5 * slotSeconds}
	}
	return out, nil
}
