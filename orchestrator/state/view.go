package state

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// View returns the sweep as users see it. The caller adds what the state does not know: the outlook, and why trials
// wait.
func (st *State) View(s *Sweep) *outbidv1.Sweep {
	return s.view(st.Time, len(s.Trials), func(n int32) *Trial { return s.Trials[n] })
}

func (s *Sweep) view(at time.Time, trials int, trial func(int32) *Trial) *outbidv1.Sweep {
	v := &outbidv1.Sweep{
		Id: s.ID, Spec: s.Spec, State: s.State, Reason: s.Reason, Actor: s.Actor,
		Submitted: stamp(s.Submitted), Ended: stamp(s.Ended),
		Steps: s.Steps, DeviceSeconds: deviceSeconds(s, at, trial), Notes: slices.Clone(s.Notes),
		Counts: &outbidv1.TrialCounts{
			Queued: s.Counts[trialQueued], Running: s.Counts[trialRunning], Paused: s.Counts[trialPaused],
			Completed: s.Counts[trialCompleted], Stopped: s.Counts[trialStopped], Failed: s.Counts[trialFailed],
			Cancelled: s.Counts[trialCancelled], Total: int32(trials),
		},
	}
	if s.State == sweepPaused {
		for _, n := range s.Queued {
			if s.heldUp(trial(n)) {
				v.Counts.Queued--
				v.Counts.Paused++
			}
		}
	}
	v.Fairness, v.Soups, v.Admission, v.Memory = s.Fairness, s.Soups, s.Admission, summary(s.Memory).GetSweeps()
	v.Annotation = s.Annotation
	if s.Best >= 0 {
		v.Best = s.trialView(at, trial(s.Best))
	}
	return v
}

// heldUp reports whether a trial gets no device because its sweep is paused. Users see it as paused, the tuner and
// the policy as queued. A trial whose forks are being averaged is not paused yet.
func (s *Sweep) heldUp(t *Trial) bool {
	return s.State == sweepPaused && t.State == trialQueued && t.Slot == nil
}

// DeviceSecondsAt returns the device-seconds of the sweep's leases up to a time.
func (s *Sweep) DeviceSecondsAt(now time.Time) float64 {
	return deviceSeconds(s, now, func(n int32) *Trial { return s.Trials[n] })
}

// deviceSeconds includes running leases up to the newest event.
func deviceSeconds(s *Sweep, at time.Time, trial func(int32) *Trial) float64 {
	total := s.DeviceSeconds
	for _, n := range s.Running {
		for _, l := range trial(n).Leases {
			total += l.DeviceSeconds(at)
		}
	}
	return total
}

// DeviceSeconds returns the cost of the lease up to a time.
func (l *Lease) DeviceSeconds(now time.Time) float64 {
	return max(0, now.Sub(l.Granted).Seconds()) * float64(l.Size())
}

// TrialView returns the trial as users see it.
func (st *State) TrialView(s *Sweep, t *Trial) *outbidv1.Trial { return s.trialView(st.Time, t) }

func (s *Sweep) trialView(at time.Time, t *Trial) *outbidv1.Trial {
	v := trialSummary(s, at, t)
	v.Config = configStruct(t.Config)
	return v
}

// trialSummary returns the trial's view without its config as a message, which takes most of the time.
func trialSummary(s *Sweep, at time.Time, t *Trial) *outbidv1.Trial {
	v := t.record(s.ID)
	if s.heldUp(t) {
		v.State = trialPaused
	}
	if t.State == trialFailed && v.GetRestarts() > 0 && !t.FailedOtherwise {
		v.Restarts-- // no start followed its last failure
	}
	for _, l := range t.Leases {
		v.DeviceSeconds += l.DeviceSeconds(at)
		v.Leases = append(v.Leases, l.view())
	}
	if l := t.Lead(); l != nil {
		if len(l.Places) > 0 {
			v.Node, v.Devices = l.Places[0].Node, l.Places[0].Devices
		}
		if t.Last.GetTrainSeconds() > 0 && l.LastReportSeq > 0 {
			v.StepsPerSecond = float64(t.Step-l.FromStep) / t.Last.GetTrainSeconds()
		}
	}
	if t.Slot != nil {
		v.Round, v.StepsPerSecond = t.slotView(), t.Slot.Rate()
	}
	return v
}

// view returns the lease as users see it.
func (l *Lease) view() *outbidv1.TrialLease {
	v := &outbidv1.TrialLease{
		LeaseId: l.ID, Holder: "workers", Client: l.Client, State: leaseWord(l.state()), Since: stamp(l.Granted), TermEnd: stamp(l.TermEnd),
		FromStep: l.FromStep, Step: l.Step,
	}
	if l.Holder == Client {
		v.Holder = "client"
	}
	v.Places = l.placesView()
	return v
}

// placesView returns the lease's places as users see them.
func (l *Lease) placesView() []*outbidv1.TrialPlace {
	var all []*outbidv1.TrialPlace
	for i, p := range l.Places {
		all = append(all, &outbidv1.TrialPlace{Node: p.Node, Devices: p.Devices, Type: l.types[i], Ended: p.Ended})
	}
	return all
}

func (t *Trial) record(sweep string) *outbidv1.Trial {
	v := &outbidv1.Trial{
		Sweep: sweep, Number: t.Number, State: t.State, Reason: t.Reason, ConfigJson: t.Config,
		Step: t.Step, UntilStep: t.UntilStep, Last: t.Last, Attributes: t.Attributes, BestStep: t.BestStep,
		Created: stamp(t.Created), Ended: stamp(t.Ended), Restarts: t.Restarts, Resumes: t.Resumes, Retries: t.Retries,
		DeviceSeconds: t.DeviceSeconds, Bracket: t.Bracket, Checkpoints: slices.Clone(t.Checkpoints),
		NodeLosses: t.NodeLosses, Suspected: t.Suspected, Rounds: t.Slots, Merges: t.Merges,
		CopiedFrom: t.CopiedFrom,
	}
	v.Best = number(t.Best)
	return v
}

func number(v float64) *float64 {
	if math.IsNaN(v) {
		return nil
	}
	return &v
}

func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func newNote(at time.Time, e *outbidv1.Note) *outbidv1.SweepNote {
	return &outbidv1.SweepNote{Time: stamp(at), Level: e.GetLevel(), Text: e.GetText(), Trial: e.Trial}
}

func configStruct(text string) *structpb.Struct {
	var values map[string]any
	d := json.NewDecoder(strings.NewReader(text))
	if err := d.Decode(&values); err != nil {
		return nil
	}
	s, err := structpb.NewStruct(values)
	if err != nil {
		return nil
	}
	return s
}

// NodeView returns the node as users see it.
func (n *Node) NodeView() *outbidv1.Node {
	v := &outbidv1.Node{Info: n.Info, State: n.State, Reason: n.Reason, Faults: n.Faults}
	for i, l := range n.Holders {
		if l != nil {
			v.Uses = append(v.Uses, &outbidv1.DeviceUse{Device: int32(i), Fork: l.Fork(), TermEnd: stamp(l.TermEnd)})
		}
	}
	return v
}

// Fork identifies the fork that runs under the lease.
func (l *Lease) Fork() *outbidv1.ForkRef {
	return &outbidv1.ForkRef{Sweep: l.Sweep, Trial: l.Trial, LeaseId: l.ID}
}

// BestTrials lists up to n trials by the metric, best first, starting at offset. Trials without a metric come last.
func (s *Sweep) BestTrials(n, offset int) []*Trial {
	sorted := slices.Clone(s.Trials)
	s.sortBest(sorted)
	return sorted[min(len(sorted), offset):min(len(sorted), offset+n)]
}

// sortBest puts the best trial first, and trials without a metric last.
func (s *Sweep) sortBest(trials []*Trial) {
	slices.SortStableFunc(trials, func(a, b *Trial) int {
		switch {
		case better(a.Best, b.Best, s.Maximise()):
			return -1
		case better(b.Best, a.Best, s.Maximise()):
			return 1
		default:
			return int(a.Number - b.Number)
		}
	})
}
