package compare

import (
	"errors"
	"fmt"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/lab/plot"
	"github.com/outbid-dev/outbid/orchestrator/sim/experiment"
	"github.com/outbid-dev/outbid/orchestrator/sim/measure"
)

// Draw draws the figures of a plan's results into a directory, and returns notes about them.
func Draw(p *experiment.Plan, dir string, results []measure.Result) (notes []string, err error) {
	title := func(what string) string { return what + ": " + p.Trace.Name }
	var jct, slowdown, rho []plot.Sample
	used := plot.Lines{Title: title("Utilisation"), X: "hours", Y: "share of devices", FromZero: true, MaxY: 1}
	for i := range results {
		s := &results[i].Series
		name := results[i].Policy
		jct = append(jct, plot.Sample{Name: name, Values: hours(s.JCT)})
		slowdown = append(slowdown, plot.Sample{Name: name, Values: s.Slowdown})
		rho = append(rho, plot.Sample{Name: name, Values: s.Rho})
		line := plot.Series{Name: name}
		for part := range slices.Chunk(s.Utilisation, 1+len(s.Utilisation)/usedPoints) {
			line.Points = append(line.Points, meanPoint(part))
		}
		used.Series = append(used.Series, line)
	}
	figures := []struct {
		name string
		of   plot.Figure
	}{
		{"jct", plot.CDF(title("Completion time"), "hours", true, jct...)},
		{"slowdown", plot.CDF(title("Slowdown"), "completion time over time alone", true, slowdown...)},
		{"rho", plot.CDF(title("Finish-time fairness"), "rho", true, rho...)},
		{"utilisation", used},
	}
	for i := range results {
		if len(results[i].Series.Bars) > 0 {
			figures = append(figures, struct {
				name string
				of   plot.Figure
			}{"gantt-" + results[i].Policy, gantt(p, &results[i])})
		}
	}
	for _, f := range figures {
		paths, err := plot.Write(dir, f.name, f.of)
		if errors.Is(err, plot.ErrEmpty) {
			notes = append(notes, fmt.Sprintf("%s is not drawn: no job has what it shows", f.name))
			continue
		}
		if err != nil {
			return notes, err
		}
		notes = append(notes, fmt.Sprintf("drew %s and %s", paths[0], paths[1]))
	}
	for i := range results {
		if n := results[i].Series.BarsLeftOut; n > 0 {
			notes = append(notes, fmt.Sprintf("gantt-%s shows the first %d leases; %d more are left out", results[i].Policy, experiment.MostBars, n))
		}
	}
	return notes, nil
}

// usedPoints is the number of points of utilisation that are drawn. With more, lines of several policies hide each
// other.
const usedPoints = 160

// meanPoint returns the mean of points, with hours instead of seconds.
func meanPoint(points []measure.Point) plot.Point {
	var mean plot.Point
	n := float64(len(points))
	for _, p := range points {
		mean.X += p.At / 3600 / n
		mean.Y += p.Value / n
	}
	return mean
}

func hours(seconds []float64) []float64 {
	out := make([]float64, len(seconds))
	for i, s := range seconds {
		out[i] = s / 3600
	}
	return out
}

// gantt shows which trial had which device when, with a row for each device in the order of nodes.
func gantt(p *experiment.Plan, r *measure.Result) plot.Gantt {
	g := plot.Gantt{Title: "Leases under " + r.Policy + ": " + p.Trace.Name, X: "hours"}
	for _, n := range p.Nodes {
		for _, d := range n.Devices {
			g.Rows = append(g.Rows, fmt.Sprintf("%s/%d", n.Name, d.Index))
		}
	}
	for _, b := range r.Series.Bars { // a trial's name is its sweep's, so that an app has one colour
		g.Bars = append(g.Bars, plot.Bar{Rows: b.Devices, From: b.From / 3600, Till: b.Till / 3600, Group: b.Job})
	}
	return g
}
