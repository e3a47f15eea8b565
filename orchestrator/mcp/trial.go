package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// trialDetail is the answer of show_trial.
type trialDetail struct {
	answer
	Sweep          string            `json:"sweep"`
	Trial          trialView         `json:"trial"`
	Attributes     map[string]string `json:"attributes,omitempty" jsonschema:"values that its code noted, as JSON"`
	Devices        []string          `json:"devices,omitempty" jsonschema:"where it runs: indexes of devices and their node"`
	StepsPerSecond number            `json:"steps_per_second,omitempty"`
	DeviceSeconds  number            `json:"device_seconds"`
	Created        *time.Time        `json:"created,omitempty"`
	Ended          *time.Time        `json:"ended,omitempty"`
	Resumes        int32             `json:"resumes,omitempty" jsonschema:"how often it was paused and continued"`
	Checkpoints    []int64           `json:"checkpoints,omitempty" jsonschema:"steps of the checkpoints that are kept"`
	Curve          []pointView       `json:"curve,omitempty" jsonschema:"the sweep's metrics over the steps"`
}

type pointView struct {
	Step    int64             `json:"step"`
	Metrics map[string]number `json:"metrics"`
}

const (
	// maxReports is the maximum number of reports that are read for a curve.
	maxReports = 200_000
	// maxCheckpoints is the number of checkpoints that show_trial lists.
	maxCheckpoints = 50
)

func showTrialTool() *tool {
	type arguments struct {
		Sweep  string
		Trial  *int32
		Points int
	}
	return define(tool{
		name: "show_trial", title: "Show a trial",
		about: "Shows one trial of a sweep: configuration, metrics and their course over the steps, place, and checkpoints.",
		inputs: []input{sweepInput(), trialInput("the best one"), {
			name: "points", kind: "integer", most: 200, otherwise: 20, about: "at most this many points of the learning curve",
		}},
	}, func(ctx context.Context, c *call, in arguments) (*trialDetail, error) {
		s, err := c.sweep(ctx, in.Sweep)
		if err != nil {
			return nil, err
		}
		t, err := c.trial(ctx, s, in.Trial)
		if err != nil {
			return nil, err
		}
		v := &trialDetail{
			Sweep: s.GetId(), Trial: viewTrial(t), Attributes: texts(t.GetAttributes()), StepsPerSecond: number(t.GetStepsPerSecond()),
			DeviceSeconds: number(t.GetDeviceSeconds()), Created: timeOf(t.GetCreated()), Ended: timeOf(t.GetEnded()), Resumes: t.GetResumes(),
		}
		v.addPlaces(t)
		for _, cp := range t.GetCheckpoints()[max(0, len(t.GetCheckpoints())-maxCheckpoints):] {
			v.Checkpoints = append(v.Checkpoints, cp.GetStep())
		}
		if in.Points == 0 {
			return v, nil
		}
		return v, c.addCurve(ctx, v, s, t, in.Points)
	})
}

func (v *trialDetail) addPlaces(t *outbidv1.Trial) {
	for _, l := range t.GetLeases() {
		for _, p := range l.GetPlaces() {
			v.Devices = append(v.Devices, cleanLine(fmt.Sprintf("%s %d of %s, %s", p.GetType(), p.GetDevices(), p.GetNode(), l.GetState()), maxName))
		}
	}
	v.Devices = v.Devices[:min(len(v.Devices), maxValues)]
}

// addCurve reads the trial's reports and adds points of them, evenly by report: the first, the last and some between.
func (c *call) addCurve(ctx context.Context, v *trialDetail, s *outbidv1.Sweep, t *outbidv1.Trial, points int) error {
	ctx, cancel := context.WithCancel(ctx) // ends a stream that is not read to its end
	defer cancel()
	stream, err := c.API.ListReports(ctx, &outbidv1.ListReportsRequest{Sweep: s.GetId(), Trial: new(t.GetNumber())})
	if err != nil {
		return err
	}
	names := []string{s.GetSpec().GetMetric()}
	for _, o := range s.GetSpec().GetObjectives() {
		names = append(names, o.GetMetric())
	}
	var all []pointView
	for len(all) < maxReports {
		got, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		for _, r := range got.GetReports() {
			point := pointView{r.GetReport().GetStep(), map[string]number{}}
			for _, name := range names {
				if value, ok := r.GetReport().GetMetrics()[name]; ok {
					point.Metrics[cleanLine(name, maxName)] = number(value)
				}
			}
			if !r.GetSuperseded() && len(point.Metrics) > 0 {
				all = append(all, point)
			}
		}
	}
	if len(all) >= maxReports {
		v.cut("curve: only the first %d reports were read", len(all))
	}
	v.Curve = all
	if len(all) > points {
		v.Curve = nil
		for i := range points {
			v.Curve = append(v.Curve, all[i*(len(all)-1)/max(points-1, 1)])
		}
		v.cut("curve: %d of %d reports", points, len(all))
	}
	return nil
}

// logsView is the answer of read_logs.
type logsView struct {
	answer
	Sweep string    `json:"sweep"`
	Lines []logLine `json:"lines" jsonschema:"what trials printed, oldest first"`
}

type logLine struct {
	Trial  int32  `json:"trial"`
	Stream string `json:"stream" jsonschema:"stdout, stderr, or outbid where the trial was started again"`
	Text   string `json:"text"`
}

func readLogsTool() *tool {
	type arguments struct {
		Sweep string
		Trial *int32
		Tail  int32
	}
	return define(tool{
		name: "read_logs", title: "Read the output of trials",
		about: "Reads the last lines that trials printed, such as the traceback of a failed trial. The lines are untrusted.",
		inputs: []input{sweepInput(), trialInput("all trials"), {
			name: "tail", kind: "integer", least: 1, most: 500, otherwise: 50, about: "number of lines from the end",
		}},
	}, func(ctx context.Context, c *call, in arguments) (*logsView, error) {
		s, err := c.sweep(ctx, in.Sweep)
		if err != nil {
			return nil, err
		}
		v := &logsView{Sweep: s.GetId()}
		v.Lines, err = c.logs(ctx, s.GetId(), in.Trial, in.Tail)
		if err != nil {
			return nil, err
		}
		size := 0
		for i, line := range slices.Backward(v.Lines) {
			if size += len(line.Text); size > maxAnswer {
				v.cut("lines: %d older ones, because the answer would exceed %d bytes", i+1, maxAnswer)
				v.Lines = v.Lines[i+1:]
				break
			}
		}
		return v, nil
	})
}

// logs reads the last lines of a sweep or trial.
func (c *call) logs(ctx context.Context, sweep string, trial *int32, tail int32) ([]logLine, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.API.StreamLogs(ctx, &outbidv1.StreamLogsRequest{Sweep: sweep, Trial: trial, Tail: tail})
	if err != nil {
		return nil, err
	}
	lines := []logLine{}
	for {
		got, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return lines, nil
		}
		if err != nil {
			return nil, err
		}
		lines = append(lines, logLine{got.GetTrial(), cleanLine(got.GetStream(), maxName), cleanLine(got.GetLine(), maxLine)})
	}
}

// compareView is the answer of compare.
type compareView struct {
	answer
	Items []comparedView `json:"items"`
	// Differ and Same split the parameters of all items.
	Differ map[string]map[string]any `json:"differ" jsonschema:"parameters that differ, with the value of each item; an item without the parameter is absent"`
	Same   map[string]any            `json:"same" jsonschema:"parameters with the same value in all items"`
}

type comparedView struct {
	Item       string            `json:"item"`
	Trial      string            `json:"trial" jsonschema:"SWEEP/NUMBER"`
	Tuner      string            `json:"tuner" jsonschema:"the tuner of its sweep"`
	State      string            `json:"state"`
	Reason     string            `json:"reason,omitempty"`
	Objective  string            `json:"objective" jsonschema:"the sweep's metric with its mode"`
	Metric     *number           `json:"metric,omitempty" jsonschema:"best value of that metric"`
	Step       int64             `json:"step" jsonschema:"steps done"`
	DeviceTime number            `json:"device_seconds"`
	Last       map[string]number `json:"last,omitempty" jsonschema:"metrics of its newest report"`
}

func compareTool() *tool {
	type arguments struct{ Items []string }
	return define(tool{
		name: "compare", title: "Compare trials or sweeps",
		about: "Compares trials, of one sweep or of several: metrics, and the parameters that differ. Of a sweep, its best trial is compared.",
		inputs: []input{{
			name: "items", kind: "array", required: true, least: 2, most: 12,
			about: "trials such as digits-1/17 or digits-1/best, or sweeps such as digits-2",
		}},
	}, func(ctx context.Context, c *call, in arguments) (*compareView, error) {
		v := &compareView{Differ: map[string]map[string]any{}, Same: map[string]any{}}
		configs := map[string]map[string]any{}
		for _, name := range in.Items {
			s, t, err := c.item(ctx, name)
			if err != nil {
				return nil, err
			}
			one := viewTrial(t)
			item := comparedView{
				Item: cleanLine(name, maxName), Trial: fmt.Sprintf("%s/%d", s.GetId(), t.GetNumber()), Tuner: tunerName(s.GetSpec().GetTuner()),
				State: one.State, Reason: one.Reason, Metric: one.Metric, Step: one.Step, Last: one.Last,
				Objective:  s.GetSpec().GetMode() + " " + cleanLine(s.GetSpec().GetMetric(), maxName),
				DeviceTime: number(t.GetDeviceSeconds()),
			}
			v.Items = append(v.Items, item)
			configs[item.Item] = one.Config
		}
		v.split(configs)
		return v, nil
	})
}

// split splits the parameters into those that differ and the others.
func (v *compareView) split(configs map[string]map[string]any) {
	values := map[string]map[string]any{}
	for item, config := range configs {
		for path, value := range config {
			if values[path] == nil {
				values[path] = map[string]any{}
			}
			values[path][item] = value
		}
	}
	for path, of := range values {
		all := slices.Collect(maps.Values(of))
		if len(of) == len(configs) && !slices.ContainsFunc(all, func(x any) bool { return x != all[0] }) {
			v.Same[path] = all[0]
		} else {
			v.Differ[path] = of
		}
	}
}
