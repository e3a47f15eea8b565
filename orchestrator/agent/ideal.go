package agent

import (
	"cmp"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
)

// Ideal is T_id in seconds (equations 1 and 2) of an app as it stands, or when it is over: from its work as the spec and its
// tuner say it, and from the rates that workers measured. It is the only place where T_id is computed: for the arbiter,
// for what listings say of apps that run, and for those that are over.
func Ideal(s *AppState) float64 { return newWork(s).ideal(s) }

// Rest is what an app has still to do, as a policy that plans ahead reads it.
type Rest struct {
	// Steps left of all its jobs, those to come too, in steps of the median job; Pace is that job's model.
	Steps float64
	Pace  *cluster.Speeds
	// Jobs that it can have at once from now on when it has most, and Forks of each.
	Jobs, Forks int
}

// RestOf reads it off the app's state.
func RestOf(s *AppState) Rest {
	w := newWork(s)
	jobs, _, forks := demanded(s)
	return Rest{Steps: w.left, Pace: w.pace, Jobs: max(len(s.Jobs), jobs-s.Finished), Forks: forks}
}

// ideal is T_id in seconds (equations 1 and 2): T_cluster * N_avg. T_cluster is the app's whole work on the whole cluster,
// or on as many devices as it can use at the most, in linear speed-up and without any slowdown. Where devices are
// unlike it is the app's best use of them: the fastest first, by what was measured of its model; a share of 1/N of every
// type then takes N times as long. An app of weight w is due w shares. Where its jobs may be forked each can use as many
// machines as it may have forks, no two of them the same, and their rates add up.
func (w *work) ideal(s *AppState) float64 {
	type kind struct {
		devices int
		rate    float64
	}
	var kinds []kind
	all := 0
	gang := max(1, s.Demand.Min)
	jobs, size, forks := demanded(s)
	for _, t := range s.Cluster {
		if !s.Demand.Accepts(t.Type) || t.Devices == 0 {
			continue
		}
		rate := w.pace.Rate(t.Type, gang, cluster.SameSlot) / float64(gang)
		devices := t.Devices
		if forks > 1 { // forks of a job are on machines of their own
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

// Most is app_demand_max of an app: the devices that the app could use at once when it can use most, at most those
// that there are of types that it accepts.
func Most(s *AppState) int {
	all := 0
	for _, t := range s.Cluster {
		if s.Demand.Accepts(t.Type) {
			all += t.Devices
		}
	}
	jobs, size, forks := demanded(s)
	return min(all, jobs*size*forks)
}

// demanded is app_demand_max: how many jobs the app can have at once when it has most, the devices of a gang, and the gangs of a
// job, which are its forks where it may have any.
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

// forksOf is how many forks a job can have on the app's cluster that may have so many: no two are on one machine.
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
