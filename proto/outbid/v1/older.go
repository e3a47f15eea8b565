package outbidv1

// Ledgers and snapshots of formats 1 and 2 say a lease's first place apart from the others. Whoever reads them turns that
// into places here, so that nobody else knows of it.

// UpgradeEvent turns an event as older versions wrote it into the one that says the same today.
func UpgradeEvent(e *Event) {
	if g := e.GetLeaseGranted(); g != nil && len(g.Places) == 0 && g.Node != "" { //nolint:staticcheck // old ledgers have these
		g.Places = olderPlaces(g.Node, g.Devices, false, g.More) //nolint:staticcheck // as above
		g.Node, g.Devices, g.More = "", nil, nil                 //nolint:staticcheck // as above
	}
}

// UpgradeLease turns a lease of a snapshot as older versions wrote it into the one that says the same today.
func UpgradeLease(r *LeaseRecord) {
	if r != nil && len(r.Places) == 0 && r.Node != "" { //nolint:staticcheck // old snapshots have these
		r.Places = olderPlaces(r.Node, r.Devices, r.Ended, r.More) //nolint:staticcheck // as above
		r.Node, r.Devices, r.Ended, r.More = "", nil, false, nil   //nolint:staticcheck // as above
	}
}

func olderPlaces(node string, devices []int32, ended bool, more []*LeasePlace) []*LeasePlace {
	places := make([]*LeasePlace, 0, 1+len(more))
	places = append(places, &LeasePlace{Node: node, Devices: devices, Ended: ended})
	return append(places, more...)
}
