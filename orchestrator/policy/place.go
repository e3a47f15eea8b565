package policy

import "github.com/outbid-dev/outbid/orchestrator/cluster"

// Place gives a waiting job the best place for its demand and reports whether it found one.
func (p *Planner) Place(j *Job, reason string) bool {
	g, ok := p.free.Best(j.Demand)
	return ok && p.PlaceOn(j, p.PreferFreeNow(j, g), reason)
}

// KeepOrPlace keeps a running job, or finds a place for a waiting one. A running job whose devices are taken moves: it
// is revoked now and gets the new place once it has saved.
func (p *Planner) KeepOrPlace(j *Job, reason string) bool {
	return p.Keep(j) || p.Place(j, reason)
}

// Fill places waiting jobs in the given order, each where it fits best, until nothing is free. It skips a job that does
// not fit, and later ones with the same or a larger demand without a search.
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

// PreferFreeNow replaces a waiting job's gang, if some of its devices still have to be released, by one of the same
// type and size that is free now, on at most as many nodes. It returns the gang unchanged if it finds none or the plan
// reclaims all devices.
func (p *Planner) PreferFreeNow(j *Job, g cluster.Gang) cluster.Gang {
	if p.reclaimsAll || !j.Waiting() || !p.pending.isAnyPending(g) {
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

// Resize gives a running job, whose devices were reclaimed, n devices: some of those that it holds if it holds more,
// otherwise a place with n devices of a type, or of any type if kind is "". A trial cannot be resized while it runs, so
// it is revoked and the devices are reserved for it. Without a place nothing changes.
func (p *Planner) Resize(j *Job, n int, kind, reason string) bool {
	try := p.Statement()
	p.Drop(j)
	g, ok := firstDevices(j.Gang(), n), true
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

// firstDevices returns the first n devices of a gang.
func firstDevices(g cluster.Gang, n int) cluster.Gang {
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
