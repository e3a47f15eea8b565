package state

import (
	"cmp"
	"maps"
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
	if f.lease == nil {
		return broken("failed lease %d, which it does not hold", e.GetLeaseId())
	}
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
			f.setRound(t.Round.LostNode())
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

// Suspect is a trial that must run alone on a node.
type Suspect struct {
	Sweep *Sweep
	Trial *Trial
}

// watch updates the sets of suspects and of trials that avoid a node. Trials that have ended are removed.
func (st *State) watch(s *Sweep, t *Trial) {
	if t.Suspected && !t.Done() {
		st.suspects[t] = s
	} else if len(st.suspects) > 0 {
		delete(st.suspects, t)
	}
	if len(t.Avoided) > 0 && !t.Done() {
		st.avoiding[t] = s
	} else if len(st.avoiding) > 0 {
		delete(st.avoiding, t)
	}
}

// CountSuspects returns how many trials must run alone.
func (st *State) CountSuspects() int { return len(st.suspects) }

// Suspects returns the trials that must run alone, those of earlier sweeps first.
func (st *State) Suspects() []Suspect {
	all := make([]Suspect, 0, len(st.suspects))
	for t, s := range maps.All(st.suspects) {
		all = append(all, Suspect{s, t})
	}
	slices.SortFunc(all, func(a, b Suspect) int {
		return cmp.Or(a.Sweep.Order-b.Sweep.Order, int(a.Trial.Number-b.Trial.Number))
	})
	return all
}

// reopen continues a sweep that has ended, with the trials that a person's stop cancelled.
func (st *State) reopen(at time.Time, s *Sweep) {
	s.State, s.Reason, s.Ended, s.Fairness = sweepRunning, "", time.Time{}, nil
	st.shares(at, s, 1)
	i, _ := slices.BinarySearchFunc(st.Live, s.Order, func(o *Sweep, order int) int { return o.Order - order })
	st.Live = slices.Insert(st.Live, i, s)
	for _, t := range s.Trials {
		if t.ResumesAs == trialNone {
			continue
		}
		to := t.ResumesAs
		t.ResumesAs, t.Ended, t.Reason = trialNone, time.Time{}, "goes on, as its sweep does"
		t.Resumes++
		s.touch(t)
		if to == trialPaused {
			s.setState(t, trialPaused)
		} else {
			s.enqueue(at, t)
		}
		st.watch(s, t)
	}
}
