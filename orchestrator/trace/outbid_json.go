package trace

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// formatVersion is the version of Outbid's formats. Readers accept only this one.
const formatVersion = 1

// headLine is the first line of Outbid's JSON lines.
type headLine struct {
	Kind    string   `json:"kind"`
	Version int      `json:"version"`
	Name    string   `json:"name"`
	Source  string   `json:"source,omitempty"`
	Tenants []Tenant `json:"tenants,omitempty"`
}

// jobLine is a line for a job. Its names are also the columns of the CSV.
type jobLine struct {
	Kind       string   `json:"kind"`
	ID         string   `json:"id"`
	Tenant     string   `json:"tenant,omitempty"`
	User       string   `json:"user,omitempty"`
	Submit     float64  `json:"submit_s"`
	MinGPUs    int      `json:"min_gpus"`
	MaxGPUs    int      `json:"max_gpus"`
	Share      float64  `json:"share"`
	GPUTypes   []string `json:"gpu_types,omitempty"`
	Nodes      int      `json:"nodes,omitempty"`
	Duration   float64  `json:"duration_s,omitempty"`
	MeasuredOn string   `json:"measured_on,omitempty"`
	TotalSteps int64    `json:"total_steps,omitempty"`
	Model      string   `json:"model,omitempty"`
	// BatchMode is read from files of earlier versions and ignored.
	BatchMode string   `json:"batch_mode,omitempty"`
	Weight    float64  `json:"weight"`
	SLO       float64  `json:"slo,omitempty"`
	Status    string   `json:"status,omitempty"`
	CPUs      float64  `json:"cpus,omitempty"`
	Memory    int64    `json:"memory_bytes,omitempty"`
	App       string   `json:"app,omitempty"`
	Loss      *Curve   `json:"loss,omitempty"`
	Utility   *Utility `json:"utility,omitempty"`

	Rates map[string]float64 `json:"rates,omitempty"`
	Forks string             `json:"forks,omitempty"`
}

// appLine is a line for an app; it precedes the first job that names the app.
type appLine struct {
	Kind     string `json:"kind"`
	ID       string `json:"id"`
	Tuner    string `json:"tuner"`
	Category string `json:"category,omitempty"`
	Eta      int    `json:"eta,omitempty"`
	Grow     bool   `json:"grow,omitempty"`
	MinSteps int64  `json:"min_steps,omitempty"`
	MaxSteps int64  `json:"max_steps,omitempty"`
}

func (j *Job) line() jobLine {
	return jobLine{
		"job", j.ID, j.Tenant, j.User, j.Submit, j.MinGPUs, j.MaxGPUs, j.Share, j.GPUTypes, j.Nodes, j.Duration,
		j.MeasuredOn, j.TotalSteps, j.Model, "", j.Weight, j.SLO, j.Status, j.CPUs, j.Memory, j.App, j.Loss, j.Utility, j.Rates, j.Forks,
	}
}

func (l *jobLine) job() Job {
	return Job{
		l.ID, l.Tenant, l.User, l.Submit, l.MinGPUs, l.MaxGPUs, l.Share, l.GPUTypes, l.Nodes, l.Duration,
		l.MeasuredOn, l.TotalSteps, l.Model, l.Weight, l.SLO, l.Status, l.CPUs, l.Memory, l.App, l.Loss, l.Utility, l.Rates, l.Forks,
	}
}

// WriteJSON writes Outbid's JSON lines: a line of kind "trace" with name, source and tenants, then lines of kind "app"
// and "job". Reading them gives the same trace.
func (t *Trace) WriteJSON(w io.Writer) error {
	out := bufio.NewWriter(w)
	lines := json.NewEncoder(out)
	lines.SetEscapeHTML(false)
	if err := lines.Encode(headLine{"trace", formatVersion, t.Name, t.Source, t.Tenants}); err != nil {
		return fmt.Errorf("write the trace: %w", err)
	}
	for _, a := range t.Apps {
		line := appLine{"app", a.ID, a.Tuner, a.Category, a.Eta, a.Grow, a.MinSteps, a.MaxSteps}
		if err := lines.Encode(line); err != nil {
			return fmt.Errorf("write app %s: %w", a.ID, err)
		}
	}
	for i := range t.Jobs {
		if err := lines.Encode(t.Jobs[i].line()); err != nil {
			return fmt.Errorf("write job %s: %w", t.Jobs[i].ID, err)
		}
	}
	return out.Flush()
}

// readOutbidJSON reads the output of WriteJSON. Unknown names are errors, because a misspelt field would otherwise be
// ignored.
func readOutbidJSON(r *reader) error {
	lines := bufio.NewScanner(r.in)
	lines.Buffer(nil, 1<<20)
	line, apps := 0, make(map[string]bool)
	for lines.Scan() {
		line++
		text := bytes.TrimSpace(bytes.TrimPrefix(lines.Bytes(), []byte("\ufeff")))
		if len(text) == 0 {
			continue
		}
		if err := r.outbidLine(text, line, apps); err != nil {
			return err
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return &RowError{File: r.file, Line: line + 1, Reason: "the line is longer than 1 MiB"}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read %s: %w", r.file, err)
	}
	return nil
}

func (r *reader) outbidLine(text []byte, line int, apps map[string]bool) error {
	var kind struct {
		Kind string `json:"kind"`
	}
	if err := json.Unmarshal(text, &kind); err != nil {
		r.trace.Report.Rows++
		return r.fault(&RowError{Line: line, Reason: "not JSON: " + err.Error()})
	}
	switch kind.Kind {
	case "trace":
		return r.outbidHead(text, line)
	case "app":
		var from appLine
		if fault := strict(text, &from, line); fault != nil {
			return r.fault(fault)
		}
		app := App{from.ID, from.Tuner, from.Category, from.Eta, from.MinSteps, from.MaxSteps, from.Grow}
		return r.addApp(line, app, apps)
	case "job":
		r.trace.Report.Rows++
		from := jobLine{Share: 1, Weight: 1}
		if fault := strict(text, &from, line); fault != nil {
			return r.fault(fault)
		}
		if from.App != "" && !apps[from.App] {
			return r.fault(badValue(line, "app", from.App, "no earlier line of kind app has this id"))
		}
		return r.add(line, from.job())
	}
	r.trace.Report.Rows++
	return r.fault(badValue(line, "kind", kind.Kind, "want trace, app or job"))
}

func (r *reader) outbidHead(text []byte, line int) error {
	var head headLine
	if fault := strict(text, &head, line); fault != nil {
		return r.fault(fault)
	}
	if head.Version != formatVersion {
		bad := badValue(line, "version", strconv.Itoa(head.Version), fmt.Sprintf("this Outbid reads version %d", formatVersion))
		bad.File = r.file
		return bad
	}
	for _, t := range head.Tenants {
		if t.Name == "" || !(t.Weight >= 0 && t.Weight <= MaxSeconds) {
			return r.fault(badValue(line, "tenants", fmt.Sprintf("%+v", t), "want a name and a weight, 0 or more"))
		}
	}
	r.trace.Name, r.trace.Source, r.trace.Tenants = head.Name, head.Source, head.Tenants
	return nil
}

func (r *reader) addApp(line int, app App, apps map[string]bool) error {
	switch {
	case app.ID == "":
		return r.fault(badValue(line, "id", "", "want a name"))
	case apps[app.ID]:
		return r.fault(badValue(line, "id", app.ID, "is a duplicate: want unique ids"))
	case app.Eta < 0 || app.MinSteps < 0 || app.MaxSteps < app.MinSteps:
		reason := fmt.Sprintf("eta %d, steps %d-%d: want 0 <= min <= max and no eta below 0",
			app.Eta, app.MinSteps, app.MaxSteps)
		return r.fault(&RowError{Line: line, Reason: reason})
	}
	apps[app.ID] = true
	r.trace.Apps = append(r.trace.Apps, app)
	return nil
}

// strict decodes one JSON value that may contain only known names.
func strict(text []byte, into any, line int) *RowError {
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields()
	err := in.Decode(into)
	if err == nil {
		if _, err := in.Token(); !errors.Is(err, io.EOF) {
			return &RowError{Line: line, Reason: "the line has text after its object"}
		}
		return nil
	}
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) {
		reason := fmt.Sprintf("want a %s, found a %s", kind.Type, kind.Value)
		return &RowError{Line: line, Column: kind.Field, Reason: reason}
	}
	return &RowError{Line: line, Reason: err.Error()}
}
