package cli

import (
	"fmt"
	"math"
	"strings"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

type forkSlotView struct {
	FromStep       int64          `json:"from_step"`
	Began          *time.Time     `json:"began"`
	Ends           *time.Time     `json:"ends"`
	Forks          []forkPartView `json:"forks"`
	ConsolidatesOn string         `json:"consolidates_on"`
	Attempt        int32          `json:"attempt"`
}

type forkPartView struct {
	LeaseID  uint64      `json:"lease_id"`
	Places   []placeView `json:"places"`
	State    string      `json:"state"`
	Share    int64       `json:"share"`
	Steps    int64       `json:"steps"`
	Counted  int64       `json:"counted"`
	Rate     number      `json:"steps_per_second"`
	Forecast number      `json:"forecast_steps_per_second"`
}

type mergeView struct {
	Round      int32          `json:"round"`
	Began      *time.Time     `json:"began"`
	Time       *time.Time     `json:"time"`
	FromStep   int64          `json:"from_step"`
	Step       int64          `json:"step"`
	Forks      []forkPartView `json:"forks"`
	AveragedOn string         `json:"averaged_on"`
	Reason     string         `json:"reason"`
	Verdict    string         `json:"verdict"`
	Metric     *number        `json:"metric"`
	BestMetric *number        `json:"best_metric"`
}

func viewForkSlot(r *outbidv1.TrialRound) *forkSlotView {
	if r == nil {
		return nil
	}
	return &forkSlotView{
		FromStep: r.GetFromStep(), Began: viewTime(r.GetBegan()), Ends: viewTime(r.GetEnds()), Forks: viewForks(r.GetForks()),
		ConsolidatesOn: r.GetConsolidatesOn(), Attempt: r.GetAttempt(),
	}
}

func viewMerges(merges []*outbidv1.TrialMerge) []mergeView {
	all := make([]mergeView, len(merges))
	for i, m := range merges {
		all[i] = mergeView{
			Round: m.GetRound(), Began: viewTime(m.GetBegan()), Time: viewTime(m.GetTime()), FromStep: m.GetFromStep(), Step: m.GetStep(),
			Forks: viewForks(m.GetForks()), AveragedOn: m.GetAveragedOn(), Reason: m.GetReason(), Verdict: verdictWord(m.GetVerdict()),
		}
		if m.Metric != nil {
			all[i].Metric = new(number(m.GetMetric()))
		}
		if m.BestMetric != nil {
			all[i].BestMetric = new(number(m.GetBestMetric()))
		}
	}
	return all
}

func viewForks(forks []*outbidv1.TrialFork) []forkPartView {
	all := make([]forkPartView, len(forks))
	for i, f := range forks {
		all[i] = forkPartView{
			LeaseID: f.GetLeaseId(), Places: viewPlaces(f.GetPlaces()), State: f.GetState(), Share: f.GetShare(), Steps: f.GetSteps(),
			Counted: f.GetCounted(), Rate: number(f.GetStepsPerSecond()), Forecast: number(f.GetForecastStepsPerSecond()),
		}
	}
	return all
}

// wherePlaces returns a lease's places on one line, each with its device type.
func wherePlaces(places []placeView) string {
	where := make([]string, len(places))
	for i, p := range places {
		if where[i] = p.String(); p.Type != "" {
			where[i] += " (" + clean(p.Type) + ")"
		}
		if p.Ended {
			where[i] += " ended"
		}
	}
	return strings.Join(where, ", ")
}

// showForkSlot lists the forks of the current fork slot of a trial.
func (q *queryCommands) showForkSlot(v trialView) {
	r := v.Round
	if r == nil {
		return
	}
	head := fmt.Sprintf("fork slot %d, from step %s", v.Rounds+1, formatCount(r.FromStep))
	switch {
	case r.ConsolidatesOn != "":
		head += ": " + clean(r.ConsolidatesOn) + " averages what they saved"
		if r.Attempt > 1 {
			head += fmt.Sprintf(", try %d", r.Attempt)
		}
	case r.Ends != nil:
		head += ", until " + q.when(r.Ends) + " at the latest"
	}
	q.printf("\n%s\n", head)
	t := table{
		indent: "  ", header: []string{"FORK", "STATE", "STEPS", "SAVED", "STEPS/S", "FORECAST", "WHERE"}, width: q.columns(),
		spare: []string{"SAVED", "FORECAST"},
	}
	for i, f := range r.Forks {
		t.rows = append(t.rows, []string{
			fmt.Sprint(i), f.State, f.ofShare(), formatCount(f.Counted), formatRate(f.Rate), f.forecast(), wherePlaces(f.Places),
		})
	}
	t.write(q.stdout)
}

// showMerges lists the newest fork slots of a trial that have ended, newest first.
func (q *queryCommands) showMerges(v trialView) {
	if len(v.Merges) == 0 {
		return
	}
	head := "fork slots that have ended"
	if int(v.Rounds) > len(v.Merges) {
		head += fmt.Sprintf(", the newest %d of %s", len(v.Merges), formatCount(int64(v.Rounds)))
	}
	q.printf("\n%s\n", head)
	for i := len(v.Merges) - 1; i >= 0; i-- {
		m := v.Merges[i]
		q.printf("  %s  %s\n", q.when(m.Time), m.line())
		t := table{
			indent: "    ", header: []string{"FORK", "COUNTED", "STEPS/S", "FORECAST", "WHERE"}, width: q.columns(),
			spare: []string{"FORECAST"},
		}
		for k, f := range m.Forks {
			counted := formatCount(f.Counted) + "/" + formatCount(f.Share)
			t.rows = append(t.rows, []string{fmt.Sprint(k), counted, formatRate(f.Rate), f.forecast(), wherePlaces(f.Places)})
		}
		t.write(q.stdout)
	}
}

// line returns the result of a fork slot.
func (m *mergeView) line() string {
	how := clean(m.Reason)
	if m.AveragedOn != "" {
		how = "averaged on " + clean(m.AveragedOn) + m.judged()
	}
	return fmt.Sprintf("fork slot %d: step %s to %s, %s", m.Round, formatCount(m.FromStep), formatCount(m.Step), how)
}

// verdictWord returns the verdict on an average: pending, kept or dropped, or "" if it is not compared.
func verdictWord(v outbidv1.MergeVerdict) string {
	if v == outbidv1.MergeVerdict_MERGE_VERDICT_UNSPECIFIED {
		return ""
	}
	return strings.ToLower(strings.TrimPrefix(v.String(), "MERGE_VERDICT_"))
}

// judged returns whether an average was kept, and the values that were compared.
func (m *mergeView) judged() string {
	if m.Verdict == "" || m.BestMetric == nil {
		return ""
	}
	best := formatMetric(float64(*m.BestMetric))
	switch {
	case m.Metric != nil:
		return fmt.Sprintf(", %s: %s, and the best fork %s", m.Verdict, formatMetric(float64(*m.Metric)), best)
	case m.Verdict == "pending":
		return ", to be judged by its first report: the best fork had " + best
	default:
		return ", " + m.Verdict + ": nothing was reported of it alone"
	}
}

// ofShare returns how many of its steps a fork has done.
func (f *forkPartView) ofShare() string { return formatCount(f.Steps) + "/" + formatCount(f.Share) }

// forecast returns a fork's forecast rate and its error.
func (f *forkPartView) forecast() string {
	if f.Forecast <= 0 {
		return "-"
	}
	text := formatRate(f.Forecast)
	if f.Rate > 0 {
		text += fmt.Sprintf(" (%+d %%)", int64(math.Round(100*(float64(f.Forecast/f.Rate)-1))))
	}
	return text
}

func formatRate(r number) string {
	if r <= 0 {
		return "-"
	}
	return formatMetric(roundRate(float64(r)))
}

// forkRows returns the rows below a trial's row in the table of running trials: its forks, and the newest fork slot
// that ended.
func forkRows(t *outbidv1.Trial) [][]string {
	var rows [][]string
	for _, f := range viewForks(t.GetRound().GetForks()) {
		rows = append(rows, []string{"", f.ofShare(), f.State, formatRate(f.Rate), wherePlaces(f.Places), "fork"})
	}
	if len(rows) == 0 {
		return nil
	}
	if merges := t.GetMerges(); len(merges) > 0 {
		m := merges[len(merges)-1]
		rows = append(rows, []string{"", formatCount(m.GetStep()), "-", "-", "-", fmt.Sprintf("where round %d ended", m.GetRound())})
	}
	return rows
}
