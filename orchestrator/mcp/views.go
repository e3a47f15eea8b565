package mcp

import (
	"strings"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// sweepView is a sweep.
type sweepView struct {
	ID            string            `json:"id"`
	Page          string            `json:"page,omitempty" jsonschema:"its web page, for the user"`
	Tenant        string            `json:"tenant"`
	Actor         string            `json:"actor,omitempty" jsonschema:"the user who submitted it"`
	State         string            `json:"state" jsonschema:"running, paused, stopping, done, stopped or failed"`
	Reason        string            `json:"reason,omitempty" jsonschema:"why it is in that state"`
	Waiting       string            `json:"waiting,omitempty" jsonschema:"why trials wait for devices"`
	Metric        string            `json:"metric" jsonschema:"the metric that is optimised"`
	Mode          string            `json:"mode" jsonschema:"max or min"`
	Objectives    []string          `json:"objectives,omitempty" jsonschema:"further metrics with their modes"`
	Tuner         string            `json:"tuner"`
	Submitted     *time.Time        `json:"submitted,omitempty"`
	Ended         *time.Time        `json:"ended,omitempty"`
	Trials        countsView        `json:"trials"`
	PlannedTrials int32             `json:"planned_trials,omitempty" jsonschema:"absent if unbounded"`
	Steps         int64             `json:"steps" jsonschema:"steps trained by all trials"`
	PlannedSteps  int64             `json:"planned_steps,omitempty" jsonschema:"absent if unbounded"`
	DeviceSeconds number            `json:"device_seconds"`
	Cost          *number           `json:"cost,omitempty" jsonschema:"absent if the server has no prices"`
	CostLimit     number            `json:"cost_limit,omitempty"`
	Currency      string            `json:"currency,omitempty"`
	Best          *bestView         `json:"best,omitempty" jsonschema:"the best trial; absent before the first report"`
	Labels        map[string]string `json:"labels,omitempty"`
	annotationView
}

// countsView counts trials by state.
type countsView struct {
	Total     int32 `json:"total"`
	Queued    int32 `json:"queued"`
	Running   int32 `json:"running"`
	Paused    int32 `json:"paused"`
	Completed int32 `json:"completed"`
	Pruned    int32 `json:"pruned" jsonschema:"stopped early by the tuner or a limit"`
	Stopped   int32 `json:"stopped" jsonschema:"stopped with the sweep"`
	Failed    int32 `json:"failed"`
}

// ended returns how many trials have ended.
func (c countsView) ended() int32 { return c.Completed + c.Pruned + c.Stopped + c.Failed }

// bestView is the best trial of a sweep.
type bestView struct {
	Trial  int32          `json:"trial"`
	Metric number         `json:"metric"`
	Step   int64          `json:"step" jsonschema:"the step of that value"`
	Config map[string]any `json:"config"`
}

func (c *call) viewSweep(s *outbidv1.Sweep) sweepView {
	v := sweepView{
		ID: s.GetId(), Tenant: s.GetSpec().GetTenant(), Actor: cleanLine(s.GetActor(), maxName), State: sweepState(s),
		Reason: cleanLine(s.GetReason(), maxLine), Waiting: cleanLine(s.GetWaiting(), maxLine),
		Metric: cleanLine(s.GetSpec().GetMetric(), maxName), Mode: s.GetSpec().GetMode(), Tuner: tunerName(s.GetSpec().GetTuner()),
		Submitted: timeOf(s.GetSubmitted()), Ended: timeOf(s.GetEnded()), Trials: viewCounts(s.GetCounts()),
		PlannedTrials: s.GetOutlook().GetTrials(), Steps: s.GetSteps(), PlannedSteps: s.GetOutlook().GetSteps(),
		DeviceSeconds: number(s.GetDeviceSeconds()), Labels: texts(s.GetSpec().GetLabels()),
		annotationView: viewAnnotation(s.GetAnnotation(), limits.Description),
	}
	if v.Tenant == "" {
		v.Tenant = "default"
	}
	if s.Cost != nil {
		v.Cost, v.CostLimit = new(number(s.GetCost())), number(s.GetSpec().GetLimits().GetCost())
		v.Currency = cleanLine(s.GetCurrency(), maxName)
	}
	if c.Page != nil {
		v.Page = c.Page(s.GetId())
	}
	for i, o := range s.GetSpec().GetObjectives() {
		if i < maxValues {
			v.Objectives = append(v.Objectives, o.GetMode()+" "+cleanLine(o.GetMetric(), maxName))
		}
	}
	if best := s.GetBest(); best != nil && best.Best != nil {
		v.Best = &bestView{Trial: best.GetNumber(), Metric: number(best.GetBest()), Step: best.GetBestStep(), Config: configOf(best)}
	}
	return v
}

func viewCounts(c *outbidv1.TrialCounts) countsView {
	return countsView{
		Total: c.GetTotal(), Queued: c.GetQueued(), Running: c.GetRunning(), Paused: c.GetPaused(), Completed: c.GetCompleted(),
		Pruned: c.GetStopped(), Stopped: c.GetCancelled(), Failed: c.GetFailed(),
	}
}

// trialView is a trial in a list.
type trialView struct {
	Trial      int32             `json:"trial" jsonschema:"its number in the sweep"`
	State      string            `json:"state" jsonschema:"queued, running, paused, completed, pruned (by its tuner or a limit), stopped (with its sweep) or failed"`
	Reason     string            `json:"reason,omitempty" jsonschema:"why it is in that state"`
	Metric     *number           `json:"metric,omitempty" jsonschema:"best value of the sweep's metric; absent before the first report"`
	MetricStep int64             `json:"metric_step,omitempty" jsonschema:"the step of that value"`
	Step       int64             `json:"step" jsonschema:"steps done"`
	UntilStep  int64             `json:"until_step,omitempty" jsonschema:"step at which it ends; absent if its code decides"`
	Last       map[string]number `json:"last,omitempty" jsonschema:"metrics of its newest report"`
	Node       string            `json:"node,omitempty" jsonschema:"where it runs"`
	Restarts   int32             `json:"restarts,omitempty" jsonschema:"how often its process was started again after a failure"`
	Config     map[string]any    `json:"config" jsonschema:"parameters by dotted path"`
}

func viewTrial(t *outbidv1.Trial) trialView {
	v := trialView{
		Trial: t.GetNumber(), State: state.TrialWord(t.GetState()), Reason: cleanLine(t.GetReason(), maxLine), Step: t.GetStep(),
		UntilStep: t.GetUntilStep(), Last: numbers(t.GetLast().GetMetrics()), Node: cleanLine(t.GetNode(), maxName),
		Restarts: t.GetRestarts(), Config: configOf(t),
	}
	if t.Best != nil {
		v.Metric, v.MetricStep = new(number(t.GetBest())), t.GetBestStep()
	}
	return v
}

// noteView is a note of a sweep.
type noteView struct {
	Time  *time.Time `json:"time,omitempty"`
	Level string     `json:"level"`
	Text  string     `json:"text"`
	Trial *int32     `json:"trial,omitempty"`
}

// viewNotes returns the newest notes, at most limit.
func viewNotes(s *outbidv1.Sweep, limit int) []noteView {
	all := s.GetNotes()
	var notes []noteView
	for _, n := range all[max(0, len(all)-limit):] {
		notes = append(notes, noteView{timeOf(n.GetTime()), n.GetLevel(), cleanLine(n.GetText(), maxLine), n.Trial})
	}
	return notes
}

// sweepState returns a sweep's state as users read it.
func sweepState(s *outbidv1.Sweep) string {
	return strings.ToLower(strings.TrimPrefix(s.GetState().String(), "SWEEP_STATE_"))
}

// sweepStates are the valid states in a selection of sweeps.
func sweepStates() []string {
	return []string{"running", "paused", "stopping", "done", "stopped", "failed"}
}

// trialStates are the valid states in a selection of trials.
func trialStates() []string {
	return []string{"queued", "running", "paused", "completed", "pruned", "stopped", "failed"}
}

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
