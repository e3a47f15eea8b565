package agent

import (
	"cmp"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
)

// BuiltIn is the agent of every app that brings none of its own. It knows single jobs, sets of jobs, successive halving
// and Hyperband, ASHA, and jobs whose curves are extrapolated.
type BuiltIn struct{}

var _ Agent = BuiltIn{}

// waiting is what it costs an app to hold nothing: its work is taken to go on at this part of the speed of the least
// gang. The paper calls rho unbounded then; a number keeps apart those that wait for long from those that just came.
const waiting = 4

// Bid implements Agent.
func (BuiltIn) Bid(o *Offer, apps []*AppState) ([]Table, error) {
	tables := make([]Table, len(apps))
	shared := newOfferIndex(o, nil)
	for i, s := range apps {
		m := shared
		if s.Free != nil {
			m = newOfferIndex(o, s.Free)
		}
		tables[i] = bid(m, s)
	}
	return tables, nil
}

// Estimate is an app's rho, and T_id in seconds, if it keeps all that it holds, leases that are up included.
func Estimate(s *AppState) (rho, ideal float64) {
	e := newEstimator(s, true)
	return e.rho(nil), e.ideal
}

// Shortest is the seconds that an app has still to go if it wants for nothing from now on.
func Shortest(s *AppState) float64 {
	e := newEstimator(s, false)
	gang := max(1, s.Demand.Max)
	for i := range s.Jobs {
		gang = max(gang, s.Jobs[i].Max)
	}
	speeds := make([]float64, max(1, Most(s)/gang))
	for i := range speeds {
		speeds[i] = e.most
	}
	return e.w.seconds(speeds, float64(len(speeds))*e.most, e.most)
}

// estimator turns gangs into rho for one app.
type estimator struct {
	s *AppState
	w *work
	// held is the speeds of the gangs that the app keeps, the fastest first, and speed their sum.
	held  []float64
	speed float64
	// most is the speed of the largest gang that one of its jobs can have, or of all its forks; least that of the smallest gang.
	most, least float64
	ideal       float64
	scratch     []float64
}

func newEstimator(s *AppState, lost bool) *estimator {
	e := &estimator{s: s, w: newWork(s)}
	e.ideal = e.w.ideal(s)
	gang, small := max(1, s.Demand.Max), max(1, s.Demand.Min)
	for i := range s.Jobs {
		j := &s.Jobs[i]
		if i == 0 {
			gang, small = j.Max, j.Min
		}
		gang, small = max(gang, j.Max), min(small, max(1, j.Min))
		e.hold(j, &j.Held)
		if lost {
			e.hold(j, &j.Lost)
		}
	}
	slices.SortFunc(e.held, func(a, b float64) int { return cmp.Compare(b, a) })
	e.most, e.least = e.fastest(gang), 0
	for _, t := range s.Cluster {
		if !s.Demand.Accepts(t.Type) || t.Devices == 0 {
			continue
		}
		if rate := e.w.pace.Rate(t.Type, small, cluster.SameMachine); rate > 0 && (e.least == 0 || rate < e.least) {
			e.least = rate
		}
	}
	if e.least == 0 {
		e.least = e.w.rate
	}
	return e
}

// fastest is the speed of a job that has all it can use: a gang of so many devices of the best type or, forked, one on each of the
// fastest machines.
func (e *estimator) fastest(gang int) float64 {
	alone := e.w.pace.Rate(e.w.best, gang, cluster.SameMachine)
	forks := forksOf(e.s, e.s.Forks, e.s.LeastForks)
	if forks <= 1 {
		return alone
	}
	var rates []float64
	for i := range e.s.Cluster {
		t := &e.s.Cluster[i]
		if !e.s.Demand.Accepts(t.Type) || t.Devices == 0 {
			continue
		}
		size := min(gang, max(1, t.Devices/t.machines()))
		for range min(forks, t.machines()) {
			rates = append(rates, e.w.pace.Rate(t.Type, size, cluster.SameMachine))
		}
	}
	slices.SortFunc(rates, func(a, b float64) int { return cmp.Compare(b, a) })
	sum := 0.0
	for _, r := range rates[:min(forks, len(rates))] {
		sum += r
	}
	return max(alone, sum)
}

func (e *estimator) hold(j *Job, h *Holding) {
	if h.Devices > 0 && h.Rate > 0 {
		v := h.Rate * e.w.slower(j)
		e.held = append(e.held, v)
		e.speed += v
	}
}

// rho of what the app keeps and more gangs of the given speeds, the fastest first (equation 1).
func (e *estimator) rho(more []float64) float64 {
	return (e.s.Elapsed + e.left(more)) / e.ideal
}

func (e *estimator) left(more []float64) float64 {
	speeds, speed := e.held, e.speed
	if len(more) > 0 {
		speeds = e.scratch[:0]
		i, k := 0, 0
		for i < len(e.held) || k < len(more) {
			if k == len(more) || i < len(e.held) && e.held[i] >= more[k] {
				speeds, i = append(speeds, e.held[i]), i+1
			} else {
				speeds, speed, k = append(speeds, more[k]), speed+more[k], k+1
			}
		}
		e.scratch = speeds
	}
	if len(speeds) == 0 {
		alone := [1]float64{e.least}
		return waiting * e.w.seconds(alone[:], e.least, e.most)
	}
	return e.w.seconds(speeds, speed, e.most)
}
