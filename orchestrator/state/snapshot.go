package state

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Snapshot returns the whole state. Callers add the snapshots of the tuners and the policy.
func (st *State) Snapshot() *outbidv1.StateSnapshot {
	snap, _ := SnapshotSince(st, nil)
	return snap
}

// withoutSweeps returns a snapshot of everything except the sweeps.
func withoutSweeps(st *State) *outbidv1.StateSnapshot {
	snap := &outbidv1.StateSnapshot{
		Seq: st.Seq, Hash: st.Hash, Time: stamp(st.Time), NextLeaseId: st.NextLease, NextRound: st.NextRound,
		NameCounters: maps.Clone(st.names), AppSecondsCounted: st.appSeconds, AppSecondsAt: stamp(st.appsChanged),
		Decider: st.Decider, Format: Format, Prices: st.prices, DevicePrices: st.devicePrices,
	}
	st.snapshotDeleted(snap)
	st.snapshotTenants(snap)
	snap.Totals = st.snapshotTotals()
	for _, name := range st.NodeNames {
		n := st.Nodes[name]
		snap.Nodes = append(snap.Nodes, &outbidv1.NodeRecord{
			Info: n.Info, State: n.State, Reason: n.Reason, SeenSeq: n.SeenSeq, Changed: stamp(n.Changed),
			Faults: n.Faults,
		})
	}
	return snap
}

// snapshot returns the sweep with some of its trials, by number.
func (s *Sweep) snapshot(trials []int32) *outbidv1.SweepRecord {
	r := &outbidv1.SweepRecord{
		Id: s.ID, Spec: s.Spec, State: s.State, Reason: s.Reason, Actor: s.Actor, StopActor: s.StopActor,
		IdempotencyKey: s.IdempotencyKey, Submitted: stamp(s.Submitted), Ended: stamp(s.Ended),
		Notes: slices.Clone(s.Notes), TunerWaiting: s.Waiting, TunerExhausted: s.Exhausted,
		Steps: s.Steps, DeviceSeconds: s.DeviceSeconds, Trials: make([]*outbidv1.TrialRecord, len(trials)),
		AppSecondsBefore: s.AppSecondsBefore, Measured: measuredRecords(s.Measured), Fairness: s.Fairness,
		LackNoted: s.LackNoted, Soups: s.Soups, Admission: s.Admission,
		Order: int64(s.Order), ReportBytes: s.ReportBytes, FailedBefore: s.FailedBefore, Cost: s.Cost, Memory: s.Memory,
		Annotation: s.Annotation,
	}
	if s.countedAs != TenantOf(s.Spec) {
		r.CountedAs = s.countedAs
	}
	for i, n := range trials {
		r.Trials[i] = s.Trials[n].snapshot(s.ID)
	}
	if !slices.IsSortedFunc(s.Queued, byTime(s.Trials)) {
		r.Queued = slices.Clone(s.Queued)
	}
	return r
}

// byTime returns a comparison of queued trials by the time of queueing. Those that one batch queued are compared by
// number, although they may have been queued in another order.
func byTime(trials []*Trial) func(a, b int32) int {
	return func(a, b int32) int {
		return cmp.Or(trials[a].Queued.Compare(trials[b].Queued), cmp.Compare(a, b))
	}
}

func (t *Trial) snapshot(sweep string) *outbidv1.TrialRecord {
	r := &outbidv1.TrialRecord{
		Trial: t.record(sweep), Seed: t.Seed, AtTarget: t.AtTarget, Start: t.Start,
		MaxStep: t.MaxStep, Queued: stamp(t.Queued), Pausing: t.Pausing, Metric: number(t.Metric), NanNoted: t.NaNNoted,
		MetricStep: t.MetricStep, Leases: t.LeaseCount, Measured: measuredRecords(t.Measured),
		LostStep: t.LostStep, LastFailure: t.LastFailure, ResumesAs: t.ResumesAs, Rollbacks: t.Rollbacks,
		FailedOtherwise: t.FailedOtherwise, Round: slotRecord(t.Slot), ForkAgain: t.ForkAgain,
		Probation: t.Probation, DroppedMerges: t.DroppedMerges, Avoided: avoidedRecords(t.Avoided),
	}
	for _, p := range t.Curve {
		r.CurveSteps, r.CurveValues = append(r.CurveSteps, p.Step), append(r.CurveValues, p.Value)
	}
	r.Trial.Sweep = ""
	for _, l := range t.Leases {
		r.Held = append(r.Held, &outbidv1.LeaseRecord{
			LeaseId: l.ID, Places: placeRecords(l.Places), Granted: stamp(l.Granted), TermEnd: stamp(l.TermEnd),
			Revoking: l.Revoking, Reason: l.Reason, Started: l.Started, Client: l.Client, Version: l.Version,
			FromStep: l.FromStep, Training: stamp(l.Training), LastReportSeq: l.LastReportSeq, Step: l.Step, AtTarget: l.AtTarget,
			Void: l.Void, TrainedWell: l.trainedWell, Metered: l.metered, Shards: l.Shards, HourPrice: l.hourPrice,
		})
	}
	return r
}

// Restore returns the state in a snapshot.
func Restore(snap *outbidv1.StateSnapshot) (*State, error) {
	trials := make([][]RestoredTrial, len(snap.GetSweeps()))
	for i, r := range snap.GetSweeps() {
		trials[i] = make([]RestoredTrial, len(r.GetTrials()))
		for j, t := range r.GetTrials() {
			trials[i][j] = RestoreTrial(t)
		}
	}
	return RestoreApart(snap, trials)
}

// RestoreApart returns the state in a snapshot whose trials, by sweep in the order of the sweeps, were restored apart.
func RestoreApart(snap *outbidv1.StateSnapshot, trials [][]RestoredTrial) (*State, error) {
	if err := checkFormat(snap.GetFormat(), ""); err != nil {
		return nil, err
	}
	st := New()
	st.Seq, st.Hash, st.Time = snap.GetSeq(), snap.GetHash(), from(snap.GetTime())
	st.NextLease, st.NextRound, st.Decider = snap.GetNextLeaseId(), snap.GetNextRound(), snap.GetDecider()
	maps.Copy(st.names, snap.GetNameCounters())
	for _, r := range snap.GetNodes() {
		st.restoreNode(r)
	}
	for i, r := range snap.GetSweeps() {
		s, err := st.restoreSweep(r, trials[i])
		if err != nil {
			return nil, fmt.Errorf("snapshot of sweep %s: %w", r.GetId(), err)
		}
		s.Order = int(r.GetOrder())
		st.addSweep(s)
		if shares(s) && !s.Done() {
			st.competing++
			st.weigh(s, 1)
		}
	}
	st.restoreDeleted(snap)
	st.restoreTenants(snap)
	st.restoreTotals(snap)
	st.prices, st.devicePrices = snap.GetPrices(), snap.GetDevicePrices()
	st.appSeconds, st.appsChanged = snap.GetAppSecondsCounted(), from(snap.GetAppSecondsAt())
	return st, nil
}

func (st *State) restoreSweep(r *outbidv1.SweepRecord, trials []RestoredTrial) (*Sweep, error) {
	s := &Sweep{
		ID: r.GetId(), Spec: r.GetSpec(), State: r.GetState(), Reason: r.GetReason(), Actor: r.GetActor(),
		StopActor: r.GetStopActor(), IdempotencyKey: r.GetIdempotencyKey(), Submitted: from(r.GetSubmitted()),
		Ended: from(r.GetEnded()), Best: -1, Steps: r.GetSteps(), DeviceSeconds: r.GetDeviceSeconds(),
		Notes: r.GetNotes(), tunerStatus: tunerStatus{r.GetTunerWaiting(), r.GetTunerExhausted()},
		refs: map[string]int{}, Trials: make([]*Trial, len(trials)), changeLog: changeLog{1, make([]change, 0, len(trials))},
		AppSecondsBefore: r.GetAppSecondsBefore(), Measured: measuredOf(r.GetMeasured()), Fairness: r.GetFairness(),
		countedAs: cmp.Or(r.GetCountedAs(), TenantOf(r.GetSpec())), LackNoted: r.GetLackNoted(), soups: soups{r.GetSoups()}, Admission: r.GetAdmission(),
		ReportBytes: r.GetReportBytes(), FailedBefore: r.GetFailedBefore(), Cost: r.GetCost(), Memory: r.GetMemory(),
		Annotation: r.GetAnnotation(),
	}
	s.compile()
	s.started, s.trained = st.restoreMarks(r.GetStartedOn()), st.restoreMarks(r.GetTrainedOn())
	for i, tr := range trials {
		t := tr.trial
		if int(t.Number) != i || t.State == trialNone || t.State > trialCancelled {
			return nil, broken("trial record %d is trial %d, %s", i, t.Number, TrialWord(t.State))
		}
		s.Trials[i] = t
		s.Counts[t.State]++
		for _, held := range tr.held {
			if err := st.restoreLease(s, t, held); err != nil {
				return nil, err
			}
		}
		s.indexTrial(t)
		st.restoreSlot(s, t, tr.slot)
		st.watch(s, t)
	}
	if err := s.order(r.GetQueued()); err != nil {
		return nil, err
	}
	return s, nil
}

// indexTrial rebuilds what is derived from the trials.
func (s *Sweep) indexTrial(t *Trial) {
	t.version = 1
	s.changes = append(s.changes, change{1, t.Number})
	if t.State == trialQueued {
		s.Queued = append(s.Queued, t.Number)
	}
	if len(t.Leases) > 0 {
		s.Running = append(s.Running, t.Number)
	}
	if t.Start != nil {
		s.refs[t.Start.GetKey()]++
	}
	for _, c := range t.Checkpoints {
		s.rank(t.Number, c)
	}
	s.CheckpointBytes += t.checkpointBytes()
	if s.Best < 0 && !math.IsNaN(t.Best) || s.Best >= 0 && better(t.Best, s.Trials[s.Best].Best, s.Maximise()) {
		s.Best = t.Number
	}
}

// order puts trials into the order in which they were queued, which is by time if queued is empty, and were given
// devices.
func (s *Sweep) order(queued []int32) error {
	if len(queued) == 0 {
		slices.SortFunc(s.Queued, byTime(s.Trials))
	} else {
		slices.Sort(s.Queued)
		if !slices.Equal(s.Queued, slices.Sorted(slices.Values(queued))) {
			return broken("sweep %s has the queue %v, and the trials %v wait", s.ID, queued, s.Queued)
		}
		s.Queued = slices.Clone(queued)
	}
	slices.SortFunc(s.Running, func(a, b int32) int {
		return cmp.Compare(s.Trials[a].Lead().ID, s.Trials[b].Lead().ID)
	})
	return nil
}

// RestoredTrial is a trial of a snapshot, with the records that its sweep and the nodes take part in.
type RestoredTrial struct {
	trial *Trial
	held  []*outbidv1.LeaseRecord
	slot  *outbidv1.ForkRound
}

// RestoreTrial restores a trial from its record. It keeps parts of the record, but neither the record nor its Trial.
func RestoreTrial(r *outbidv1.TrialRecord) RestoredTrial {
	return RestoredTrial{restoreTrial(r), r.GetHeld(), r.GetRound()}
}

func restoreTrial(r *outbidv1.TrialRecord) *Trial {
	v := r.GetTrial()
	var curve []Point
	for i, step := range r.GetCurveSteps() {
		curve = append(curve, Point{step, r.GetCurveValues()[i]})
	}
	return &Trial{
		LeaseCount: r.GetLeases(), Measured: measuredOf(r.GetMeasured()), Curve: curve,
		Number: v.GetNumber(), State: v.GetState(), Reason: v.GetReason(), Config: v.GetConfigJson(),
		Bracket: v.GetBracket(), Seed: r.GetSeed(), Step: v.GetStep(), UntilStep: v.GetUntilStep(),
		MaxStep: r.GetMaxStep(), Last: v.GetLast(), Attributes: v.GetAttributes(),
		Metric: orNaN(r.Metric), Best: orNaN(v.Best), BestStep: v.GetBestStep(),
		Created: from(v.GetCreated()), Queued: from(r.GetQueued()), Ended: from(v.GetEnded()),
		Restarts: v.GetRestarts(), Resumes: v.GetResumes(), Retries: v.GetRetries(), CopiedFrom: v.CopiedFrom, DeviceSeconds: v.GetDeviceSeconds(),
		Checkpoints: v.GetCheckpoints(), Start: r.GetStart(), AtTarget: r.GetAtTarget(), Pausing: r.GetPausing(),
		NaNNoted: r.GetNanNoted(), MetricStep: r.GetMetricStep(), NodeLosses: v.GetNodeLosses(), LostStep: r.GetLostStep(),
		Suspected: v.GetSuspected(), LastFailure: r.GetLastFailure(), ResumesAs: r.GetResumesAs(), Rollbacks: r.GetRollbacks(),
		FailedOtherwise: r.GetFailedOtherwise(), ForkAgain: r.GetForkAgain(),
		Slots: v.GetRounds(), Merges: v.GetMerges(), Probation: r.GetProbation(), DroppedMerges: r.GetDroppedMerges(),
		Avoided: avoidedOf(r.GetAvoided()),
	}
}

func orNaN(v *float64) float64 {
	if v == nil {
		return math.NaN()
	}
	return *v
}

func from(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}
