package cli

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// The structs below are the output of -o json. They are stable: fields are only added. The doc tags become the
// reference in docs/reference/cli.md. Messages that protojson prints in the same form are
// printed by it (messages). It would change the others: they have columns that the CLI computes, states in words, 64-bit
// numbers (strings for protojson), times with other digits, or another order.

// sweepView is a sweep.
type sweepView struct {
	ID            string            `json:"id" doc:"id of the sweep, such as digits-1"`
	Name          string            `json:"name" doc:"name from the sweep's file"`
	Tenant        string            `json:"tenant" doc:"tenant that owns it"`
	Actor         string            `json:"actor" doc:"user who submitted it"`
	State         string            `json:"state" doc:"running, paused, stopping, done, stopped or failed"`
	Reason        string            `json:"reason" doc:"why it is in that state"`
	Waiting       string            `json:"waiting" doc:"why trials wait for devices, if any do"`
	Metric        string            `json:"metric" doc:"metric that is optimised"`
	Mode          string            `json:"mode" doc:"max or min"`
	Tuner         string            `json:"tuner" doc:"name of its tuner, such as hyperband, or plugin"`
	Submitted     *time.Time        `json:"submitted" doc:"time in UTC"`
	Ended         *time.Time        `json:"ended" doc:"time in UTC; null until then"`
	Seconds       number            `json:"elapsed_seconds" doc:"seconds from submission to the end, or until now"`
	Counts        countsView        `json:"counts" doc:"trials by state: queued, running, paused, completed, pruned, stopped, failed, total"`
	PlannedTrials *int32            `json:"planned_trials" doc:"total trials that the tuner plans; null if unbounded"`
	PlannedSteps  *int64            `json:"planned_steps" doc:"total steps; null if unbounded"`
	Steps         int64             `json:"steps" doc:"steps trained so far by all trials, repeated ones counted once"`
	DeviceSeconds number            `json:"device_seconds" doc:"device-seconds used"`
	Cost          *number           `json:"cost" doc:"cost of its leases at the prices of the server; null without prices"`
	Currency      string            `json:"currency" doc:"currency of the cost"`
	Fairness      *fairnessView     `json:"fairness" doc:"rho (forecast over alone), alone_seconds, forecast_seconds, mean_sweeps, and auction: round, time, rho and alone_seconds after the newest auction; null once the sweep has ended"`
	Admission     *admissionView    `json:"admission" doc:"what a policy with admission (oasis) promises it, or why it does not: kind (measuring, admitted, waiting, rejected, broken, over), text, least_workers, most_workers, worker_devices, begins, ends, promised, worth, cost, again (when it would be admitted), schedule (begins, ends, type, workers); null under other policies"`
	Best          *bestView         `json:"best" doc:"the best trial so far: trial, metric, step, config; null before the first report"`
	Soups         []soupView        `json:"soups" doc:"stored averages of its checkpoints, oldest first: number, metric, bytes, sha256, time, actor, trials (those averaged), tried"`
	Notes         []noteView        `json:"notes" doc:"newest notes, oldest first: time, level, text, trial"`
	Memory        []memoryView      `json:"memory" doc:"earlier sweeps that its sampler started from: sweep, trials"`
	Labels        map[string]string `json:"labels" doc:"labels from the sweep's file"`
	Description   string            `json:"description" doc:"description that 'outbid annotate' gave it"`
	Tags          []string          `json:"tags" doc:"its tags, sorted"`
}

type memoryView struct {
	Sweep  string `json:"sweep"`
	Trials int32  `json:"trials"`
}

type fairnessView struct {
	Rho             number `json:"rho"`
	AloneSeconds    number `json:"alone_seconds"`
	ForecastSeconds number `json:"forecast_seconds"`
	MeanSweeps      number `json:"mean_sweeps"`
	// Auction has the results of the newest auction, or is nil.
	Auction *faredView `json:"auction"`
}

type faredView struct {
	Round        uint64     `json:"round"`
	Time         *time.Time `json:"time"`
	Rho          number     `json:"rho"`
	AloneSeconds number     `json:"alone_seconds"`
}

type countsView struct {
	Queued    int32 `json:"queued"`
	Running   int32 `json:"running"`
	Paused    int32 `json:"paused"`
	Completed int32 `json:"completed"`
	Pruned    int32 `json:"pruned"`
	Stopped   int32 `json:"stopped"`
	Failed    int32 `json:"failed"`
	Total     int32 `json:"total"`
}

type bestView struct {
	Trial  int32           `json:"trial"`
	Metric number          `json:"metric"`
	Step   int64           `json:"step"`
	Config json.RawMessage `json:"config"`
}

type noteView struct {
	Time  *time.Time `json:"time"`
	Level string     `json:"level"`
	Text  string     `json:"text"`
	Trial *int32     `json:"trial"`
}

func viewSweep(s *outbidv1.Sweep, now time.Time) sweepView {
	v := sweepView{
		ID: s.GetId(), Name: s.GetSpec().GetName(), Tenant: s.GetSpec().GetTenant(), Actor: s.GetActor(),
		State: sweepState(s.GetState()), Reason: s.GetReason(), Waiting: s.GetWaiting(),
		Metric: s.GetSpec().GetMetric(), Mode: s.GetSpec().GetMode(), Tuner: tunerName(s.GetSpec().GetTuner()),
		Submitted: viewTime(s.GetSubmitted()), Ended: viewTime(s.GetEnded()),
		Seconds: number(elapsedSeconds(s, now)), Counts: viewCounts(s.GetCounts()),
		Steps: s.GetSteps(), DeviceSeconds: number(s.GetDeviceSeconds()), Best: viewBest(s.GetBest()),
		Soups: []soupView{}, Notes: []noteView{}, Labels: s.GetSpec().GetLabels(), Memory: []memoryView{},
		Description: s.GetAnnotation().GetDescription(), Tags: append([]string{}, s.GetAnnotation().GetTags()...),
	}
	for _, one := range s.GetMemory() {
		v.Memory = append(v.Memory, memoryView{one.GetSweep(), one.GetTrials()})
	}
	if v.Tenant == "" {
		v.Tenant = "default"
	}
	if s.Cost != nil {
		v.Cost, v.Currency = new(number(s.GetCost())), s.GetCurrency()
	}
	if f := s.GetFairness(); f != nil {
		v.Fairness = &fairnessView{
			Rho: number(f.GetRho()), AloneSeconds: number(f.GetAloneSeconds()), ForecastSeconds: number(f.GetForecastSeconds()),
			MeanSweeps: number(f.GetMeanSweeps()),
		}
		if last := f.GetAuction(); last != nil {
			v.Fairness.Auction = &faredView{last.GetRound(), viewTime(last.GetTime()), number(last.GetRho()), number(last.GetAloneSeconds())}
		}
	}
	v.Admission = viewAdmission(s.GetAdmission())
	if v.Labels == nil {
		v.Labels = map[string]string{}
	}
	if o := s.GetOutlook(); o.GetTrials() > 0 {
		v.PlannedTrials = new(o.GetTrials())
	}
	if o := s.GetOutlook(); o.GetSteps() > 0 {
		v.PlannedSteps = new(o.GetSteps())
	}
	for _, soup := range s.GetSoups() {
		v.Soups = append(v.Soups, viewSoup(soup))
	}
	for _, n := range s.GetNotes() {
		v.Notes = append(v.Notes, viewNote(n))
	}
	return v
}

func viewNote(n *outbidv1.SweepNote) noteView {
	v := noteView{Time: viewTime(n.GetTime()), Level: n.GetLevel(), Text: n.GetText()}
	if n.Trial != nil {
		v.Trial = new(n.GetTrial())
	}
	return v
}

func viewCounts(c *outbidv1.TrialCounts) countsView {
	return countsView{
		Queued: c.GetQueued(), Running: c.GetRunning(), Paused: c.GetPaused(), Completed: c.GetCompleted(),
		Pruned: c.GetStopped(), Stopped: c.GetCancelled(), Failed: c.GetFailed(), Total: c.GetTotal(),
	}
}

func viewBest(t *outbidv1.Trial) *bestView {
	if t == nil || t.Best == nil {
		return nil
	}
	return &bestView{Trial: t.GetNumber(), Metric: number(t.GetBest()), Step: t.GetBestStep(), Config: configOf(t)}
}

func viewTime(ts *timestamppb.Timestamp) *time.Time {
	if ts == nil {
		return nil
	}
	return new(ts.AsTime())
}

// elapsedSeconds returns the time from submission to the end, or until now.
func elapsedSeconds(s *outbidv1.Sweep, now time.Time) float64 {
	if s.GetSubmitted() == nil {
		return 0
	}
	end := now
	if s.GetEnded() != nil {
		end = s.GetEnded().AsTime()
	}
	return max(0, end.Sub(s.GetSubmitted().AsTime()).Seconds())
}

func sweepState(s outbidv1.SweepState) string { return lowerEnum(s.String(), "SWEEP_STATE_") }

// lowerEnum returns an enum value's name in lower case without its prefix.
func lowerEnum(name, prefix string) string { return strings.ToLower(strings.TrimPrefix(name, prefix)) }

// tunerName returns the tuner's name as in a sweep's file.
func tunerName(t *outbidv1.Tuner) string {
	m := t.ProtoReflect()
	if !m.IsValid() {
		return ""
	}
	field := m.WhichOneof(m.Descriptor().Oneofs().ByName("kind"))
	if field == nil {
		return ""
	}
	return string(field.Name())
}

// sortedKeys returns a map's keys in order.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
