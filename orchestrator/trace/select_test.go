package trace

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func ids(t *Trace) string {
	var names []string
	for _, j := range t.Jobs {
		names = append(names, j.ID)
	}
	return strings.Join(names, "")
}

func four() *Trace {
	return &Trace{
		Name: "four",
		Jobs: []Job{
			{ID: "a", Tenant: "x", Submit: 0, MinGPUs: 1, MaxGPUs: 1, Share: 1, Duration: 3600, Weight: 1, App: "p"},
			{ID: "b", Tenant: "y", Submit: 10, MinGPUs: 0, MaxGPUs: 0, Share: 1, Duration: 5, Weight: 1},
			{ID: "c", Tenant: "x", Submit: 20, MinGPUs: 2, MaxGPUs: 4, Share: .5, Duration: 7200, TotalSteps: 10, Weight: 1, App: "q"},
			{ID: "d", Tenant: "z", Submit: 25, MinGPUs: 8, MaxGPUs: 8, Share: 1, TotalSteps: 3, Weight: 1},
		},
		Apps:    []App{{ID: "p", Tuner: "none"}, {ID: "q", Tuner: "successive-halving", Eta: 2, MinSteps: 1, MaxSteps: 10}},
		Tenants: []Tenant{{"x", 1}, {"y", 2}, {"z", 3}},
	}
}

func TestSelections(t *testing.T) {
	t.Parallel()
	in := four()
	if got := in.Window(10, 25); ids(got) != "bc" || got.Jobs[1].Submit != 10 || len(got.Apps) != 1 || len(got.Tenants) != 2 {
		t.Errorf("window: %+v", got)
	}
	if got := in.Head(2); ids(got) != "ab" {
		t.Errorf("head: %s", ids(got))
	}
	if got := ids(in.Head(99)) + ids(in.Head(-1)); got != "abcd" {
		t.Errorf("head: %s", got)
	}
	if got := ids(in.OfTenants("x", "z")); got != "acd" {
		t.Errorf("tenants: %s", got)
	}
	if got := ids(in.GPUJobs()); got != "acd" {
		t.Errorf("GPU jobs: %s", got)
	}
	if got := in.Busiest(10); got != 20 {
		t.Errorf("busiest: %g", got)
	}
	got, err := in.Scale(2, .05)
	if err != nil || got.Jobs[2].Submit != 10 || got.Jobs[2].Duration != 360 || got.Jobs[2].TotalSteps != 1 ||
		got.Jobs[3].TotalSteps != 1 || got.Jobs[1].TotalSteps != 0 || got.Apps[1].MaxSteps != 1 {
		t.Errorf("scale: %+v, %v", got, err)
	}
	for _, bad := range [][2]float64{{0, 1}, {1, -1}, {math.NaN(), 1}, {1, math.Inf(1)}} {
		if _, err := in.Scale(bad[0], bad[1]); err == nil {
			t.Errorf("scale by %v was taken", bad)
		}
	}
	if diff := cmp.Diff(four(), in); diff != "" {
		t.Errorf("the trace itself changed:\n%s", diff)
	}
}

func TestSummary(t *testing.T) {
	t.Parallel()
	got := four().Summary()
	want := Summary{
		Jobs: 4, GPUJobs: 3, Apps: 2, Tenants: 3, Span: 25, GPUHours: 5, Untimed: 1,
		GPUs:     Quantiles{Mean: 11. / 3, Min: 1, P10: 1, P50: 2, P90: 8, P99: 8, Max: 8},
		Duration: Quantiles{Mean: 3601.6666666666665, Min: 5, P10: 5, P50: 3600, P90: 7200, P99: 7200, Max: 7200},
		Gap:      Quantiles{Mean: 25. / 3, Min: 5, P10: 5, P50: 10, P90: 10, P99: 10, Max: 10},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if text := got.String(); !strings.Contains(text, "4 jobs (3 with GPUs), 2 apps, 3 tenants") {
		t.Error(text)
	}
	if empty := (&Trace{}).Summary(); empty != (Summary{}) {
		t.Errorf("empty: %+v", empty)
	}
}

func TestBusiestIsTheBusiest(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := &Trace{}
		for _, at := range rapid.SliceOfN(rapid.IntRange(0, 60), 1, 30).Draw(t, "arrivals") {
			in.Jobs = append(in.Jobs, Job{Submit: float64(at)})
		}
		in.Order()
		length := float64(rapid.IntRange(1, 30).Draw(t, "seconds"))
		at := in.Busiest(length)
		best := len(in.Window(at, at+length).Jobs)
		for start := -30.; start < 60; start++ {
			if n := len(in.Window(start, start+length).Jobs); n > best {
				t.Fatalf("%d jobs from %g on, %d from %g on", n, start, best, at)
			}
		}
	})
}
