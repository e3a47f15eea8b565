package plot

import (
	"errors"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Point is a point of a line.
type Point struct{ X, Y float64 }

// Series is one line.
type Series struct {
	Name   string
	Points []Point
}

// Lines draws series over a common axis: utilisation over time, or a figure over a setting. Values that cannot be drawn
// (NaN, infinite, or not above 0 on a logarithmic axis) are skipped.
type Lines struct {
	Title, X, Y string
	LogX, LogY  bool
	// Marks draws a mark at every point, for measurements.
	Marks bool
	// Steps holds a value until the next point, instead of drawing a straight line to it.
	Steps  bool
	Series []Series
	// Level draws a thin horizontal line at a value of Y, such as a rho of 1; 0 for none.
	Level float64
	// FromZero makes the Y axis begin at 0, and MaxY, if above 0, is its end.
	FromZero bool
	MaxY     float64
}

// ErrEmpty is the error for a figure without data.
var ErrEmpty = errors.New("there is no data to draw")

func (l Lines) build() (*plot.Plot, plot.Legend, size, error) {
	p, legend := newPlot(l.Title, l.X, l.Y), newLegend()
	if l.LogX {
		p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, ticks{log: true}
	}
	if l.LogY {
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, ticks{log: true}
	}
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = faint(), faint()
	p.Add(grid)
	drawn := 0
	for i, s := range l.Series {
		xys := l.drawable(s.Points)
		if len(xys) == 0 {
			continue
		}
		drawn++
		if err := l.add(p, &legend, i, s.Name, xys); err != nil {
			return nil, legend, size{}, err
		}
	}
	if drawn == 0 {
		return nil, legend, size{}, ErrEmpty
	}
	l.level(p)
	l.bounds(p)
	return p, legend, usual(), nil
}

func (l Lines) drawable(points []Point) plotter.XYs {
	var xys plotter.XYs
	for _, pt := range points {
		if finite(pt.X, l.LogX) && finite(pt.Y, l.LogY) {
			xys = append(xys, plotter.XY{X: pt.X, Y: pt.Y})
		}
	}
	return xys
}

func (l Lines) add(p *plot.Plot, legend *plot.Legend, i int, name string, xys plotter.XYs) error {
	line, err := plotter.NewLine(xys)
	if err != nil {
		return err
	}
	line.Color, line.Dashes, line.Width = colour(i), dashes(i), vg.Points(1.4)
	if l.Steps {
		line.StepStyle = plotter.PostStep
	}
	p.Add(line)
	thumbs := []plot.Thumbnailer{line}
	if l.Marks {
		marks, err := plotter.NewScatter(xys)
		if err != nil {
			return err
		}
		shapes := []draw.GlyphDrawer{draw.CircleGlyph{}, draw.SquareGlyph{}, draw.TriangleGlyph{}, draw.CrossGlyph{}, draw.RingGlyph{}}
		marks.GlyphStyle = draw.GlyphStyle{Color: colour(i), Radius: vg.Points(2.4), Shape: shapes[i%len(shapes)]}
		p.Add(marks)
		thumbs = append(thumbs, marks)
	}
	if i < legendEntries {
		legend.Add(name, thumbs...)
	}
	return nil
}

// level draws the horizontal line.
func (l Lines) level(p *plot.Plot) {
	if l.Level == 0 {
		return
	}
	p.Y.Min, p.Y.Max = min(p.Y.Min, l.Level), max(p.Y.Max, l.Level)
	f := plotter.NewFunction(func(float64) float64 { return l.Level })
	f.Samples = 2
	f.XMin, f.XMax = p.X.Min, p.X.Max
	f.Width, f.Color = vg.Points(.75), faintText()
	p.Add(f)
}

// bounds sets the limits of the axes.
func (l Lines) bounds(p *plot.Plot) {
	if l.FromZero && !l.LogY {
		p.Y.Min = min(0, p.Y.Min)
	}
	if l.MaxY > 0 {
		p.Y.Max = l.MaxY
	}
	widen(&p.X, l.LogX)
	widen(&p.Y, l.LogY)
}

// widen gives an axis with a single value some range.
func widen(a *plot.Axis, log bool) {
	switch {
	case a.Min < a.Max:
	case log:
		a.Min, a.Max = a.Min/2, a.Max*2
	default:
		by := max(math.Abs(a.Min)*.05, .5)
		a.Min, a.Max = a.Min-by, a.Max+by
	}
}

// Sample is a named list of values.
type Sample struct {
	Name   string
	Values []float64
}

// cdfPoints is the maximum number of points of a distribution's line.
const cdfPoints = 800

// CDF returns the cumulative distributions of several samples. Values that are not finite are skipped, and so are those
// not above 0 if log selects a logarithmic axis.
func CDF(title, x string, log bool, samples ...Sample) Lines {
	l := Lines{Title: title, X: x, Y: "share", LogX: log, Steps: true, FromZero: true, MaxY: 1}
	for _, s := range samples {
		l.Series = append(l.Series, Series{Name: s.Name, Points: cdf(s.Values, log)})
	}
	return l
}

func cdf(values []float64, log bool) []Point {
	values = slices.DeleteFunc(slices.Clone(values), func(v float64) bool { return !finite(v, log) })
	slices.Sort(values)
	n := len(values)
	if n == 0 {
		return nil
	}
	points := []Point{{values[0], 0}}
	count := min(n, cdfPoints)
	for k := 1; k <= count; k++ {
		rank := k * n / count
		points = append(points, Point{values[rank-1], float64(rank) / float64(n)})
	}
	return points
}
