package bidder

import (
	"cmp"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
)

// Ideal returns T_id in seconds (equations 1 and 2) of a sweep that runs or is over, from its work as known from the
// spec and the tuner, and from the measured rates. It is the only place where T_id is computed: for the arbiter, and
// for listings.
func Ideal(s *AppState) float64 { return newWork(s).ideal(s) }

// Rest is a sweep's remaining work, for policies that plan ahead.
type Rest struct {
	// Steps is the remaining steps of all its trials, including those to come, in steps of the median trial. Pace has
	// the speeds of that trial's model.
	Steps float64
	Pace  *cluster.Speeds
	// Jobs is how many trials it can have at once from now on when it has most, and Forks how many forks each can
	// have.
	Jobs, Forks int
}

// RestOf returns the remaining work of a sweep.
func RestOf(s *AppState) Rest {
	w := newWork(s)
	jobs, _, forks := demanded(s)
	return Rest{Steps: w.left, Pace: w.pace, Jobs: s.atOnce(max(len(s.Jobs), jobs-s.Finished)), Forks: forks}
}

// ideal returns T_id in seconds (equations 1 and 2): T_cluster * N_avg. T_cluster is the time for the sweep's whole
// work on the whole cluster, or on as many devices as it can use, with linear speed-up and without slowdown. If
// devices differ, it is the sweep's best use of them: the fastest first, by the measured speeds of its model. A share
// of 1/N of every type then takes N times as long. A sweep of weight w is due w shares. If its trials may be forked,
// each can use as many machines as it may have forks, all different, and the forks' rates add up.
func (w *work) ideal(s *AppState) float64 {
	type kind struct {
		devices int
		rate    float64
	}
	var kinds []kind
	all := 0
	gang := max(1, s.Demand.Min)
	jobs, size, forks := demanded(s)
	jobs = s.atOnce(jobs)
	for _, t := range s.Cluster {
		if !s.Demand.Accepts(t.Type) || t.Devices == 0 {
			continue
		}
		rate := w.pace.Rate(t.Type, gang, cluster.SameSlot) / float64(gang)
		devices := t.Devices
		if forks > 1 { // the forks of a trial are on different machines
			devices = min(devices, jobs*size*t.machines())
		}
		kinds = append(kinds, kind{devices, max(0, rate)})
		all += devices
	}
	slices.SortStableFunc(kinds, func(a, b kind) int { return cmp.Compare(b.rate, a.rate) })
	devices := min(all, jobs*size*forks)
	speed := 0.0
	for _, k := range kinds {
		use := min(devices, k.devices)
		speed += float64(use) * k.rate
		devices -= use
	}
	if speed <= 0 {
		speed = w.rate
	}
	weight := s.Weight
	if weight <= 0 {
		weight = 1
	}
	return (w.done + w.left) / speed * max(1, s.MeanApps) / weight
}

// Most returns app_demand_max of a sweep: the devices that it could use at once when it can use most, limited by the
// number of devices of accepted types.
func Most(s *AppState) int {
	all := 0
	for _, t := range s.Cluster {
		if s.Demand.Accepts(t.Type) {
			all += t.Devices
		}
	}
	jobs, size, forks := demanded(s)
	return min(all, s.atOnce(jobs)*size*forks)
}

// atOnce returns how many of a number of trials the sweep may have at once.
func (s *AppState) atOnce(jobs int) int {
	if s.Concurrency > 0 {
		return min(jobs, s.Concurrency)
	}
	return jobs
}

// demanded returns the factors of app_demand_max: the largest number of concurrent trials of the sweep if nothing limits
// it, the devices of a gang, and the gangs of a trial, more than one if it may be forked.
func demanded(s *AppState) (jobs, size, forks int) {
	jobs = max(len(s.Jobs)+s.Finished, s.Outlook.Trials)
	first := map[int]bool{}
	entering := 0
	for _, r := range s.Outlook.Rungs {
		if !first[r.Bracket] {
			first[r.Bracket] = true
			entering += r.Trials
		}
	}
	size = s.Demand.Max
	for i := 0; i < len(s.Jobs) && s.Demand.Max == 0; i++ {
		size = max(size, s.Jobs[i].Max)
	}
	return max(jobs, entering), max(1, size), forksOf(s, s.Forks, s.LeastForks)
}

// forksOf returns how many forks a trial that may have most can have on the cluster, where each needs a different
// machine.
func forksOf(s *AppState, most, least int) int {
	if most <= 1 {
		return 1
	}
	machines := 0
	for i := range s.Cluster {
		if s.Demand.Accepts(s.Cluster[i].Type) {
			machines += s.Cluster[i].machines()
		}
	}
	if most = min(most, machines); most < max(2, least) {
		return 1
	}
	return most
}
