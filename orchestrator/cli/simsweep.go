package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/plot"
	"github.com/outbid-dev/outbid/orchestrator/sim/measure"
)

// simSweep is one setting that takes several values, one after another.
type simSweep struct {
	setting string
	values  []string
}

// sweepSettings are those that --sweep knows.
const sweepSettings = "load, length, jobs, seed, round, restart-delay, node-fails, job-fails, made.NAME or option.NAME"

func parseSweep(text string) (simSweep, error) {
	setting, list, ok := strings.Cut(text, "=")
	s := simSweep{setting: setting, values: strings.Split(list, ",")}
	if !ok || setting == "" || slices.Contains(s.values, "") {
		return s, badInput("--sweep %s: want SETTING=VALUE,VALUE,…, such as load=1,2,4", text)
	}
	return s, nil
}

// apply gives the setting a value.
func (s simSweep) apply(o simOptions, value string) (simOptions, error) {
	var err error
	switch s.setting {
	case "load":
		o.request.Load, err = strconv.ParseFloat(value, 64)
	case "length":
		o.request.Length, err = strconv.ParseFloat(value, 64)
	case "jobs":
		o.request.Jobs, err = strconv.Atoi(value)
	case "seed":
		o.request.Seed, err = strconv.ParseUint(value, 10, 64)
	case "round":
		o.round, err = time.ParseDuration(value)
	case "restart-delay":
		o.delay, err = time.ParseDuration(value)
		o.delayGiven = true
	case "node-fails":
		o.mishaps.NodeFails, err = time.ParseDuration(value)
	case "job-fails":
		o.mishaps.JobFails, err = time.ParseDuration(value)
	default:
		if name, ok := strings.CutPrefix(s.setting, "made."); ok {
			o.request.Options = append(slices.Clone(o.request.Options), name+"="+value)
			return o, nil
		}
		if name, ok := strings.CutPrefix(s.setting, "option."); ok {
			o.options = append(slices.Clone(o.options), name+"="+value)
			return o, nil
		}
		return o, badInput("--sweep %s: there is no such setting: want %s", s.setting, sweepSettings)
	}
	if err != nil {
		return o, badInput("--sweep %s: %q is no value for it", s.setting, value)
	}
	return o, nil
}

// planSweep checks what was asked for at every value; without a sweep that is one plan.
func (a *app) planSweep(o simOptions) (simSweep, []*simPlan, error) {
	if o.sweep == "" {
		p, err := a.planSim(o)
		return simSweep{}, []*simPlan{p}, err
	}
	s, err := parseSweep(o.sweep)
	if err != nil {
		return s, nil, err
	}
	if o.events != "" || o.apps != "" || o.save != "" {
		return s, nil, badInput("--sweep runs several workloads: give --events, --apps and --save-trace for one of them")
	}
	var plans []*simPlan
	for _, value := range s.values {
		at, err := s.apply(o, value)
		if err != nil {
			return s, nil, err
		}
		p, err := a.planSim(at)
		if err != nil {
			return s, nil, fmt.Errorf("at %s=%s: %w", s.setting, value, err)
		}
		plans = append(plans, p)
	}
	return s, plans, nil
}

// sweptResult is a line of a sweep: the setting, its value, and the figures.
type sweptResult struct {
	Setting string `json:"setting"`
	Value   string `json:"value"`
	measure.Result
}

// runSweep runs plans one after another, prints what came out and draws it.
func (a *app) runSweep(ctx context.Context, s simSweep, plans []*simPlan) error {
	var rows [][]simResult
	var failed error
	for i, p := range plans {
		value := ""
		if s.setting != "" {
			value = s.values[i]
			a.notef("%s=%s", s.setting, value)
		}
		results, err := a.runSims(ctx, p, func(r simResult) any {
			if s.setting == "" {
				return r
			}
			return sweptResult{s.setting, value, r}
		})
		rows = append(rows, results)
		if failed = err; failed != nil {
			break
		}
	}
	first := plans[0]
	if first.out == formatTable {
		sweepTable(s, rows).write(a.stdout)
	}
	if first.plots == "" || len(rows[0]) == 0 {
		return failed
	}
	draw := func() ([]string, error) { return drawSims(first, rows[0]) }
	if s.setting != "" {
		draw = func() ([]string, error) { return drawSweep(first, s, rows) }
	}
	notes, err := draw()
	for _, note := range notes {
		a.notef("%s", note)
	}
	return errors.Join(failed, err)
}

// sweepTable is simTable with the sweep's value in front.
func sweepTable(s simSweep, rows [][]simResult) *table {
	var all []simResult
	var values []string
	for i, results := range rows {
		all = append(all, results...)
		for range results {
			if s.setting != "" {
				values = append(values, s.values[i])
			}
		}
	}
	t := simTable(all)
	if s.setting == "" {
		return t
	}
	t.header = append([]string{strings.ToUpper(s.setting)}, t.header...)
	for i := range t.rows {
		t.rows[i] = append([]string{values[i]}, t.rows[i]...)
	}
	return t
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

// drawSweep draws each figure over the setting: as lines where its values are numbers, else as bars.
func drawSweep(p *simPlan, s simSweep, rows [][]simResult) (notes []string, err error) {
	xs, numbers := sweepNumbers(s.values)
	for _, f := range sweptFigures() {
		title := fmt.Sprintf("%s: %s", f.label, p.jobs.Name)
		lines := plot.Lines{
			Title: title, X: s.setting, Y: f.label, Marks: true, Level: f.level, LogY: f.log, FromZero: !f.log,
			LogX: numbers && slices.Min(xs) > 0 && slices.Max(xs) >= 16*slices.Min(xs),
		}
		bars := plot.Bars{Title: title, Y: f.label, Level: f.level, Groups: s.values[:len(rows)]}
		for k, m := range p.makers {
			line, bar := plot.Series{Name: m.name}, plot.Sample{Name: m.name}
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
		paths, err := plot.Write(p.plots, f.name+"-over-"+s.setting, figure)
		if errors.Is(err, plot.ErrEmpty) {
			continue // such as times of decisions, which were left out
		}
		if err != nil {
			return notes, err
		}
		notes = append(notes, fmt.Sprintf("drew %s and %s", paths[0], paths[1]))
	}
	return notes, nil
}

// sweepNumbers reads values as numbers, durations in minutes; false if one is neither.
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
