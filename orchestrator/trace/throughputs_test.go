package trace

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const smallTable = `{
 "k80": {"('A3C', 1)": {"null": 3.5}, "('LM (batch size 5)', 1)": {"null": 2, "('A3C', 1)": [1.5, 2.5]},
         "('LM (batch size 5)', 4)": {"null": 6}, "('ResNet-50 (batch size 128)', 2)": {"null": 0.0}},
 "k80_unconsolidated": {"('LM (batch size 5)', 4)": {"null": 5}}
}`

func tableOf(t *testing.T, text string) *Throughputs {
	t.Helper()
	got, err := ReadThroughputs(strings.NewReader(text), "table")
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestThroughputsLookup(t *testing.T) {
	t.Parallel()
	got := tableOf(t, smallTable)
	if diff := cmp.Diff([]string{"k80"}, got.GPUTypes()); diff != "" {
		t.Error(diff)
	}
	if len(got.JobTypes("k80")) != 4 || got.Len() != 5 {
		t.Errorf("job types %v, %d speeds", got.JobTypes("k80"), got.Len())
	}
	for _, c := range []struct {
		model, gpuType string
		gpus           int
		want           float64
	}{
		{"A3C", "k80", 1, 3.5},
		{"LM (batch size 5)", "k80", 4, 6},
		{"LM (batch size 5)", "k80" + Spread, 4, 5},
		{"ResNet-50 (batch size 128)", "k80", 2, 0},
	} {
		if speed, err := got.Isolated(c.model, c.gpus, c.gpuType); err != nil || speed != c.want {
			t.Errorf("%s on %d %s: got %g, %v; want %g", c.model, c.gpus, c.gpuType, speed, err, c.want)
		}
	}
	lm, a3c := JobType{"LM (batch size 5)", 1}, JobType{"A3C", 1}
	if a, b, err := got.Pair(lm, a3c, "k80"); a != 1.5 || b != 2.5 || err != nil {
		t.Errorf("pair: %g, %g, %v", a, b, err)
	}
	if a, b, err := got.Pair(a3c, lm, "k80"); a != 2.5 || b != 1.5 || err != nil {
		t.Errorf("pair the other way: %g, %g, %v", a, b, err)
	}
}

func TestThroughputsSayWhatIsMissing(t *testing.T) {
	t.Parallel()
	got := tableOf(t, smallTable)
	_, _, pair := got.Pair(JobType{"A3C", 1}, JobType{"A3C", 1}, "k80")
	_, model := got.Isolated("BERT", 1, "k80")
	_, size := got.Isolated("LM (batch size 5)", 8, "k80")
	_, kind := got.Isolated("A3C", 1, "h100")
	for want, err := range map[string]error{
		"not measured together with A3C":              pair,
		"does not have that model":                    model,
		"has that model with 1 4 GPUs":                size,
		"types are k80, k80_unconsolidated":           kind,
		"no throughput of A3C on 1 GPUs of type h100": kind,
	} {
		var missing *MissingError
		if !errors.As(err, &missing) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to say %q", err, want)
		}
	}
}

func TestBrokenTablesAreRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                       "no table of throughputs",
		"{}":                                     "has no throughputs",
		"{1}":                                    "not a table",
		`{"v100": {"A3C": {"null": 1}}}`:         "want ('MODEL', GPUS)",
		`{"v100": {"('A3C', 0)": {"null": 1}}}`:  "at least 1 GPU",
		`{"v100": {"('A3C', 1)": {"null": -1}}}`: "0 or more",
		`{"v100": {"('A3C', 1)": {"null": 1, "('A3C', 1)": [1]}}}`: "two speeds",
		"model,num_gpus,gpu_type,steps_per_s\nA3C,1,k80,fast\n":    "f:2: column steps_per_s",
		"model,num_gpus,gpu_type,steps_per_s\nA,1,k,1\nA,1,k,2\n":  "f:3: A on 1 GPUs of type k is a duplicate",
		"model,num_gpus,gpu_type,steps_per_s\n,1,k80,1\n":          "f:2: column model",
	} {
		_, err := ReadThroughputs(strings.NewReader(text), "f")
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "f:") {
			t.Errorf("%q: got %v, want it to say %q", text, err, want)
		}
	}
}

func TestTimedAndStepped(t *testing.T) {
	t.Parallel()
	in := &Trace{Jobs: []Job{
		{ID: "a", MinGPUs: 4, MaxGPUs: 4, Share: 1, Model: "LM (batch size 5)", TotalSteps: 600},
		{ID: "b", MinGPUs: 1, MaxGPUs: 1, Share: 1, Duration: 7},
	}}
	timed, err := in.Timed(tableOf(t, smallTable), "k80")
	if err != nil || timed.Jobs[0].Duration != 100 || timed.Jobs[1].Duration != 7 || in.Jobs[0].Duration != 0 {
		t.Errorf("got %+v, %v", timed, err)
	}
	timed.Jobs[0].TotalSteps = 0
	if back, err := timed.Stepped(tableOf(t, smallTable), "k80"); err != nil || back.Jobs[0].TotalSteps != 600 {
		t.Errorf("got %+v, %v", back, err)
	}
	in.Jobs[0].Model, in.Jobs[0].MaxGPUs = "ResNet-50 (batch size 128)", 2
	if _, err := in.Timed(tableOf(t, smallTable), "k80"); err == nil || !strings.Contains(err.Error(), "does not run on k80") {
		t.Errorf("got %v", err)
	}
}
