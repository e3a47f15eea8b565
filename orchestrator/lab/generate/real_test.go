package generate

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/trace"
)

// realFile returns the path of a real trace outside the repository, and skips the test if it is missing.
func realFile(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join("..", "..", "..", "..", "shared", "data", "traces", name)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("the real trace is not here: %v", err)
	}
	return path
}

func openReal(t *testing.T, name string) *trace.Trace {
	t.Helper()
	got, err := trace.Open(realFile(t, name), trace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// A generated trace resembles one of Gavel's generator.
func TestMadeGavelTraceLooksLikeTheRealOne(t *testing.T) {
	t.Parallel()
	table, err := trace.OpenThroughputs(realFile(t, "gavel/simulation_throughputs.json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	real, err := openReal(t, "gavel/peer/gavel300_multi_lam900_s0.trace").Timed(table, "v100")
	if err != nil {
		t.Fatal(err)
	}
	o := GavelDefaults(table)
	o.Jobs = 5000
	made, err := MakeGavel(o)
	if err != nil {
		t.Fatal(err)
	}
	r, m := real.Summary(), made.Summary()
	near(t, "gap", m.Gap.Mean, r.Gap.Mean, .15)
	near(t, "duration", m.Duration.Mean, r.Duration.Mean, .1)
	near(t, "GPUs", m.GPUs.Mean, r.GPUs.Mean, .15)
}

func TestASTRAEASnapshotsOfRealTraces(t *testing.T) {
	t.Parallel()
	philly := openReal(t, "philly_82k.csv.gz")
	o := ASTRAEAPhilly(philly)
	o.Seed = 7
	got, err := MakeASTRAEA(o)
	if err != nil {
		t.Fatal(err)
	}
	s := got.Summary()
	if s.Jobs != 44329 || s.Span > 14*86400 || len(got.Tenants) != s.Tenants || s.Tenants < 12 || s.Tenants > 15 {
		t.Errorf("got %s", s)
	}
	sum := 0.0
	for _, tenant := range got.Tenants {
		sum += tenant.Weight
	}
	near(t, "the weights' sum", sum, 1, 1e-9)
	venus, err := MakeASTRAEA(ASTRAEAOptions{Base: openReal(t, "helios_venus_2vc_sept.csv.gz"), Days: 14, Jobs: 500})
	if err != nil || len(venus.Jobs) != 500 {
		t.Errorf("venus: %v", err)
	}
}

func TestHadarFromPhilly(t *testing.T) {
	t.Parallel()
	table, err := trace.OpenThroughputs(realFile(t, "gavel/simulation_throughputs.json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	for _, uniform := range []bool{false, true} {
		o := HadarDefaults(table)
		o.Base, o.UniformSizes = openReal(t, "philly_82k.csv.gz"), uniform
		got, err := MakeHadar(o)
		if err != nil {
			t.Fatal(err)
		}
		checkHadar(t, got, uniform)
	}
	themis := ThemisDefaults(false)
	themis.Arrivals = openReal(t, "philly_82k.csv.gz")
	got, err := MakeThemis(themis)
	if err != nil {
		t.Fatal(err)
	}
	if s := got.Summary(); s.Apps != 85 || s.Span > 14*86400 {
		t.Errorf("got %s", s)
	}
}

func checkHadar(t *testing.T, got *trace.Trace, uniform bool) {
	t.Helper()
	counts := make(map[string]int)
	for i := range got.Jobs {
		job := &got.Jobs[i]
		counts[job.Status]++
		size := hadarSizes()[slices.IndexFunc(hadarSizes(), func(s hadarSize) bool { return s.name == job.Status })]
		family, _, _ := cutModel(job.Model)
		hours := job.GPUSeconds() / 3600
		if job.Submit != 0 || job.TotalSteps < 1 || !slices.Contains(size.families, family) ||
			hours < size.low-1e-9 || hours > size.high+1e-9 {
			t.Errorf("job %+v with %g GPU-hours does not fit size %s", job, hours, size.name)
		}
	}
	if len(got.Jobs) != 480 {
		t.Errorf("%d jobs, want 480", len(got.Jobs))
	}
	for name, n := range counts {
		if uniform && (n < 85 || n > 155) {
			t.Errorf("%d of 480 jobs of size %s, want about 120", n, name)
		}
	}
}
