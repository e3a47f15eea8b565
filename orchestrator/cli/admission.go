package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize/english"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

type admissionView struct {
	Kind          string        `json:"kind"`
	Text          string        `json:"text"`
	Least         int32         `json:"least_workers"`
	Most          int32         `json:"most_workers"`
	WorkerDevices int32         `json:"worker_devices"`
	Begins        *time.Time    `json:"begins"`
	Ends          *time.Time    `json:"ends"`
	Promised      *time.Time    `json:"promised"`
	Worth         number        `json:"worth"`
	Cost          number        `json:"cost"`
	Again         *time.Time    `json:"again"`
	Schedule      []workersView `json:"schedule"`
}

type workersView struct {
	Begins  *time.Time `json:"begins"`
	Ends    *time.Time `json:"ends"`
	Type    string     `json:"type"`
	Workers int32      `json:"workers"`
}

func admissionKind(k outbidv1.AdmissionKind) string {
	return strings.ToLower(strings.TrimPrefix(k.String(), "ADMISSION_KIND_"))
}

func viewAdmission(a *outbidv1.Admission) *admissionView {
	if a == nil {
		return nil
	}
	v := &admissionView{
		Kind: admissionKind(a.GetKind()), Text: a.GetText(), Least: a.GetLeast(), Most: a.GetMost(), WorkerDevices: a.GetWorkerDevices(),
		Begins: viewTime(a.GetBegins()), Ends: viewTime(a.GetEnds()), Promised: viewTime(a.GetPromised()), Worth: number(a.GetWorth()),
		Cost: number(a.GetCost()), Again: viewTime(a.GetAgain()), Schedule: []workersView{},
	}
	for _, w := range a.GetSchedule() {
		v.Schedule = append(v.Schedule, workersView{viewTime(w.GetBegins()), viewTime(w.GetEnds()), w.GetType(), w.GetWorkers()})
	}
	return v
}

// admissionWord returns a sweep's admission for a list.
func admissionWord(v *admissionView) string {
	switch {
	case v == nil:
		return "-"
	case v.Kind == "broken":
		return "late"
	}
	return v.Kind
}

// admissionLine describes a sweep's admission, with local times.
func (q *queryCommands) admissionLine(of *outbidv1.Admission) string {
	v := viewAdmission(of)
	if v == nil {
		return ""
	}
	switch v.Kind {
	case "admitted":
		return fmt.Sprintf("admitted: %d to %s from %s, ends %s, payoff %s", v.Least, english.Plural(int(v.Most), "worker", ""), q.when(v.Begins), q.when(v.Ends),
			formatMetric(float64(v.Worth-v.Cost)))
	case "waiting":
		text := fmt.Sprintf("not admitted now: it would cost %s and is worth %s", formatMetric(float64(v.Cost)), formatMetric(float64(v.Worth)))
		if v.Cost == 0 {
			return clean(v.Text)
		}
		if v.Again != nil {
			return text + "; would be admitted at " + q.when(v.Again)
		}
		return text + "; at these prices it would not be admitted later either"
	default:
		return clean(v.Text)
	}
}

// printSchedule prints the workers promised to a sweep.
func (q *queryCommands) printSchedule(of *outbidv1.Admission) {
	v := viewAdmission(of)
	if v == nil || len(v.Schedule) == 0 {
		return
	}
	q.printf("\npromised\n")
	t := table{indent: "  ", header: []string{"FROM", "TO", "TYPE", "WORKERS", "DEVICES"}}
	for _, w := range v.Schedule {
		t.rows = append(t.rows, []string{q.when(w.Begins), q.when(w.Ends), clean(w.Type), strconv.Itoa(int(w.Workers)), strconv.Itoa(int(w.Workers * max(1, v.WorkerDevices)))})
	}
	t.write(q.stdout)
}
