package policy

import "github.com/outbid-dev/outbid/orchestrator/cluster"

// Place finds a place for a waiting job that is as good as any, and says whether there was one.
func (p *Planner) Place(j *Job, reason string) bool {
	g, ok := p.free.Best(j.Demand)
	return ok && p.PlaceOn(j, p.PreferFreeNow(j, g), reason)
}

// KeepOrPlace keeps a running job, or finds a place for one that waits. A job whose devices are gone is found another
// place and moves there: it is revoked now and granted that place once it has saved.
func (p *Planner) KeepOrPlace(j *Job, reason string) bool {
	return p.Keep(j) || p.Place(j, reason)
}

// Fill places waiting jobs in the given order, each where it fits best, until nothing is free. One that does not fit is
// passed over, and so is, unseen, whoever asks for as much or more.
func (p *Planner) Fill(jobs []*Job, reason string) {
	var none Unplaceable
	for _, j := range jobs {
		if p.free.FreeDevices() == 0 {
			return
		}
		if j.Waiting() && !none.Covers(j.Demand) && !p.Place(j, reason) {
			none.Add(j.Demand)
		}
	}
}

// PreferFreeNow finds, for a job that was to have a gang some devices of which have still to be released, as many of the
// same type that are free now, on no more nodes. If there are none, or the plan reclaims all devices, it returns the gang
// as it is.
func (p *Planner) PreferFreeNow(j *Job, g cluster.Gang) cluster.Gang {
	if p.all || !j.Waiting() || !p.pending.anyOf(g) {
		return g
	}
	var late cluster.Gang
	for node, devices := range p.pending.devices {
		place := cluster.Place{Node: node}
		for d := range devices {
			if p.free.IsFree(cluster.Gang{{Node: node, Devices: []int{d}}}) {
				place.Devices = append(place.Devices, d)
			}
		}
		late = append(late, place)
	}
	try := p.v.Statement()
	defer try.Discard()
	p.free.Take(late, cluster.Demand{})
	now, ok := p.free.Place(j.Demand, g.Size(), cluster.TypeOf(p.v.Nodes, g))
	if !ok || len(now) > len(g) {
		return g
	}
	return now
}

// Resize gives a running job whose devices were reclaimed n devices: some of those that it holds if these are more,
// otherwise a place with n of a type, "" for any. A job cannot be resized while it runs: it is revoked, and the devices
// are reserved for it. If there is no place, all stays as it was.
func (p *Planner) Resize(j *Job, n int, kind, reason string) bool {
	try := p.Statement()
	p.Drop(j)
	g, ok := part(j.Gang(), n), true
	if n > j.Gang().Size() {
		g, ok = p.free.Place(j.Demand, n, kind)
	}
	if ok && p.PlaceOn(j, g, reason) {
		try.Commit()
		return true
	}
	try.Discard()
	return false
}

// part is the first n devices of a gang.
func part(g cluster.Gang, n int) cluster.Gang {
	var some cluster.Gang
	for _, place := range g {
		if n <= 0 {
			break
		}
		place.Devices = place.Devices[:min(n, len(place.Devices))]
		n -= len(place.Devices)
		some = append(some, place)
	}
	return some
}
