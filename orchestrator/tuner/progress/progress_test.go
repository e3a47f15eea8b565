package progress_test

import (
	"math"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/tuner/progress"
)

// Marks grow by about 1.4, without repetition, up to a step that fits.
func TestMarksRise(t *testing.T) {
	t.Parallel()
	for k := 1; k < progress.MaxMarks; k++ {
		before, now := progress.Mark(k-1), progress.Mark(k)
		if now <= before || float64(now) > 2*float64(before) {
			t.Fatalf("mark %d is %d, after %d", k, now, before)
		}
	}
}

// report reports costs at marks; the last one is also the end if whole is set.
func report(c *progress.Curves, trial int, whole bool, costs ...float64) {
	for k, cost := range costs {
		c.Report(trial, progress.Mark(k), cost)
	}
	c.SetWhole(trial, whole)
}

func TestAReportThatPassesSeveralMarksCountsAtTheLast(t *testing.T) {
	t.Parallel()
	var c progress.Curves
	if !c.Report(0, 3, 7) || c.Report(0, 3, 5) || c.Report(0, 2, 1) || !c.Report(0, 4, 4) {
		t.Error("a mark is passed by the first report at or past it, and by no other")
	}
	got := c.Trials[0]
	if len(got.Costs) != 4 || !math.IsNaN(got.Costs[1]) || got.Costs[2] != 7 || got.Costs[3] != 4 || got.Last != 4 || got.Reports != 2 {
		t.Errorf("got %+v", got)
	}
}

// A trial that was stopped is forecast to end between those that were nearest at the same step.
func TestForecastFollowsNeighbours(t *testing.T) {
	t.Parallel()
	var c progress.Curves
	report(&c, 0, true, 10, 5, 1)
	report(&c, 1, true, 20, 9, 3)
	report(&c, 2, true, 30, 9, 8)
	for trial, costs := range [][]float64{{5}, {12, 7}, {25}, {34}, {math.NaN()}} {
		report(&c, trial+3, false, costs...)
	}
	for trial, want := range map[int]float64{0: 1, 3: 1, 4: 2, 5: 5.5, 6: 12, 7: math.Inf(1)} {
		if got, known := c.Forecaster().Of(trial); got != want || !known {
			t.Errorf("trial %d is forecast to end at %v, want %v", trial, got, want)
		}
	}
	if _, known := c.Forecaster().Of(8); known {
		t.Error("a trial that has not reported has a forecast")
	}
}

// Before trials have ended, the forecast is for the last mark that enough trials reached.
func TestForecastWithoutEnds(t *testing.T) {
	t.Parallel()
	var c progress.Curves
	report(&c, 0, false, 10, 5, 4)
	if got, _ := c.Forecaster().Of(0); got != 4 {
		t.Errorf("the first trial is forecast to end at %v, want its newest cost", got)
	}
	report(&c, 1, false, 20, 8, 6)
	report(&c, 2, false, 30, 9, 9)
	report(&c, 3, false, 15)
	if got, _ := c.Forecaster().Of(3); got != 5 {
		t.Errorf("got %v, want the mean of 4 and 6", got)
	}
}

func TestOldCurvesAreForgotten(t *testing.T) {
	t.Parallel()
	var c progress.Curves
	report(&c, 0, true, 1, 2)
	for trial := range progress.Recent {
		report(&c, trial+1, true, 1, 2)
	}
	if c.First() != 1 || c.Trials[0].Costs != nil || c.Trials[1].Costs == nil {
		t.Errorf("the first kept curve is that of trial %d", c.First())
	}
	if _, known := c.Forecaster().Of(0); known || c.Report(0, 9, 1) {
		t.Error("a forgotten trial is forecast or passes a mark")
	}
}
