package generate

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/outbid-dev/outbid/orchestrator/trace"
)

// median returns the lower median of values.
func median(values []float64) float64 {
	slices.Sort(values)
	return values[(len(values)-1)/2]
}

func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if math.Abs(got-want) > tolerance*math.Abs(want) {
		t.Errorf("%s: got %g, want %g within %g %%", what, got, want, tolerance*100)
	}
}

// madeTable returns a table of throughputs with all of Gavel's job types.
func madeTable(t *testing.T) *trace.Throughputs {
	t.Helper()
	var rows []string
	for i, m := range gavelModels() {
		for _, gpus := range []int{1, 2, 4, 8} {
			if gpus == 1 || m.distributed {
				rows = append(rows, fmt.Sprintf(`"('%s', %d)": {"null": %d}`, m.name, gpus, (i+1)*gpus))
			}
		}
	}
	table, err := trace.ReadThroughputs(strings.NewReader(`{"v100": {`+strings.Join(rows, ", ")+`}}`), "made")
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// makers returns all makers, as functions of the seed.
func makers(t *testing.T) map[string]func(seed uint64) (*trace.Trace, error) {
	t.Helper()
	return map[string]func(uint64) (*trace.Trace, error){
		"gavel": func(seed uint64) (*trace.Trace, error) {
			o := GavelDefaults(madeTable(t))
			o.Seed, o.Priorities, o.SLOs = seed, true, true
			return MakeGavel(o)
		},
		"gavel continuous": func(seed uint64) (*trace.Trace, error) {
			o := GavelContinuousDefaults(madeTable(t))
			o.Seed = seed
			return MakeGavel(o)
		},
		"themis 1": func(seed uint64) (*trace.Trace, error) {
			o := ThemisDefaults(false)
			o.Seed = seed
			return MakeThemis(o)
		},
		"themis 2": func(seed uint64) (*trace.Trace, error) {
			o := ThemisDefaults(true)
			o.Seed, o.Network, o.Contention = seed, .5, 4
			return MakeThemis(o)
		},
		"hadar": func(seed uint64) (*trace.Trace, error) {
			o := HadarDefaults(madeTable(t))
			o.Seed, o.Arrive = seed, true
			return MakeHadar(o)
		},
		"oasis": func(seed uint64) (*trace.Trace, error) {
			o := OASiSDefaults()
			o.Seed = seed
			w, err := MakeOASiS(o)
			if err != nil {
				return nil, err
			}
			return w.Trace(), nil
		},
		"ogasched": func(seed uint64) (*trace.Trace, error) {
			o := OGASchedDefaults()
			o.Seed, o.Slots = seed, 50
			w, err := MakeOGASched(o)
			if err != nil {
				return nil, err
			}
			return w.Trace(2, 60)
		},
		"venus": func(seed uint64) (*trace.Trace, error) {
			o := VenusDefaults()
			o.Seed, o.Jobs = seed, 200
			return MakeVenus(o)
		},
		"astraea": func(seed uint64) (*trace.Trace, error) {
			o := GavelContinuousDefaults(madeTable(t))
			o.Seed, o.Lambda = seed, 7200
			base, err := MakeGavel(o)
			if err != nil {
				return nil, err
			}
			return MakeASTRAEA(ASTRAEAOptions{Seed: seed, Base: base, Days: 7, Jobs: 400})
		},
	}
}

func TestMakersAreDeterministicAndSound(t *testing.T) {
	t.Parallel()
	for name, maker := range makers(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// Few seeds, because generating a trace takes time; the distributions have separate tests.
			for _, seed := range []uint64{0, 7, math.MaxUint64 - 1} {
				first := written(t, maker, seed)
				if again := written(t, maker, seed); !bytes.Equal(first, again) {
					t.Fatalf("seed %d made two different traces", seed)
				}
				other := written(t, maker, seed+1)
				if _, jobs, _ := bytes.Cut(first, []byte("\n")); bytes.HasSuffix(other, jobs) {
					t.Fatalf("seeds %d and %d made the same jobs", seed, seed+1)
				}
			}
		})
	}
}

// written makes a trace, checks it and returns it as JSON lines.
func written(t *testing.T, maker func(uint64) (*trace.Trace, error), seed uint64) []byte {
	t.Helper()
	made, err := maker(seed)
	if err != nil {
		t.Fatal(err)
	}
	apps, seen := make(map[string]bool), make(map[string]bool)
	for _, a := range made.Apps {
		apps[a.ID] = true
	}
	for i := range made.Jobs {
		job := &made.Jobs[i]
		if err := job.Validate(); err != nil {
			t.Fatalf("job %d: %v", i, err)
		}
		if seen[job.ID] || job.App != "" && !apps[job.App] || i > 0 && job.Submit < made.Jobs[i-1].Submit {
			t.Fatalf("job %d, %q: twice, without its app, or out of order", i, job.ID)
		}
		seen[job.ID] = true
	}
	var out bytes.Buffer
	if err := made.WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestGavelDistributions(t *testing.T) {
	t.Parallel()
	o := GavelContinuousDefaults(madeTable(t))
	o.Jobs, o.Priorities, o.SLOs = 40000, true, true
	got, err := MakeGavel(o)
	if err != nil {
		t.Fatal(err)
	}
	s := got.Summary()
	near(t, "gap", s.Gap.Mean, 900, .03)
	// 80 % of 10^U(1.5, 3) minutes and 20 % of 10^U(3, 4).
	mean := .8*(1000-math.Pow(10, 1.5))/(1.5*math.Ln10) + .2*9000/math.Ln10
	near(t, "duration", s.Duration.Mean, 60*mean, .03)
	// 19 of the 26 job types can be distributed.
	near(t, "GPUs", s.GPUs.Mean, 7./26+19./26*(.7+.2+.6+.4), .02)
	high, tight := 0, 0
	for _, job := range got.Jobs {
		if job.Weight == 5 {
			high++
		}
		if job.SLO == 1.2 {
			tight++
		}
	}
	near(t, "high priority", float64(high)/40000, .2, .05)
	near(t, "tight SLO", float64(tight)/40000, 1./3, .05)
}

func TestThemisDistributions(t *testing.T) {
	t.Parallel()
	o := ThemisDefaults(false)
	o.Apps = 4000
	got, err := MakeThemis(o)
	if err != nil {
		t.Fatal(err)
	}
	jobs, gpuTime, kinds := make(map[string]int), make(map[string]float64), make(map[string]int)
	var tasks []float64
	for i := range got.Jobs {
		job := &got.Jobs[i]
		jobs[job.App]++
		gpuTime[job.App] += job.GPUSeconds()
		for range job.MaxGPUs {
			tasks = append(tasks, job.Duration/3600)
		}
	}
	var sizes, days []float64
	single := 0
	for _, app := range got.Apps {
		kinds[app.Category]++
		sizes, days = append(sizes, float64(jobs[app.ID])), append(days, gpuTime[app.ID]/86400)
		if jobs[app.ID] == 1 {
			single++
		}
	}
	near(t, "median jobs", median(sizes), 75, .03)
	near(t, "most jobs", slices.Max(sizes), 100, 0)
	near(t, "apps with one job", float64(single)/4000, .1, .15)
	near(t, "median GPU-days of an app", median(days), 11.5, .2)
	near(t, "median hours of a task", median(tasks), 3.75, .12)
	near(t, "tasks over 37.5 hours", part(tasks, func(h float64) bool { return h > 37.5 }), .1, .25)
	near(t, "speech", float64(kinds["speech"])/4000, .3, .08)
	near(t, "NLP", float64(kinds["nlp"])/4000, .6, .05)
	near(t, "CV", float64(kinds["cv"])/4000, .1, .15)
}

func part(values []float64, is func(float64) bool) float64 {
	n := 0
	for _, v := range values {
		if is(v) {
			n++
		}
	}
	return float64(n) / float64(len(values))
}

func TestThemisHalvingAndNetwork(t *testing.T) {
	t.Parallel()
	for _, network := range []float64{0, 1} {
		o := ThemisDefaults(true)
		o.Network, o.Elastic = network, network == 1
		got, err := MakeThemis(o)
		if err != nil {
			t.Fatal(err)
		}
		for _, app := range got.Apps {
			if app.Tuner == "successive-halving" && (app.Eta != 2 || app.MinSteps < 1 || app.MinSteps > app.MaxSteps) {
				t.Errorf("app %+v", app)
			}
		}
		for _, job := range got.Jobs {
			if trace.NetworkIntensive(job.Model) != (network == 1) {
				t.Errorf("network %g: %s", network, job.Model)
			}
			if least := job.MinGPUs; o.Elastic && least != 1 || !o.Elastic && least != job.MaxGPUs {
				t.Errorf("elastic %t: %d to %d devices", o.Elastic, least, job.MaxGPUs)
			}
		}
	}
}

// Both workloads have the same amount of work, except for the longest jobs of the second, which are cut to the length
// of the snapshot; it is long here.
func TestThemisWorkloadsAreTheSameWork(t *testing.T) {
	t.Parallel()
	work := map[bool]float64{}
	for _, halving := range []bool{false, true} {
		o := ThemisDefaults(halving)
		o.Apps, o.Days = 4000, 1000
		got, err := MakeThemis(o)
		if err != nil {
			t.Fatal(err)
		}
		jobs := map[string]int{}
		for i := range got.Jobs {
			jobs[got.Jobs[i].App]++
		}
		for i := range got.Jobs {
			j, part := &got.Jobs[i], 1.0
			if n := jobs[j.App]; halving && n > 1 {
				part = o.trained(int(math.Log2(float64(n)) + 1e-9))
			}
			work[halving] += part * j.GPUSeconds()
		}
	}
	near(t, "work of halving, relative", work[true]/work[false], 1, .1)
}

// Some apps are present at the start, the others arrive in bursts, and no job is longer than the snapshot.
func TestThemisArrivals(t *testing.T) {
	t.Parallel()
	for burst, want := range map[float64]float64{0: .13, 1.2: .47} {
		o := ThemisDefaults(true)
		o.Apps, o.Present, o.Burst = 5000, 300, burst
		got, err := MakeThemis(o)
		if err != nil {
			t.Fatal(err)
		}
		hours, there := make([]int, 14*24), 0
		seen := map[string]bool{}
		for i := range got.Jobs {
			j := &got.Jobs[i]
			if j.Duration > 14*86400 || j.Submit > 14*86400 {
				t.Fatalf("job %s comes at %v s and takes %v s", j.ID, j.Submit, j.Duration)
			}
			switch {
			case seen[j.App]:
			case j.Submit == 0:
				there++
			default:
				hours[min(int(j.Submit/3600), len(hours)-1)]++
			}
			seen[j.App] = true
		}
		slices.Sort(hours)
		top := 0
		for _, n := range hours[len(hours)*9/10:] {
			top += n
		}
		near(t, "apps there at the start", float64(there), 300, 0)
		near(t, fmt.Sprintf("share of the busiest tenth of the hours with bursts of %g", burst), float64(top)/4700, want, .2)
	}
}

func TestHadarWithoutTrace(t *testing.T) {
	t.Parallel()
	got, err := MakeHadar(HadarDefaults(madeTable(t)))
	if err != nil {
		t.Fatal(err)
	}
	checkHadar(t, got, false)
	near(t, "GPU-hours of a job", got.Summary().GPUHours/480, 3.4, .6)
}

func TestHadarEMixes(t *testing.T) {
	t.Parallel()
	for mix, want := range map[string]string{
		"M-1": "mm", "M-3": "lt mm mm", "M-4": "ic lm lt mm", "M-5": "ic lm lt rs mm",
		"M-12": "ic lm lt rs mm mm mm mm mm mm mm mm",
	} {
		got, err := MakeHadarE(HadarEDefaults(mix, madeTable(t)))
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, job := range got.Jobs {
			name, _, _ := strings.Cut(job.ID, "-")
			names = append(names, name)
			if err := job.Validate(); err != nil || job.TotalSteps == 0 || job.Rates["k80"] == 0 || job.Rates["k80"] == job.Rates["v100"] {
				t.Errorf("%s: %+v, %v", mix, job, err)
			}
		}
		if strings.Join(names, " ") != want {
			t.Errorf("%s: got %v, want %s", mix, names, want)
		}
	}
	if _, err := MakeHadarE(HadarEDefaults("M-2", nil)); err == nil || !strings.Contains(err.Error(), "M-1, M-3, M-4, M-5, M-8, M-10, M-12") {
		t.Errorf("got %v", err)
	}
}

func TestOASiSDistributions(t *testing.T) {
	t.Parallel()
	o := OASiSDefaults()
	o.Jobs = 20000
	w, err := MakeOASiS(o)
	if err != nil {
		t.Fatal(err)
	}
	classes, epochs, worker := make(map[string]int), 0., 0.
	for i := range w.Jobs {
		job := &w.Jobs[i]
		classes[job.Class]++
		epochs += float64(job.Epochs) / 20000
		worker += float64(job.Worker.GPUs) / 20000
		if job.Slot < 0 || job.Slot >= 300 || i > 0 && job.Slot < w.Jobs[i-1].Slot || (job.Decay == 0) != (job.Class == "insensitive") {
			t.Fatalf("job %+v", job)
		}
	}
	near(t, "insensitive", float64(classes["insensitive"])/20000, .1, .1)
	near(t, "sensitive", float64(classes["sensitive"])/20000, .55, .05)
	near(t, "critical", float64(classes["critical"])/20000, .35, .05)
	near(t, "epochs", epochs, 125, .02)
	near(t, "GPUs of a worker", worker, 2, .03)
	if len(w.WorkerServerGbps) != 50 || len(w.PSServerGbps) != 50 {
		t.Errorf("%d and %d servers", len(w.WorkerServerGbps), len(w.PSServerGbps))
	}
	job := w.Trace().Jobs[0]
	near(t, "utility at the target", job.Utility.Value(job.Utility.Target), job.Utility.Priority/2, 1e-9)
}

func TestOGASchedGraph(t *testing.T) {
	t.Parallel()
	o := OGASchedDefaults()
	o.Instances = 4000
	w, err := MakeOGASched(o)
	if err != nil {
		t.Fatal(err)
	}
	edges, arrivals, served := 0, 0, make(map[int]bool)
	for _, instances := range w.Edges {
		edges += len(instances)
		if !slices.IsSorted(instances) || len(instances) == 0 {
			t.Error("edges out of order, or a port without any")
		}
		for _, r := range instances {
			served[r] = true
		}
	}
	for _, slot := range w.Arrivals {
		for _, arrives := range slot {
			if arrives {
				arrivals++
			}
		}
	}
	near(t, "density", float64(edges)/4000, 2.5, .05)
	near(t, "arrivals", float64(arrivals)/2000/10, .7, .03)
	if len(served) != 4000 || len(w.Request) != 10 || len(w.Capacity[0]) != 6 || len(w.Gains) != 6 {
		t.Errorf("%d instances served", len(served))
	}
}

// A rewarded job is worth its port's request until two slots after its arrival, and nothing after the third; it may
// have any part of it.
func TestOGASchedRewards(t *testing.T) {
	t.Parallel()
	o := OGASchedDefaults()
	o.Slots = 20
	w, err := MakeOGASched(o)
	if err != nil {
		t.Fatal(err)
	}
	rigid, err := w.Trace(1, 600)
	if err != nil {
		t.Fatal(err)
	}
	rewarded, err := w.Rewarded(1, 600)
	if err != nil {
		t.Fatal(err)
	}
	for i, j := range rewarded.Jobs {
		was := rigid.Jobs[i]
		if j.MinGPUs != 1 || j.MaxGPUs != was.MaxGPUs || j.Submit != was.Submit || j.Duration != was.Duration {
			t.Fatalf("job %+v was %+v", j, was)
		}
		near(t, "worth after two slots", j.Utility.Value(1200), float64(j.MaxGPUs), .01)
		near(t, "worth after three", 1+j.Utility.Value(1800), 1, .1)
	}
	if _, err := w.Rewarded(9, 600); err == nil {
		t.Error("rewards of a kind that is not there")
	}
}

func TestASTRAEAFillsAndDraws(t *testing.T) {
	t.Parallel()
	base := &trace.Trace{Name: "base"}
	for i := range 100 {
		// Every third job is in the first hour; the rest follow one a day.
		job := trace.Job{ID: string(rune('A' + i)), Tenant: "a", Submit: float64(i), MinGPUs: 1, MaxGPUs: 1, Share: 1, Duration: 5, Weight: 1}
		if i%3 > 0 {
			job.Tenant, job.Submit, job.MaxGPUs = "b", float64(i)*86400, 2
		}
		base.Jobs = append(base.Jobs, job)
	}
	base.Order()
	for _, n := range []int{0, 10, 50, 500} {
		got, err := MakeASTRAEA(ASTRAEAOptions{Base: base, Days: 1. / 24, Jobs: n})
		if err != nil {
			t.Fatal(err)
		}
		want := n
		if n == 0 {
			want = 34
		}
		if len(got.Jobs) != want {
			t.Errorf("%d jobs, want %d", len(got.Jobs), want)
		}
	}
	got := WeighByDemand(base)
	if diff := cmp.Diff([]trace.Tenant{{Name: "a", Weight: 34. / 166}, {Name: "b", Weight: 132. / 166}}, got); diff != "" {
		t.Error(diff)
	}
}

func TestMakersRefuseWhatCannotBe(t *testing.T) {
	t.Parallel()
	table := madeTable(t)
	try := map[string]func() error{
		"throughputs are missing": func() error { _, err := MakeGavel(GavelOptions{Jobs: 1}); return err },
		"lambda is -1": func() error {
			o := GavelDefaults(table)
			o.Lambda = -1
			_, err := MakeGavel(o)
			return err
		},
		"jobs is 0": func() error {
			o := GavelDefaults(table)
			o.Jobs = 0
			_, err := MakeGavel(o)
			return err
		},
		"of type h100": func() error {
			o := GavelDefaults(table)
			o.Reference = "h100"
			_, err := MakeGavel(o)
			return err
		},
		"few <= median <= max": func() error {
			o := ThemisDefaults(false)
			o.MaxJobs = 10
			_, err := MakeThemis(o)
			return err
		},
		"days is NaN": func() error {
			o := ThemisDefaults(false)
			o.Days = math.NaN()
			_, err := MakeThemis(o)
			return err
		},
		"too few jobs of one size": func() error {
			o := HadarDefaults(table)
			o.Base = &trace.Trace{Name: "small"}
			_, err := MakeHadar(o)
			return err
		},
		"epochs is 9 to 3": func() error {
			o := OASiSDefaults()
			o.Epochs = [2]int{9, 3}
			_, err := MakeOASiS(o)
			return err
		},
		"density is 11": func() error {
			o := OGASchedDefaults()
			o.Density = 11
			_, err := MakeOGASched(o)
			return err
		},
		"tenants is 0":          func() error { _, err := MakeVenus(VenusOptions{Jobs: 1}); return err },
		"base trace is missing": func() error { _, err := MakeASTRAEA(ASTRAEAOptions{}); return err },
		"has no GPU jobs":       func() error { _, err := MakeASTRAEA(ASTRAEAPhilly(&trace.Trace{Name: "x"})); return err },
	}
	for want, do := range try {
		if err := do(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to say %q", err, want)
		}
	}
}

func TestMadeTracesRoundTrip(t *testing.T) {
	t.Parallel()
	want, err := MakeThemis(ThemisDefaults(true))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := want.WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	got, err := trace.Read(&out, "x", trace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(trace.Trace{}, "Report")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
