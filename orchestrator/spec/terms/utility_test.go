package terms

import (
	"math"
	"testing"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func TestWhatAnEndIsWorth(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		said *outbidv1.Utility
		// worth maps a time in seconds to the worth of finishing then.
		worth map[float64]float64
	}{
		"older names":       {&outbidv1.Utility{Priority: 8, Target: 60, Decay: 1}, map[float64]float64{0: 8, 60: 4, 120: 0}},
		"a sigmoid":         {&outbidv1.Utility{Worth: 8, By: "1m", Decay: 1}, map[float64]float64{0: 8, 60: 4, 120: 0}},
		"one that is level": {&outbidv1.Utility{Worth: 8}, map[float64]float64{0: 4, 1e6: 4}},
		"a step":            {&outbidv1.Utility{Kind: Step, Worth: 8, By: "1m"}, map[float64]float64{0: 8, 60: 8, 61: 0}},
		"a line":            {&outbidv1.Utility{Kind: Linear, Worth: 8, By: "1m", Decay: .01}, map[float64]float64{60: 8, 110: 4, 160: 0, 900: 0}},
	} {
		u, err := UtilityOf(tc.said)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for at, want := range tc.worth {
			if got := u.Value(at); math.Abs(got-want) > 1e-6 {
				t.Errorf("%s: worth %g after %g s, want %g", name, got, at, want)
			}
		}
	}
}

func TestDeadlines(t *testing.T) {
	t.Parallel()
	submitted := time.Date(2026, 11, 1, 6, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"": {}, "6h": submitted.Add(6 * time.Hour), "2026-12-01T18:00:00+01:00": time.Date(2026, 12, 1, 17, 0, 0, 0, time.UTC),
	} {
		compiled, err := Of(&outbidv1.SweepSpec{Deadline: text})
		if err != nil || !compiled.Deadline(submitted).Equal(want) {
			t.Errorf("%q: %v, %v; want %v", text, compiled.Deadline(submitted), err, want)
		}
	}
	for _, text := range []string{"0s", "-6h", "soon", "2026-12-01"} {
		if _, err := Of(&outbidv1.SweepSpec{Deadline: text}); err == nil {
			t.Errorf("%q is a deadline", text)
		}
	}
}
