package trace

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// realFile returns the path of a real trace outside the repository, and skips the test if it is missing.
func realFile(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join("..", "..", "..", "shared", "data", "traces", name)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("the real trace is not here: %v", err)
	}
	return path
}

func openReal(t *testing.T, name string) *Trace {
	t.Helper()
	got, err := Open(realFile(t, name), Options{})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestRealTraces(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		file, format string
		jobs         int
		tenants      int
	}{
		{"philly_82k.csv.gz", "common csv", 82247, 15},
		{"helios_venus_2vc_sept.csv.gz", "common csv", 1867, 2},
		{"openb_default.csv.gz", "common csv", 8152, 4},
		{"muri_trace1.csv.gz", "common csv", 1494, 0},
		{"muri_trace2.csv.gz", "common csv", 5755, 0},
		{"gavel_msr_seed0_allvc.csv.gz", "common csv", 15264, 15},
		{"gavel_max_min_fairness.csv.gz", "common csv", 96, 0},
		{"shockwave_120_100_40.csv.gz", "common csv", 120, 0},
		{"shockwave_220_100_25.csv.gz", "common csv", 220, 0},
		{"gavel/peer/gavel300_multi_lam900_s0.trace", "gavel trace", 300, 0},
		{"gavel/physical_cluster/minimize_makespan.trace", "gavel trace", 100, 0},
		{"gavel/msr_seed0/b436b2.trace.gz", "gavel vc trace", -1, 1},
		{"shockwave/120_0.2_5_100_40_25_0,0.5,0.5_0.6,0.3,0.09,0.01_multigpu_dynamic.trace", "shockwave trace", 120, 0},
		{"tiresias/60_job.csv", "tiresias csv", 60, 0},
	} {
		t.Run(c.file, func(t *testing.T) {
			t.Parallel()
			got := openReal(t, c.file)
			s := got.Summary()
			if got.Report.Format != c.format || c.jobs >= 0 && s.Jobs != c.jobs || s.Tenants != c.tenants {
				t.Errorf("got %s, %d tenants; want %s, %d jobs, %d tenants", got.Report.String(), s.Tenants, c.format, c.jobs, c.tenants)
			}
			if got.Report.Broken+len(got.Report.LeftOut) > 0 || got.Report.Rows != len(got.Jobs) {
				t.Errorf("rows were lost: %s", got.Report.String())
			}
		})
	}
}

// The durations in the common-CSV files of Gavel's traces equal those that Gavel's table gives for their steps.
func TestCommonAndPublishedFormsAgree(t *testing.T) {
	t.Parallel()
	table, err := OpenThroughputs(realFile(t, "gavel/simulation_throughputs.json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	for common, published := range map[string]string{
		"gavel_minimize_makespan.csv.gz": "gavel/physical_cluster/minimize_makespan.trace",
		"gavel_max_min_fairness.csv.gz":  "gavel/physical_cluster/max_min_fairness.trace",
	} {
		want := openReal(t, common)
		got, err := openReal(t, published).Timed(table, "v100")
		if err != nil {
			t.Fatal(err)
		}
		about := cmpopts.EquateApprox(0, .051)
		if diff := cmp.Diff(want.Jobs, got.Jobs, about); diff != "" {
			t.Errorf("%s and %s (-want +got):\n%s", common, published, diff)
		}
	}
	want := openReal(t, "shockwave_120_100_40.csv.gz")
	got := openReal(t, "shockwave/120_0.2_5_100_40_25_0,0.5,0.5_0.6,0.3,0.09,0.01_multigpu_dynamic.trace")
	if diff := cmp.Diff(want.Jobs, got.Jobs, cmpopts.IgnoreFields(Job{}, "MeasuredOn")); diff != "" {
		t.Errorf("shockwave (-want +got):\n%s", diff)
	}
}

func TestRealThroughputs(t *testing.T) {
	t.Parallel()
	full, err := OpenThroughputs(realFile(t, "gavel/simulation_throughputs.json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	alone, err := OpenThroughputs(realFile(t, "gavel_throughputs_isolated.csv.gz"))
	if err != nil {
		t.Fatal(err)
	}
	if full.Len() != 492 || alone.Len() != 492 {
		t.Errorf("%d and %d speeds, want 492", full.Len(), alone.Len())
	}
	if diff := cmp.Diff([]string{"k80", "p100", "v100"}, full.GPUTypes()); diff != "" {
		t.Error(diff)
	}
	for _, gpuType := range []string{"k80", "p100", "v100", "k80" + Spread, "p100" + Spread, "v100" + Spread} {
		for _, job := range full.JobTypes(gpuType) {
			a, _ := full.Isolated(job.Model, job.GPUs, gpuType)
			b, err := alone.Isolated(job.Model, job.GPUs, gpuType)
			if err != nil || math.Abs(a-b) > 1e-9 {
				t.Errorf("%s on %s: %g and %g, %v", job, gpuType, a, b, err)
			}
		}
	}
	a, b, err := full.Pair(JobType{"ResNet-18 (batch size 16)", 1}, JobType{"ResNet-18 (batch size 64)", 1}, "v100")
	if err != nil || math.Abs(a-32.353384328946916) > 1e-9 || math.Abs(b-24.093231895382736) > 1e-9 {
		t.Errorf("pair: %g, %g, %v", a, b, err)
	}
	if shock, err := OpenThroughputs(realFile(t, "shockwave/tacc_throughputs.json.gz")); err != nil || shock.Len() == 0 {
		t.Errorf("shockwave's table: %v", err)
	}
}
