package oasis

import (
	"cmp"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/forking"
)

// division gives the devices of the present slot to trials.
type division struct {
	*slotDecision

	plan *policy.Planner
	// Set if sizes are decided again, because a slot begins or a promise was made.
	resizes bool
	// spare lists running trials without promised devices, those to stop first at the front.
	spare []*policy.Job
	// promised holds running trials within their sweep's promise.
	promised map[*policy.Job]bool
	// starts lists trials that still need a place to start or grow.
	starts []start
}

// start is a trial that should get a number of workers of a type.
type start struct {
	job     *policy.Job
	kind    string
	workers int
	size    int
}

// divide makes the plan: trials within their sweep's promise continue, sizes follow the slot's workers, promised
// workers get devices, and waiting trials get the rest.
func (d *slotDecision) divide(anew bool) policy.Plan {
	x := &division{slotDecision: d, plan: policy.Refill(d.v), resizes: anew, promised: map[*policy.Job]bool{}}
	standings := d.admittedSweeps()
	for _, s := range standings {
		x.allot(s)
	}
	x.listSpare(standings)
	for _, s := range x.starts {
		x.placeStart(s)
	}
	x.holdForPromised(standings)
	for _, j := range slices.Backward(x.spare) {
		if d.Conserve || d.m.Admissions[j.App.ID].isMeasuring() {
			x.plan.Keep(j)
		} else if !x.plan.Reclaimed(j) {
			x.plan.Evict(j, "it was promised no devices in this slot")
		}
	}
	x.fill()
	return x.plan.Plan(d.reason(anew), "others were promised its devices, or it goes on with more or fewer workers")
}

func (a *admission) isMeasuring() bool { return a == nil || a.Kind == measuring }

// allot divides a sweep's workers of the slot over its trials: as many trials as possible, with equal numbers of
// workers, running trials first.
func (x *division) allot(s *admittedSweep) {
	for _, share := range s.admission.Shares {
		if share.Slot == x.slot {
			x.allotOf(s, share.Type, share.Workers)
		}
	}
}

func (x *division) allotOf(s *admittedSweep, kind string, workers int) {
	size := max(1, s.admission.Size)
	var running, ready []*policy.Job
	for _, j := range s.app.Jobs {
		switch {
		case x.promised[j] || slices.ContainsFunc(x.starts, func(o start) bool { return o.job == j }):
		case j.Running() && !j.Ending && x.kindOf(j) == kind:
			running = append(running, j)
		case j.Running() && !j.Ending && x.resizes || j.Waiting():
			ready = append(ready, j) // it may run on another type in this slot
		case j.Ending:
			workers -= min(workers, j.Held().Size()/size) // its devices are kept for the sweep until it has saved
			if x.kindOf(j) == kind {
				ready = append(ready, j)
				workers += min(workers, j.Held().Size()/size)
			}
		}
	}
	slices.SortStableFunc(running, func(a, b *policy.Job) int { return cmp.Compare(b.Held().Size(), a.Held().Size()) })
	slices.SortStableFunc(ready, func(a, b *policy.Job) int { return a.Queued.Compare(b.Queued) })
	if !x.resizes {
		for _, j := range running {
			if n := max(1, j.Held().Size()/size); n <= workers {
				workers -= n
				x.promised[j] = true
			}
		}
		running = nil
	}
	all := append(running, ready...)
	count := min(workers, len(all))
	for i, j := range all[:count] {
		n := workers / count
		if i < workers%count {
			n++
		}
		x.keepOrResize(j, i < len(running), start{j, kind, n, size})
	}
}

// keepOrResize lets a running trial continue if it has the right size, and notes what must change.
func (x *division) keepOrResize(j *policy.Job, runs bool, s start) {
	most := x.mostWorkers(s)
	switch held := j.Held().Size(); {
	case !runs:
		x.starts = append(x.starts, s)
	case j.Forked && !x.v.Now.Before(j.TermEnd) && !j.TermEnd.IsZero():
		x.plan.Evict(j, "the slot is over")
		x.starts = append(x.starts, s)
	case j.Forked, min(s.workers, most)*s.size == held && (s.workers <= most || !j.MayFork()), held > j.Demand.Max:
		x.promised[j] = true
	default:
		x.promised[j] = true
		x.starts = append(x.starts, s)
	}
}

// mostWorkers returns how many workers a gang of the job can have on the type.
func (x *division) mostWorkers(s start) int {
	k := slices.Index(x.types, s.kind)
	return max(1, x.inventory.Most(s.job.Demand, k)/s.size)
}

// kindOf returns the type of a job's first device.
func (x *division) kindOf(j *policy.Job) string {
	at := j.Gang()[0]
	return x.v.Nodes[at.Node].Devices[at.Devices[0]].Type
}

// listSpare lists the trials that run without a promise: those of the latest sweep first, those being measured last.
func (x *division) listSpare(standings []*admittedSweep) {
	for _, a := range slices.Backward(x.v.Apps) {
		for _, j := range a.Jobs {
			if j.Running() && !j.Ending && !x.promised[j] {
				x.spare = append(x.spare, j)
			}
		}
	}
	place := func(j *policy.Job) int {
		switch {
		case x.m.Admissions[j.App.ID].isMeasuring():
			return 2
		case slices.ContainsFunc(standings, func(s *admittedSweep) bool { return s.app == j.App }):
			return 1
		}
		return 0
	}
	slices.SortStableFunc(x.spare, func(a, b *policy.Job) int { return cmp.Compare(place(a), place(b)) })
}

// placeStart finds devices for a trial that starts or changes its size. If there are not enough, it also uses those of
// trials without a promise, one trial at a time.
func (x *division) placeStart(s start) {
	if x.tryPlace(s, false) {
		return
	}
	for _, j := range x.spare {
		if j == s.job || x.plan.Reclaimed(j) || j.Forked || x.kindOf(j) != s.kind {
			continue
		}
		if x.plan.Reclaim(j); x.plan.Reclaimed(j) && x.tryPlace(s, false) {
			return
		}
	}
	x.tryPlace(s, true)
}

// tryPlace makes one attempt. fewer means that fewer devices suffice.
func (x *division) tryPlace(s start, fewer bool) bool {
	const why = "its sweep was promised these devices in this slot"
	j, most := s.job, x.mostWorkers(s)
	if s.workers > most && j.MayFork() && x.fork(s, why) {
		return true
	}
	n := min(min(s.workers, most)*s.size, max(j.Demand.Min, j.Demand.Max))
	if n < j.Demand.Min { // a trial with a larger minimum
		return j.Running() && !j.Ending && x.promised[j]
	}
	switch {
	case j.Running() && !j.Ending && x.promised[j]:
		if n == j.Held().Size() || !x.worthwhile() {
			return true
		}
		x.plan.Reclaim(j)
		if x.plan.Resize(j, n, s.kind, why) {
			return true
		}
		x.plan.Keep(j)
		return fewer // with its present devices
	case j.Running() && !j.Ending:
		x.plan.Reclaim(j)
	}
	for least := max(1, j.Demand.Min); n >= least; n-- {
		if !fewer {
			least = n
		}
		g, ok := x.plan.Free().Place(j.Demand, n, s.kind)
		if ok && x.plan.PlaceOn(j, x.plan.PreferFreeNow(j, g), why) {
			return true
		}
	}
	return false
}

// worthwhile reports whether enough of the slot is left to restart a trial with other devices.
func (x *division) worthwhile() bool { return x.ends(x.slot).Sub(x.v.Now) >= 2*x.restart }

// fork gives a trial with more workers than fit into one gang several forks, each on its own node.
func (x *division) fork(s start, why string) bool {
	j := s.job
	if !x.worthwhile() || j.Ending || forking.Left(j) < 1 && j.Waiting() {
		return false
	}
	try := x.plan.Statement()
	defer try.Discard()
	if j.Running() {
		x.plan.Reclaim(j)
	}
	var gangs []cluster.Gang
	left, mark := s.workers, x.plan.Free().Mark()
	for node := range x.v.Nodes {
		n := min(left*s.size, j.Demand.Max, x.plan.Free().FreeAt(node, s.kind)) / s.size * s.size
		if n < max(1, j.Demand.Min) || len(gangs) == j.Forks {
			continue
		}
		if g, ok := x.plan.Free().PlaceAt(node, j.Demand, n, s.kind); ok {
			x.plan.Free().Take(g, j.Demand)
			gangs, left = append(gangs, g), left-n/s.size
		}
	}
	x.plan.Free().Rollback(mark)
	if len(gangs) < max(2, j.LeastForks) {
		return false
	}
	ends := x.ends(x.slot)
	divide := func(g policy.Grant, gangs []cluster.Gang) []policy.Grant {
		grants := forking.Grants(x.v, g, gangs, ends.Sub(x.v.Now))
		for i := range grants {
			if len(grants) > 1 {
				grants[i].TermEnd = ends
			}
		}
		return grants
	}
	if !x.plan.PlaceForks(j, gangs, why, divide) {
		return false
	}
	try.Commit()
	return true
}

// holdForPromised keeps devices for promised trials that will wait soon, because they are saving or their forks are
// being averaged.
func (x *division) holdForPromised(standings []*admittedSweep) {
	for _, s := range standings {
		for _, j := range s.app.Jobs {
			if !j.Consolidating || j.Running() {
				continue
			}
			for _, share := range s.admission.Shares {
				if share.Slot != x.slot {
					continue
				}
				for range share.Workers {
					if g, ok := x.plan.Free().Place(j.Demand, max(1, j.Demand.Min), share.Type); ok {
						x.plan.HoldBack(g, j.Demand)
					}
				}
			}
		}
	}
}

// fill gives the rest to waiting trials: those to be measured first, then sweeps in order of submission.
func (x *division) fill() {
	var first, rest []*policy.Job
	for _, j := range x.v.Waiting() {
		if x.m.Admissions[j.App.ID].isMeasuring() {
			first = append(first, j)
		} else if x.Conserve {
			rest = append(rest, j)
		}
	}
	x.plan.Fill(first, "idle, and its speed is to be measured")
	x.plan.Fill(rest, "idle: nobody was promised it in this slot")
}
