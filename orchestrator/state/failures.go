package state

import (
	"cmp"
	"math"
	"slices"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// A trial under which nodes were lost is cleared of suspicion if it saves beyond the step of the loss under a lease
// that has lasted for trustAfter, or if its lease lasts for longTrustAfter, for code that never saves. These values must
// not change, because they determine the state of a ledger.
const (
	trustAfter     = time.Minute
	longTrustAfter = 10 * time.Minute
)

// forkFailed records that the training process of a lease failed.
func (f *foldContext) forkFailed(e *outbidv1.ForkFailed) error {
	s, t := f.sweep, f.trial
	f.st.count(s.countedAs, func(t *Totals) { t.ForkFailures = plus(t.ForkFailures, e.GetKind(), 1) })
	t.avoid(e)
	switch {
	case e.GetUnreadable() != "":
		s.unreadable(t, e.GetUnreadable())
	case e.GetExcused():
	case e.GetKind() != outbidv1.FailureKind_FAILURE_KIND_NODE_LOST:
		if t.forkFailed = true; t.Part(f.lease) != nil {
			break // one of several: the trial is not restarted
		}
		t.Restarts++
		if e.Step != nil {
			t.LastFailure = e
		}
	case e.GetLosses() > 0:
		t.NodeLosses, t.LostStep = e.GetLosses(), max(t.LostStep, e.GetStep())
		t.Suspected = t.Suspected || e.GetSuspected()
		if t.Part(f.lease) != nil {
			f.st.setSlot(s, t, t.Slot.LostNode())
		}
	}
	return nil
}

// Repeats reports whether a failure has the same kind, detail and step as the trial's last one.
func (t *Trial) Repeats(e *outbidv1.ForkFailed) bool {
	last := t.LastFailure
	return last != nil && last.GetKind() == e.GetKind() && last.GetDetail() == e.GetDetail() && last.GetStep() == e.GetStep()
}

// HasMetric reports whether the trial ever reported its sweep's metric, including as NaN.
func (t *Trial) HasMetric() bool { return !math.IsNaN(t.Metric) || t.NaNNoted }

// gotFurther clears the suspicion of a trial that got beyond the step of a node's loss under a lease that has lasted
// for a while.
func (t *Trial) gotFurther(at time.Time, l *Lease, step int64, least time.Duration) {
	if t.NodeLosses > 0 && l != nil && step > t.LostStep && at.Sub(l.Granted) >= least {
		t.NodeLosses, t.Suspected = 0, false
	}
}

// outlived clears the suspicion of a trial that has trained for long.
func (t *Trial) outlived(at time.Time, l *Lease) {
	if t.NodeLosses > 0 && at.Sub(l.Granted) >= longTrustAfter {
		t.NodeLosses, t.Suspected = 0, false
	}
}

// recordRollback records a fork that begins before the highest step, whose reports beyond its start will be repeated. It
// replaces earlier rollbacks to the same or a later step.
func (t *Trial) recordRollback(leaseID uint64, from int64) {
	if from >= t.MaxStep {
		return
	}
	kept := slices.Clone(t.Rollbacks)
	for len(kept) > 0 && kept[len(kept)-1].GetFromStep() >= from {
		kept = kept[:len(kept)-1]
	}
	t.Rollbacks = append(kept, &outbidv1.Rollback{LeaseId: leaseID, FromStep: from})
}

// Superseded reports whether a later fork started before the step of a report.
func (t *Trial) Superseded(r *outbidv1.Report) bool {
	if r.GetLeaseId() == 0 {
		return false // unknown lease
	}
	i, _ := slices.BinarySearchFunc(t.Rollbacks, r.GetLeaseId()+1, func(b *outbidv1.Rollback, leaseID uint64) int {
		return cmp.Compare(b.GetLeaseId(), leaseID)
	})
	return i < len(t.Rollbacks) && t.Rollbacks[i].GetFromStep() < r.GetStep()
}
