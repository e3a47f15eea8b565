package state

import (
	"cmp"
	"slices"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func (f *foldContext) leaseGranted(e *outbidv1.LeaseGranted) error {
	st, s, t, at := f.st, f.sweep, f.trial, f.at
	l := &Lease{
		Sweep: s.ID, Trial: t.Number, ID: e.GetLeaseId(), Places: PlacesOf(e.GetPlaces()),
		Granted: at, Reason: e.GetReason(), Version: 1,
	}
	if len(l.Places) == 0 {
		return broken("lease %d has no places", l.ID)
	}
	if err := st.canHold(l); err != nil {
		return err
	}
	if e.GetTermEnd() != nil {
		l.TermEnd = e.GetTermEnd().AsTime()
	}
	if beside := len(t.Leases) > 0; beside != e.GetFork() {
		return broken("lease %d: the trial holds %d leases, but fork is %t", l.ID, len(t.Leases), e.GetFork())
	}
	f.lease = l
	if err := st.lease(s, t, l); err != nil {
		return err
	}
	st.hold(l)
	devices := st.countTypes(l)
	st.meter(s, l, devices)
	st.price(l, devices)
	return st.joinSlot(s, t, l, e)
}

func (f *foldContext) trialAsked(e *outbidv1.TrialAsked) error {
	s, t := f.sweep, f.trial
	if len(t.Leases) > 0 {
		return broken("a client asked for it, but it holds lease %d", t.Lead().ID)
	}
	f.lease = &Lease{
		Sweep: s.ID, Trial: t.Number, ID: e.GetLeaseId(), Granted: f.at, Holder: Client, Client: e.GetClient(), Started: true,
		Version: 1, FromStep: t.Step,
	}
	return f.st.lease(s, t, f.lease)
}

func (st *State) lease(s *Sweep, t *Trial, l *Lease) error {
	if l.ID != st.NextLease {
		return broken("lease has ID %d, want %d", l.ID, st.NextLease)
	}
	st.NextLease++
	l.Step = t.Step
	t.Leases = append(t.Leases, l)
	t.LeaseCount++
	if len(t.Leases) > 1 {
		return nil // the trial is running already
	}
	t.AtTarget, t.forkFailed = false, false
	s.setState(t, trialRunning)
	s.Running = append(s.Running, t.Number)
	return nil
}

func (f *foldContext) leaseRevoked(e *outbidv1.LeaseRevoked) error {
	l := f.lease
	// A stop overrides a pause, but not the other way round.
	if l.Revoking != outbidv1.RevokeKind_REVOKE_KIND_STOP {
		l.Revoking = e.GetHow()
	}
	l.Version++
	return nil
}

func (f *foldContext) leaseEnded(e *outbidv1.LeaseEnded) error {
	st, s, t, at := f.st, f.sweep, f.trial, f.at
	l := f.lease
	led := t.Lead() == l
	t.Leases = slices.DeleteFunc(t.Leases, func(o *Lease) bool { return o == l })
	t.DeviceSeconds += e.GetDeviceSeconds()
	s.DeviceSeconds += e.GetDeviceSeconds()
	s.Cost += l.costAt(at)
	st.charge(at, s, l)
	st.countLease(at, s, l)
	if l.Started && l.Step > l.FromStep && !t.forkFailed {
		st.trainedOn(s, l)
	}
	for _, p := range l.Places {
		st.release(l, p)
	}
	st.dropUnsavedSteps(s, t, l)
	if len(t.Leases) > 0 {
		if led {
			s.lead(t)
		}
		return nil
	}
	s.Running = remove(s.Running, t.Number)
	switch {
	case t.Done():
	case t.Pausing, t.AtTarget:
		t.Pausing = false
		s.setState(t, trialPaused)
	default:
		s.enqueue(at, t)
	}
	return nil
}

// lead makes the trial's oldest lease the leading one after the previous one has ended.
func (s *Sweep) lead(t *Trial) {
	l := t.Lead()
	s.Running = remove(s.Running, t.Number)
	i, _ := slices.BinarySearchFunc(s.Running, l.ID, func(n int32, id uint64) int {
		return cmp.Compare(s.Trials[n].Lead().ID, id)
	})
	s.Running = slices.Insert(s.Running, i, t.Number)
	if t.Done() || t.Pausing {
		return // its forks end, and the trial keeps its step
	}
	if t.Part(l) != nil {
		return // the steps of all forks count
	}
	if t.AtTarget = l.AtTarget; l.Started {
		t.recordRollback(l.ID, l.Step)
		s.advance(t, l.Step)
	}
}

// placeEnded frees what a lease held on one node, while the rest of its gang ends too.
func (f *foldContext) placeEnded(e *outbidv1.PlaceEnded) error {
	st, l := f.st, f.lease
	i := l.PlaceOn(e.GetNode())
	if i < 0 {
		return broken("lease %d has no place on node %s, or the place has ended", l.ID, e.GetNode())
	}
	st.release(l, l.Places[i])
	l.Places[i].Ended = true
	if i == 0 {
		l.Training = time.Time{}
	}
	return nil
}

func (f *foldContext) leaseRenewed(e *outbidv1.LeaseRenewed) error {
	f.lease.TermEnd = from(e.GetTermEnd())
	return nil
}

func (f *foldContext) forkStarted(e *outbidv1.ForkStarted) error {
	t, l := f.trial, f.lease
	l.Started, l.FromStep, l.Step, l.Training = true, e.GetFromStep(), e.GetFromStep(), f.at
	if l == t.Lead() {
		t.recordRollback(l.ID, l.FromStep)
		t.Step = l.FromStep
	}
	f.st.countForkSteps(f.sweep, t, l)
	f.st.startedOn(f.sweep, t, l)
	return nil
}
