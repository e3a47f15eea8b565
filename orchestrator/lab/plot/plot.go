// Package plot draws the usual figures of papers on schedulers: distributions, lines over time, values over a setting,
// Gantt charts and bars. Each is written as SVG and as PNG. It needs no display, network or system fonts, because the
// fonts are in the binary. The same data gives the same bytes.
package plot

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// A Figure can be written.
type Figure interface {
	// build returns the plot, the legend, and the size of both together.
	build() (*plot.Plot, plot.Legend, size, error)
}

type size struct{ width, height vg.Length }

// usual returns the size of most figures, one and a half columns of a paper.
func usual() size { return size{7 * vg.Inch, 4 * vg.Inch} }

// pngDPI makes the usual figure 1,050 pixels wide.
const pngDPI = 150

// legendEntries is the maximum number of legend entries; further series are drawn without one.
const legendEntries = 20

// Write writes dir/name.svg and dir/name.png, and creates dir if necessary. It returns the two paths.
func Write(dir, name string, f Figure) ([]string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("figure %s: %w", name, err)
	}
	svg, png, err := Render(f)
	if err != nil {
		return nil, fmt.Errorf("figure %s: %w", name, err)
	}
	paths := []string{filepath.Join(dir, name+".svg"), filepath.Join(dir, name+".png")}
	for i, data := range [][]byte{svg, png} {
		if err := os.WriteFile(paths[i], data, 0o644); err != nil {
			return nil, fmt.Errorf("figure %s: %w", name, err)
		}
	}
	return paths, nil
}

// Render draws a figure as SVG and as PNG.
func Render(f Figure) (svg, png []byte, err error) {
	p, legend, s, err := f.build()
	if err != nil {
		return nil, nil, err
	}
	// The library misplaces the label of a logarithmic Y axis, so drawTo draws it.
	label := p.Y.Label.Text
	p.Y.Label.Text = ""
	vector := vgsvg.New(s.width, s.height)
	drawTo(draw.New(vector), p, legend, label)
	raster := vgimg.NewWith(vgimg.UseWH(s.width, s.height), vgimg.UseDPI(pngDPI))
	drawTo(draw.New(raster), p, legend, label)
	var a, b bytes.Buffer
	if _, err := vector.WriteTo(&a); err != nil {
		return nil, nil, err
	}
	if _, err := (vgimg.PngCanvas{Canvas: raster}).WriteTo(&b); err != nil {
		return nil, nil, err
	}
	return a.Bytes(), b.Bytes(), nil
}

// drawTo draws the plot with the legend to its right, where it does not cover the data, and the label of Y to its left.
func drawTo(c draw.Canvas, p *plot.Plot, legend plot.Legend, label string) {
	c.SetColor(color.White)
	c.Fill(c.Path())
	c = draw.Crop(c, vg.Points(4), -vg.Points(8), vg.Points(4), -vg.Points(6))
	if label != "" {
		style := p.Y.Label.TextStyle
		high := style.Height(label)
		style.Rotation += math.Pi / 2
		c.FillText(style, vg.Point{X: c.Min.X + high - style.FontExtents().Descent, Y: c.Center().Y}, label)
		c = draw.Crop(c, high+p.Y.Label.Padding, 0, 0, 0)
	}
	r := legend.Rectangle(c)
	legend.YOffs = -p.Title.TextStyle.FontExtents().Height - p.Title.Padding
	legend.Draw(c)
	p.Draw(draw.Crop(c, 0, -(r.Max.X - r.Min.X + vg.Points(8)), 0, 0))
}

// newPlot returns an empty plot in Outbid's style.
func newPlot(title, x, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Title.TextStyle.Font = sans(12)
	p.Title.Padding = vg.Points(6)
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Label.TextStyle.Font = sans(11)
		axis.Label.Padding = vg.Points(3)
		axis.Tick.Label.Font = sans(9)
		axis.LineStyle.Width = vg.Points(.75)
		axis.Tick.LineStyle.Width = vg.Points(.5)
		axis.Tick.Marker = ticks{}
		axis.Padding = vg.Points(2)
	}
	return p
}

func newLegend() plot.Legend {
	l := plot.NewLegend()
	l.TextStyle.Font = sans(9)
	l.Top, l.Left = true, false
	l.Padding = vg.Points(2)
	l.ThumbnailWidth = vg.Points(18)
	return l
}

func sans(points float64) font.Font {
	return font.From(font.Font{Typeface: "Liberation", Variant: "Sans"}, vg.Points(points))
}

// colours are those of Okabe and Ito, which colour-blind people can distinguish too. Yellow is last because it is too
// light for a line.
func colours() []color.NRGBA {
	return []color.NRGBA{
		{0, 114, 178, 255},
		{213, 94, 0, 255},
		{0, 158, 115, 255},
		{204, 121, 167, 255},
		{86, 180, 233, 255},
		{230, 159, 0, 255},
		{0, 0, 0, 255},
		{190, 180, 30, 255},
	}
}

func colour(i int) color.NRGBA {
	all := colours()
	return all[i%len(all)]
}

// dashes distinguish lines of the same colour.
func dashes(i int) []vg.Length {
	patterns := [][]vg.Length{
		nil,
		{vg.Points(5), vg.Points(2)},
		{vg.Points(1.5), vg.Points(1.5)},
		{vg.Points(6), vg.Points(2), vg.Points(1.5), vg.Points(2)},
	}
	return patterns[i/len(colours())%len(patterns)]
}

// shade returns the i-th of any number of colours. Neighbouring ones differ most, because hues advance by the golden
// angle.
func shade(i int) color.NRGBA {
	hue := math.Mod(float64(i)*0.618033988749895, 1) * 6
	light := []float64{.55, .75, .40}[i/7%3]
	part := func(shift float64) uint8 {
		at := math.Mod(hue+shift, 6)
		v := min(max(min(at, 4-at), 0), 1)
		return uint8(math.Round(255 * (light + (v-.5)*.6*(1-math.Abs(2*light-1)))))
	}
	return color.NRGBA{part(2), part(0), part(4), 255}
}

// finite reports whether a value can be drawn on a scale.
func finite(v float64, log bool) bool {
	return !math.IsNaN(v) && !math.IsInf(v, 0) && (!log || v > 0)
}
