package compare

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/lab/plot"
	"github.com/outbid-dev/outbid/orchestrator/sim/experiment"
	"github.com/outbid-dev/outbid/orchestrator/sim/measure"
)

// Sweep is a setting with several values to run in turn.
type Sweep struct {
	Setting string
	Values  []string
}

// SweepSettings are the settings that a sweep may vary.
const SweepSettings = "cluster, load, length, jobs, seed, round, restart-delay, node-fails, job-fails, made.NAME or option.NAME"

// ParseSweep parses SETTING=VALUE,VALUE,….
func ParseSweep(text string) (Sweep, error) {
	setting, list, ok := strings.Cut(text, "=")
	s := Sweep{Setting: setting, Values: strings.Split(list, ",")}
	if !ok || setting == "" || slices.Contains(s.Values, "") {
		return s, experiment.BadInput("--sweep %s: want SETTING=VALUE,VALUE,…, such as load=1,2,4", text)
	}
	return s, nil
}

// apply sets the setting to a value.
func (s Sweep) apply(o Options, value string) (Options, error) {
	var err error
	switch s.Setting {
	case "cluster":
		o.Cluster = value
	case "load":
		o.Workload.Load, err = strconv.ParseFloat(value, 64)
	case "length":
		o.Workload.Length, err = strconv.ParseFloat(value, 64)
	case "jobs":
		o.Workload.Jobs, err = strconv.Atoi(value)
	case "seed":
		o.Workload.Seed, err = strconv.ParseUint(value, 10, 64)
	case "round":
		o.Round, err = time.ParseDuration(value)
	case "restart-delay":
		o.RestartDelay, err = time.ParseDuration(value)
		o.RestartDelayGiven = true
	case "node-fails":
		o.Mishaps.NodeFails, err = time.ParseDuration(value)
	case "job-fails":
		o.Mishaps.JobFails, err = time.ParseDuration(value)
	default:
		if name, ok := strings.CutPrefix(s.Setting, "made."); ok {
			o.Made.Options = append(slices.Clone(o.Made.Options), name+"="+value)
			return o, nil
		}
		if name, ok := strings.CutPrefix(s.Setting, "option."); ok {
			o.PolicyOptions = append(slices.Clone(o.PolicyOptions), name+"="+value)
			return o, nil
		}
		return o, experiment.BadInput("--sweep %s: there is no such setting: want %s", s.Setting, SweepSettings)
	}
	if err != nil {
		return o, experiment.BadInput("--sweep %s: %q is not a valid value", s.Setting, value)
	}
	return o, nil
}

// Plans checks the options at every value of the setting.
func (s Sweep) Plans(o Options) ([]*experiment.Plan, error) {
	var plans []*experiment.Plan
	for _, value := range s.Values {
		at, err := s.apply(o, value)
		if err != nil {
			return nil, err
		}
		p, err := NewPlan(at)
		if err != nil {
			return nil, fmt.Errorf("at %s=%s: %w", s.Setting, value, err)
		}
		plans = append(plans, p)
	}
	return plans, nil
}

// sweptFigure is a figure that is drawn over a setting.
type sweptFigure struct {
	name, label string
	of          func(*measure.Result) float64
	level       float64
	log         bool
}

func sweptFigures() []sweptFigure {
	hour := func(of func(*measure.Result) float64) func(*measure.Result) float64 {
		return func(r *measure.Result) float64 { return of(r) / 3600 }
	}
	return []sweptFigure{
		{name: "rho-max", label: "worst rho", of: func(r *measure.Result) float64 { return r.RhoMax }, level: 1},
		{name: "rho-mean", label: "mean rho", of: func(r *measure.Result) float64 { return r.RhoMean }, level: 1},
		{name: "jain", label: "Jain's index of rho", of: func(r *measure.Result) float64 { return r.JainRho }},
		{name: "jct", label: "mean completion time, hours", of: hour(func(r *measure.Result) float64 { return r.JCTMean })},
		{name: "makespan", label: "makespan, hours", of: hour(func(r *measure.Result) float64 { return r.Makespan })},
		{name: "gpu-hours", label: "device-hours", of: hour(func(r *measure.Result) float64 { return r.GPUSeconds })},
		{name: "utilisation", label: "utilisation", of: func(r *measure.Result) float64 { return r.Utilization }},
		{name: "placement", label: "placement score", of: func(r *measure.Result) float64 { return r.PlacementScoreMean }},
		{name: "sharing-loss", label: "share of jobs with sharing loss", of: func(r *measure.Result) float64 { return r.JobSharingLoss }},
		{name: "utility", label: "total utility", of: func(r *measure.Result) float64 { return r.UtilityTotal }},
		{name: "decision-max", label: "longest decision, ms", of: func(r *measure.Result) float64 { return r.DecisionMillisMax }, log: true},
		{name: "decision", label: "time of a decision (p95), ms", of: func(r *measure.Result) float64 { return r.DecisionMillisP95 }, log: true},
	}
}

// Draw draws each figure over the setting into a directory: as lines if its values are numbers, otherwise as bars. rows
// are the results at each value for the policies of p, which is the plan at the first value.
func (s Sweep) Draw(p *experiment.Plan, dir string, rows [][]measure.Result) (notes []string, err error) {
	xs, numbers := sweepNumbers(s.Values)
	for _, f := range sweptFigures() {
		title := fmt.Sprintf("%s: %s", f.label, p.Trace.Name)
		lines := plot.Lines{
			Title: title, X: s.Setting, Y: f.label, Marks: true, Level: f.level, LogY: f.log, FromZero: !f.log,
			LogX: numbers && slices.Min(xs) > 0 && slices.Max(xs) >= 16*slices.Min(xs),
		}
		bars := plot.Bars{Title: title, Y: f.label, Level: f.level, Groups: s.Values[:len(rows)]}
		for k, m := range p.Factories {
			line, bar := plot.Series{Name: m.Name}, plot.Sample{Name: m.Name}
			for i, results := range rows {
				if k >= len(results) {
					bar.Values = append(bar.Values, math.NaN())
					continue
				}
				y := f.of(&results[k])
				bar.Values = append(bar.Values, y)
				if numbers {
					line.Points = append(line.Points, plot.Point{X: xs[i], Y: y})
				}
			}
			lines.Series, bars.Series = append(lines.Series, line), append(bars.Series, bar)
		}
		var figure plot.Figure = bars
		if numbers {
			figure = lines
		}
		paths, err := plot.Write(dir, f.name+"-over-"+s.Setting, figure)
		if errors.Is(err, plot.ErrEmpty) {
			continue // such as decision times, which may not have been measured
		}
		if err != nil {
			return notes, err
		}
		notes = append(notes, fmt.Sprintf("drew %s and %s", paths[0], paths[1]))
	}
	return notes, nil
}

// sweepNumbers parses values as numbers, or durations in minutes. It returns false if one is neither.
func sweepNumbers(values []string) ([]float64, bool) {
	var xs []float64
	for _, value := range values {
		x, err := strconv.ParseFloat(value, 64)
		if err != nil {
			d, err := time.ParseDuration(value)
			if err != nil {
				return nil, false
			}
			x = d.Minutes()
		}
		xs = append(xs, x)
	}
	return xs, true
}
