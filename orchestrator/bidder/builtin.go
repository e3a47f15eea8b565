package bidder

import (
	"cmp"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
)

// BuiltIn is the bidder for every sweep that does not name another one. It handles single trials, sets of trials,
// successive halving and Hyperband, ASHA, and trials whose curves are extrapolated.
type BuiltIn struct{}

var _ Bidder = BuiltIn{}

// waitingFactor is the cost of holding nothing: rho is computed as if the work continued at 1/waitingFactor of the
// speed of the least gang. In the paper rho is unbounded then; a number distinguishes sweeps that have waited for
// long from new ones.
const waitingFactor = 4

// Bid implements Bidder.
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

// Estimate returns a sweep's rho, and T_id in seconds, if it keeps everything that it holds, including devices of
// expired leases.
func Estimate(s *AppState) (rho, ideal float64) {
	e := newEstimator(s, true)
	return e.rho(nil), e.ideal
}

// Shortest returns the remaining seconds of a sweep if it has all the devices that it can use from now on.
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

// estimator computes rho of one sweep from gangs.
type estimator struct {
	s *AppState
	w *work
	// held has the speeds of the gangs that the sweep keeps, the fastest first, and speed is their sum.
	held  []float64
	speed float64
	// most is the speed of the largest gang of a trial, or of all its forks. least is that of the smallest gang.
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

// fastest returns the speed of a trial that has everything it can use: a gang of the best type or, if it is forked,
// one gang on each of the fastest machines.
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

// rho returns rho for the gangs that the sweep keeps and more gangs of the given speeds, the fastest first (equation
// 1).
func (e *estimator) rho(more []float64) float64 {
	return (e.s.Elapsed + e.remainingTime(more)) / e.ideal
}

func (e *estimator) remainingTime(more []float64) float64 {
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
		return waitingFactor * e.w.seconds(alone[:], e.least, e.most)
	}
	return e.w.seconds(speeds, speed, e.most)
}
