package plot_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"image/png"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/lab/plot"
)

// figures returns a figure of each kind.
func figures() map[string]plot.Figure {
	rng := rand.New(rand.NewPCG(1, 1))
	sample := func(name string, n int, scale float64) plot.Sample {
		s := plot.Sample{Name: name}
		for range n {
			s.Values = append(s.Values, scale*math.Exp(rng.NormFloat64()))
		}
		return s
	}
	line := func(name string, n int, f func(float64) float64) plot.Series {
		s := plot.Series{Name: name}
		for i := range n {
			s.Points = append(s.Points, plot.Point{X: float64(i), Y: f(float64(i))})
		}
		return s
	}
	gantt := plot.Gantt{Title: "Who had what", X: "hours"}
	for node := range 3 {
		for d := range 4 {
			gantt.Rows = append(gantt.Rows, fmt.Sprintf("node-%d/%d", node, d))
		}
	}
	for i := range 60 {
		row := (i * 5) % 12
		bar := plot.Bar{Rows: []int{row}, From: float64(i / 12 * 3), Till: float64(i/12*3) + 2.5, Group: fmt.Sprintf("app-%d", i%7)}
		if row%2 == 0 {
			bar.Rows = append(bar.Rows, row+1)
		}
		gantt.Bars = append(gantt.Bars, bar)
	}
	sweep := plot.Lines{
		Title: "Cost of a decision", X: "jobs", Y: "ms", LogX: true, LogY: true, Marks: true,
		Series: []plot.Series{{Name: "fifo"}, {Name: "gavel-las-perf"}},
	}
	for n := 32.0; n <= 100_000; n *= 4 {
		sweep.Series[0].Points = append(sweep.Series[0].Points, plot.Point{X: n, Y: n * 1e-4})
		sweep.Series[1].Points = append(sweep.Series[1].Points, plot.Point{X: n, Y: n * 1e-2})
	}
	many := make([]plot.Sample, 0, 26)
	for i := range 26 {
		many = append(many, sample(fmt.Sprintf("policy %d", i), 100, float64(1+i)))
	}
	return map[string]plot.Figure{
		"cdf":         plot.CDF("Completion time", "hours", true, sample("fifo", 5000, 4), sample("themis", 300, 2)),
		"cdf-many":    plot.CDF("Completion time", "hours", false, many...),
		"utilisation": plot.Lines{Title: "Utilisation", X: "hours", Y: "share", FromZero: true, MaxY: 1, Series: []plot.Series{line("fifo", 90, func(x float64) float64 { return .8 + .2*math.Sin(x/9) })}},
		"sweep":       sweep,
		"gantt":       gantt,
		"bars": plot.Bars{
			Title: "Worst rho", Y: "rho", Level: 1, Groups: []string{"fifo", "srtf", "gandiva", "tiresias", "optimus", "slaq", "themis"},
			Series: []plot.Sample{{Name: "workload 1", Values: []float64{9, 8, 7, 6, 5, 4, 3}}, {Name: "workload 2", Values: []float64{5, math.NaN(), 7, 6, 5, 4, 2}}},
		},
	}
}

func TestFiguresAreDrawnAlikeTwice(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if keep := os.Getenv("OUTBID_TEST_FIGURES"); keep != "" {
		dir = keep
	}
	for name, f := range figures() {
		paths, err := plot.Write(filepath.Join(dir, "figures"), name, f)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		svg, image := read(t, paths[0]), read(t, paths[1])
		if name == "gantt" || name == "sweep" { // all kinds of drawing; it suffices to render two of them twice
			again, imageAgain, err := plot.Render(figures()[name])
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(again, svg) || !bytes.Equal(imageAgain, image) {
				t.Errorf("%s was drawn differently the second time", name)
			}
		}
		if len(svg) > 1<<20 {
			t.Errorf("%s: %d bytes of SVG", name, len(svg))
		}
		decoder := xml.NewDecoder(bytes.NewReader(svg))
		for {
			if _, err := decoder.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s.svg: %v", name, err)
			}
		}
		if _, err := png.Decode(bytes.NewReader(image)); err != nil {
			t.Errorf("%s.png: %v", name, err)
		}
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestWhatCannotBeDrawnIsAnErrorOrLeftOut(t *testing.T) {
	t.Parallel()
	nan := math.NaN()
	for name, f := range map[string]plot.Figure{
		"no series":      plot.Lines{},
		"only NaN":       plot.Lines{Series: []plot.Series{{Points: []plot.Point{{X: nan, Y: 1}, {X: 1, Y: nan}}}}},
		"log of nothing": plot.CDF("", "", true, plot.Sample{Values: []float64{0, -1}}),
		"no bars":        plot.Gantt{Rows: []string{"a"}},
		"no groups":      plot.Bars{},
		"row too high":   plot.Gantt{Rows: []string{"a"}, Bars: []plot.Bar{{Rows: []int{1}, Till: 1}}},
		"too few values": plot.Bars{Groups: []string{"a", "b"}, Series: []plot.Sample{{Values: []float64{1}}}},
	} {
		if _, err := plot.Write(t.TempDir(), "f", f); err == nil || !strings.HasPrefix(err.Error(), "figure f: ") {
			t.Errorf("%s: error %v", name, err)
		}
	}
	for name, f := range map[string]plot.Figure{
		"one point":     plot.Lines{LogX: true, LogY: true, Series: []plot.Series{{Points: []plot.Point{{X: 3, Y: 3}}}}},
		"zeros":         plot.Lines{Series: []plot.Series{{Points: []plot.Point{{}, {X: 1}}}}},
		"one value":     plot.CDF("", "", false, plot.Sample{Values: []float64{5}}),
		"with infinity": plot.CDF("", "", true, plot.Sample{Values: []float64{1, math.Inf(1), nan, 0, 3}}),
		"tiny":          plot.CDF("", "", false, plot.Sample{Values: []float64{1e-300, 2e-300}}),
		"huge":          plot.CDF("", "", true, plot.Sample{Values: []float64{1e-12, 1e300}}),
		"a moment":      plot.Gantt{Rows: []string{"a"}, Bars: []plot.Bar{{Rows: []int{0}, From: 2, Till: 2}}},
	} {
		if _, _, err := plot.Render(f); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
