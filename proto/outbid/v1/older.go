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

// placesFormat is the format since which leases have places and say themselves how far their forks are.
const placesFormat = 3

// UpgradeSnapshot turns a snapshot as older versions wrote it into the one that says the same today.
func UpgradeSnapshot(snap *StateSnapshot) {
	if snap.GetFormat() >= placesFormat {
		return
	}
	for _, s := range snap.GetSweeps() {
		for _, t := range s.GetTrials() {
			for _, l := range t.GetHeld() {
				upgradeLease(t, l)
			}
		}
	}
}

// upgradeLease is for the one lease that a trial held.
func upgradeLease(t *TrialRecord, l *LeaseRecord) {
	if l.Node != "" { //nolint:staticcheck // old snapshots have it
		l.Places = olderPlaces(l.Node, l.Devices, l.Ended, l.More) //nolint:staticcheck // as above
		l.Node, l.Devices, l.Ended, l.More = "", nil, false, nil   //nolint:staticcheck // as above
	}
	l.Step, l.AtTarget = t.GetTrial().GetStep(), t.GetAtTarget()
	l.LastReportSeq, t.LastReportSeq = t.LastReportSeq, 0 //nolint:staticcheck // as above
}

func olderPlaces(node string, devices []int32, ended bool, more []*LeasePlace) []*LeasePlace {
	places := make([]*LeasePlace, 0, 1+len(more))
	places = append(places, &LeasePlace{Node: node, Devices: devices, Ended: ended})
	return append(places, more...)
}
