package trace

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"
)

func outbidColumns() []string {
	return []string{
		"id", "tenant", "user", "submit_s", "min_gpus", "max_gpus", "share", "gpu_types", "nodes", "duration_s",
		"measured_on", "total_steps", "model", "weight", "slo", "status", "cpus", "memory_bytes",
		"app", "app_tuner", "app_category", "app_eta", "app_min_steps", "app_max_steps", "app_grow", "loss", "utility",
	}
}

// WriteCSV writes Outbid's CSV: a header and one job a row, with the settings of its app. gpu_types are joined by
// ; loss is start;floor;scale;power and utility priority;decay;target. Unknown values are empty. Name, source, the
// tenants' weights, rates and forks are omitted; the JSON format has everything.
func (t *Trace) WriteCSV(w io.Writer) error {
	out := csv.NewWriter(w)
	apps := make(map[string]App, len(t.Apps))
	for _, a := range t.Apps {
		apps[a.ID] = a
	}
	if err := out.Write(outbidColumns()); err != nil {
		return fmt.Errorf("write the trace: %w", err)
	}
	for i := range t.Jobs {
		if err := out.Write(t.Jobs[i].cells(apps)); err != nil {
			return fmt.Errorf("write job %s: %w", t.Jobs[i].ID, err)
		}
	}
	out.Flush()
	return out.Error()
}

func (j *Job) cells(apps map[string]App) []string {
	app, loss, utility := apps[j.App], "", ""
	if c := j.Loss; c != nil {
		loss = join(c.Start, c.Floor, c.Scale, c.Power)
	}
	if u := j.Utility; u != nil {
		utility = join(u.Priority, u.Decay, u.Target)
	}
	return []string{
		j.ID, j.Tenant, j.User, exact(j.Submit), strconv.Itoa(j.MinGPUs), strconv.Itoa(j.MaxGPUs), exact(j.Share),
		strings.Join(j.GPUTypes, "|"), unless0(int64(j.Nodes)), known(j.Duration), j.MeasuredOn, unless0(j.TotalSteps), j.Model,
		exact(j.Weight), known(j.SLO), j.Status, known(j.CPUs), unless0(j.Memory),
		j.App, app.Tuner, app.Category, unless0(int64(app.Eta)), unless0(app.MinSteps), unless0(app.MaxSteps), grows(app.Grow),
		loss, utility,
	}
}

func exact(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

func grows(grow bool) string {
	if grow {
		return "true"
	}
	return ""
}

// known formats a number, or returns "" for 0.
func known(v float64) string {
	if v == 0 {
		return ""
	}
	return exact(v)
}

func unless0(v int64) string {
	if v == 0 {
		return ""
	}
	return strconv.FormatInt(v, 10)
}

func join(values ...float64) string {
	text := make([]string, len(values))
	for i, v := range values {
		text[i] = exact(v)
	}
	return strings.Join(text, ";")
}

// readOutbidCSV reads the output of WriteCSV. Columns may be in any order. All except id, submit_s, min_gpus and
// max_gpus may be missing or empty, which means unknown (share and weight: 1).
func readOutbidCSV(r *reader) error {
	t, err := r.csvTable(nil)
	if err != nil {
		return err
	}
	apps := make(map[string]App)
	return t.each(func(w *row) error {
		job, app := w.outbidJob(), w.outbidApp()
		if w.err != nil {
			return w.fault(w.err)
		}
		if fault := r.check(w.line, &job); fault != nil {
			return r.fault(fault)
		}
		if app.ID != "" {
			before, known := apps[app.ID]
			if known && before != app {
				return w.fault(badValue(w.line, "app", app.ID, "its settings differ from those in an earlier row"))
			}
			if !known {
				apps[app.ID] = app
				r.trace.Apps = append(r.trace.Apps, app)
			}
		}
		return w.finish(job)
	})
}

func (w *row) outbidJob() Job {
	job := Job{
		ID:         w.text("id"),
		Tenant:     w.text("tenant"),
		User:       w.text("user"),
		Submit:     w.number("submit_s"),
		MinGPUs:    w.whole("min_gpus", 0),
		MaxGPUs:    w.whole("max_gpus", 0),
		Share:      w.orOne("share"),
		Nodes:      int(min(w.optional("nodes"), MaxGPUs)),
		Duration:   w.optional("duration_s"),
		MeasuredOn: w.text("measured_on"),
		TotalSteps: w.optionalSteps("total_steps"),
		Model:      w.text("model"),
		Weight:     w.orOne("weight"),
		SLO:        w.optional("slo"),
		Status:     w.text("status"),
		CPUs:       w.optional("cpus"),
		Memory:     w.optionalSteps("memory_bytes"),
		App:        w.text("app"),
	}
	if types := w.text("gpu_types"); types != "" {
		job.GPUTypes = strings.Split(types, "|")
	}
	if v := w.list("loss", 4); v != nil {
		job.Loss = &Curve{v[0], v[1], v[2], v[3]}
	}
	if v := w.list("utility", 3); v != nil {
		job.Utility = &Utility{v[0], v[1], v[2]}
	}
	return job
}

func (w *row) outbidApp() App {
	app := App{
		ID:       w.text("app"),
		Tuner:    w.text("app_tuner"),
		Category: w.text("app_category"),
		Eta:      int(min(w.optional("app_eta"), MaxGPUs)),
		MinSteps: w.optionalSteps("app_min_steps"),
		MaxSteps: w.optionalSteps("app_max_steps"),
	}
	switch grow := w.text("app_grow"); grow {
	case "", "false":
	case "true":
		app.Grow = true
	default:
		w.bad("app_grow", "true, false or nothing")
	}
	if app.MaxSteps < app.MinSteps {
		w.bad("app_max_steps", "not less than app_min_steps")
	}
	return app
}

func (w *row) orOne(column string) float64 {
	if w.text(column) == "" {
		return 1
	}
	return w.number(column)
}

func (w *row) optionalSteps(column string) int64 {
	if w.text(column) == "" {
		return 0
	}
	return w.steps(column)
}

// list parses a list of n numbers separated by ;. It returns nil if the cell is empty or broken.
func (w *row) list(column string, n int) []float64 {
	text := w.text(column)
	if text == "" {
		return nil
	}
	parts := strings.Split(text, ";")
	values := make([]float64, len(parts))
	for i, part := range parts {
		v, err := strconv.ParseFloat(part, 64)
		if err != nil || !Finite(v) || len(parts) != n {
			w.bad(column, fmt.Sprintf("%d numbers with ; between", n))
			return nil
		}
		values[i] = v
	}
	return values
}
