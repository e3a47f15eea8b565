package plot

import (
	"math"
	"strconv"

	"gonum.org/v1/plot"
)

// ticks labels about five round values of an axis, linear or logarithmic.
type ticks struct{ log bool }

// Ticks implements plot.Ticker.
func (t ticks) Ticks(low, high float64) []plot.Tick {
	if t.log {
		return logTicks(low, high)
	}
	step := math.Pow(10, math.Floor(math.Log10((high-low)/4)))
	for _, by := range []float64{1, 2, 5, 10} {
		if (high-low)/(step*by) <= 7.5 {
			step *= by
			break
		}
	}
	var out []plot.Tick
	first, last := math.Ceil(low/step-1e-9), math.Floor(high/step+1e-9)
	for k := first; k <= last; k++ {
		out = append(out, plot.Tick{Value: k * step, Label: label(k * step)})
	}
	return out
}

// logTicks labels powers of ten, and 2 and 5 times these if there are few.
func logTicks(low, high float64) []plot.Tick {
	var out []plot.Tick
	first, last := math.Floor(math.Log10(low)+1e-9), math.Ceil(math.Log10(high)-1e-9)
	few := last-first <= 3
	every := math.Max(1, math.Ceil((last-first)/8))
	for e := first; e <= last; e++ {
		for n := 1.0; n < 10; n++ {
			v := n * math.Pow(10, e)
			if v < low*(1-1e-9) || v > high*(1+1e-9) {
				continue
			}
			tick := plot.Tick{Value: v}
			if n == 1 && math.Mod(e-first, every) == 0 || few && (n == 2 || n == 5) {
				tick.Label = label(v)
			}
			out = append(out, tick)
		}
	}
	return out
}

// label formats a value briefly: 1.5, 20k, 3M.
func label(v float64) string {
	unit := ""
	switch a := math.Abs(v); {
	case a >= 1e9:
		v, unit = v/1e9, "G"
	case a >= 1e6:
		v, unit = v/1e6, "M"
	case a >= 1e4:
		v, unit = v/1e3, "k"
	case a < 1e-12:
		return "0"
	}
	return strconv.FormatFloat(v, 'g', 6, 64) + unit
}
