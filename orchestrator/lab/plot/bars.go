package plot

import (
	"fmt"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// Bars compares figures: each group (a policy) has one bar of each series (a workload).
type Bars struct {
	Title, Y string
	Groups   []string
	// Series have one value for each group; NaN leaves a gap.
	Series []Sample
	// Level draws a thin horizontal line at a value; 0 for none.
	Level float64
}

func (b Bars) build() (*plot.Plot, plot.Legend, size, error) {
	p, legend := newPlot(b.Title, "", b.Y), newLegend()
	if len(b.Groups) == 0 || len(b.Series) == 0 {
		return nil, legend, size{}, ErrEmpty
	}
	const step = 1.0
	s := usual()
	s.width = max(s.width, vg.Length(len(b.Groups)*len(b.Series))*vg.Points(12)+2*vg.Inch)
	width := (s.width - 2*vg.Inch) / vg.Length(len(b.Groups)) * .8 / vg.Length(len(b.Series))
	for i, series := range b.Series {
		if len(series.Values) != len(b.Groups) {
			return nil, legend, size{}, fmt.Errorf("series %s has %d values for %d groups", series.Name, len(series.Values), len(b.Groups))
		}
		values := make(plotter.Values, len(series.Values))
		for k, v := range series.Values {
			if finite(v, false) {
				values[k] = v
			}
		}
		chart, err := plotter.NewBarChart(values, width)
		if err != nil {
			return nil, legend, size{}, err
		}
		chart.Color, chart.LineStyle.Width = colour(i), 0
		chart.Offset = width * vg.Length(float64(i)-float64(len(b.Series)-1)/2)
		p.Add(chart)
		legend.Add(series.Name, chart)
	}
	marks := plot.ConstantTicks{}
	for i, name := range b.Groups {
		marks = append(marks, plot.Tick{Value: float64(i) * step, Label: name})
	}
	p.X.Tick.Marker = marks
	if len(b.Groups) > 6 {
		p.X.Tick.Label.Rotation = math.Pi / 5
		p.X.Tick.Label.XAlign, p.X.Tick.Label.YAlign = -1, -.5
	}
	p.X.Min, p.X.Max = -.5, float64(len(b.Groups))-.5
	p.Y.Min = min(0, p.Y.Min)
	Lines{Level: b.Level}.level(p)
	widen(&p.Y, false)
	return p, legend, s, nil
}
