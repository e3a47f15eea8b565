package plot

import (
	"fmt"
	"image/color"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

func faint() color.NRGBA     { return color.NRGBA{225, 225, 225, 255} }
func faintText() color.NRGBA { return color.NRGBA{110, 110, 110, 255} }

// Bar is a time interval in which rows (devices) were in use.
type Bar struct {
	// Rows are indices.
	Rows       []int
	From, Till float64
	// Group (an app) determines the colour.
	Group string
}

// Gantt shows which group used which row when.
type Gantt struct {
	Title, X string
	// Rows are names, from the bottom up.
	Rows []string
	Bars []Bar
}

// rowsNamed is the number of rows up to which all are labelled.
const rowsNamed = 48

func (g Gantt) build() (*plot.Plot, plot.Legend, size, error) {
	p, legend := newPlot(g.Title, g.X, ""), newLegend()
	if len(g.Bars) == 0 || len(g.Rows) == 0 {
		return nil, legend, size{}, ErrEmpty
	}
	marks := plot.ConstantTicks{}
	every := 1 + (len(g.Rows)-1)/rowsNamed
	for i, name := range g.Rows {
		if i%every == 0 {
			marks = append(marks, plot.Tick{Value: float64(i), Label: name})
		}
	}
	p.Y.Tick.Marker = marks
	p.Y.Tick.Label.Font = sans(7)
	b := bars{list: g.Bars, colours: map[string]color.NRGBA{}, rows: len(g.Rows)}
	for _, bar := range g.Bars {
		for _, row := range bar.Rows {
			if row < 0 || row >= len(g.Rows) {
				return nil, legend, size{}, fmt.Errorf("a bar of %s is in row %d of %d", bar.Group, row, len(g.Rows))
			}
		}
		if _, known := b.colours[bar.Group]; known {
			continue
		}
		c := shade(len(b.colours))
		b.colours[bar.Group] = c
		if len(b.colours) <= legendEntries {
			legend.Add(bar.Group, patch{c})
		}
	}
	p.Add(b)
	widen(&p.X, false)
	height := vg.Length(min(max(len(g.Rows), 12), 90))*vg.Points(8) + vg.Inch
	return p, legend, size{9 * vg.Inch, height}, nil
}

// bars draws the chart's bars.
type bars struct {
	list    []Bar
	colours map[string]color.NRGBA
	rows    int
}

// Plot implements plot.Plotter.
func (b bars) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	for _, bar := range b.list {
		left, right := x(bar.From), x(bar.Till)
		for _, run := range runs(bar.Rows) {
			low, high := y(float64(run[0])-.45), y(float64(run[1])+.45)
			c.FillPolygon(b.colours[bar.Group], []vg.Point{
				{X: left, Y: low}, {X: right, Y: low}, {X: right, Y: high}, {X: left, Y: high},
			})
		}
	}
}

// runs joins neighbouring rows, so that a gang is drawn as one rectangle.
func runs(rows []int) [][2]int {
	var out [][2]int
	for _, row := range slices.Sorted(slices.Values(rows)) {
		if n := len(out); n > 0 && out[n-1][1]+1 == row {
			out[n-1][1] = row
			continue
		}
		out = append(out, [2]int{row, row})
	}
	return out
}

// DataRange implements plot.DataRanger.
func (b bars) DataRange() (xmin, xmax, ymin, ymax float64) {
	xmin, xmax = b.list[0].From, b.list[0].Till
	for _, bar := range b.list {
		xmin, xmax = min(xmin, bar.From), max(xmax, bar.Till)
	}
	return xmin, xmax, -.5, float64(b.rows) - .5
}

// patch is a colour in a legend.
type patch struct{ colour color.NRGBA }

// Thumbnail implements plot.Thumbnailer.
func (p patch) Thumbnail(c *draw.Canvas) {
	c.FillPolygon(p.colour, []vg.Point{
		{X: c.Min.X, Y: c.Min.Y}, {X: c.Max.X, Y: c.Min.Y}, {X: c.Max.X, Y: c.Max.Y}, {X: c.Min.X, Y: c.Max.Y},
	})
}
