package generate

import (
	"math"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/trace"
)

// The generated trace has the figures of Venus in the ASTRAEA paper: table 1, and section 3.1's shares of gangs and of
// GPU time.
func TestVenusLikeHasThePublishedFigures(t *testing.T) {
	t.Parallel()
	o := VenusDefaults()
	o.Jobs = 60_000
	got, err := MakeVenus(o)
	if err != nil {
		t.Fatal(err)
	}
	n := float64(len(got.Jobs))
	count := func(of func(*trace.Job) bool, what func(*trace.Job) float64) (sum float64) {
		for i := range got.Jobs {
			if of(&got.Jobs[i]) {
				sum += what(&got.Jobs[i])
			}
		}
		return sum
	}
	one := func(*trace.Job) float64 { return 1 }
	share := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > .006 {
			t.Errorf("%s: %.4f, published %.4f", what, got, want)
		}
	}
	for seconds, want := range map[float64]float64{600: .673, 3600: .833, 6 * 3600: .906, 86400: .962, 6 * 86400: .996} {
		share("run times", count(func(j *trace.Job) bool { return j.Duration < seconds }, one)/n, want)
	}
	single := func(j *trace.Job) bool { return j.MaxGPUs == 1 }
	share("one GPU", count(single, one)/n, .525)
	share("eight", count(func(j *trace.Job) bool { return j.MaxGPUs == 8 }, one)/n, .226)
	share("more", count(func(j *trace.Job) bool { return j.MaxGPUs > 8 }, one)/n, .103)
	singles := count(single, one)
	share("one GPU for less than an hour", count(func(j *trace.Job) bool { return single(j) && j.Duration < 3600 }, one)/singles, .874)
	share("one GPU for a day", count(func(j *trace.Job) bool { return single(j) && j.Duration >= 86400 }, one)/singles, .022)
	// The shares of GPU time are a consequence, not an input; published are 4.7 % and 85.7 %.
	all := count(func(*trace.Job) bool { return true }, (*trace.Job).GPUSeconds)
	if part := count(single, (*trace.Job).GPUSeconds) / all; math.Abs(part-.047) > .02 {
		t.Errorf("jobs of one GPU have %.3f of the GPU time, published .047", part)
	}
	if part := count(func(j *trace.Job) bool { return j.MaxGPUs >= 8 }, (*trace.Job).GPUSeconds) / all; math.Abs(part-.857) > .03 {
		t.Errorf("jobs of eight and more have %.3f of the GPU time, published .857", part)
	}
	if len(got.Tenants) != 16 {
		t.Errorf("%d tenants", len(got.Tenants))
	}
}
