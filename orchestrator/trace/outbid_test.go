package trace

import (
	"bytes"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// anyTrace draws traces with every field in use.
func anyTrace() *rapid.Generator[*Trace] {
	word := rapid.StringMatching(`[a-z"]([a-zA-Z0-9,;"'|() _/é-]{0,6}[a-zA-Z0-9"])?`)
	optional := rapid.OneOf(rapid.Just(""), word)
	seconds := rapid.OneOf(rapid.Just(0.), rapid.Float64Range(0, 1e9))
	return rapid.Custom(func(t *rapid.T) *Trace {
		out := &Trace{Name: optional.Draw(t, "name"), Source: optional.Draw(t, "source")}
		for _, name := range rapid.SliceOfNDistinct(word, 0, 3, rapid.ID).Draw(t, "tenants") {
			out.Tenants = append(out.Tenants, Tenant{name, seconds.Draw(t, "weight")})
		}
		apps := rapid.SliceOfNDistinct(word, 0, 3, rapid.ID).Draw(t, "apps")
		for _, id := range rapid.SliceOfNDistinct(word, 1, 8, rapid.ID).Draw(t, "jobs") {
			job := Job{
				ID: id, Tenant: optional.Draw(t, "tenant"), User: optional.Draw(t, "user"), Submit: seconds.Draw(t, "submit"),
				MinGPUs: rapid.IntRange(0, 64).Draw(t, "min"), Share: rapid.Float64Range(.001, 1).Draw(t, "share"),
				GPUTypes: rapid.SliceOfN(rapid.StringMatching(`[a-z0-9]{1,4}`), 1, 3).Draw(t, "types"),
				Nodes:    rapid.IntRange(0, 9).Draw(t, "nodes"), Duration: seconds.Draw(t, "duration"),
				MeasuredOn: optional.Draw(t, "measured on"),
				TotalSteps: rapid.Int64Range(0, maxSteps).Draw(t, "steps"), Model: optional.Draw(t, "model"),
				Weight: seconds.Draw(t, "weight"), SLO: seconds.Draw(t, "slo"),
				Status: optional.Draw(t, "status"), CPUs: seconds.Draw(t, "cpus"), Memory: rapid.Int64Range(0, 1<<50).Draw(t, "memory"),
			}
			if job.MinGPUs > 0 {
				job.MaxGPUs = job.MinGPUs + rapid.IntRange(0, 9).Draw(t, "more")
			}
			if len(apps) > 0 && rapid.Bool().Draw(t, "in app") {
				job.App = rapid.SampledFrom(apps).Draw(t, "app")
			}
			if rapid.Bool().Draw(t, "curves") {
				job.Loss = &Curve{rapid.Float64Range(-9, 9).Draw(t, "start"), .5, 3, 1}
				job.Utility = &Utility{seconds.Draw(t, "priority"), .25, 600}
			}
			out.Jobs = append(out.Jobs, job)
		}
		for i, id := range apps {
			used := func(j Job) bool { return j.App == id }
			if slices.ContainsFunc(out.Jobs, used) {
				out.Apps = append(out.Apps, App{id, "successive-halving", "cv", 2 + i, int64(i), 100, i%2 == 1})
			}
		}
		out.Order()
		return out
	})
}

func TestOutbidFormatsRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := anyTrace().Draw(t, "trace")
		var lines, table bytes.Buffer
		if err := want.WriteJSON(&lines); err != nil {
			t.Fatal(err)
		}
		got, err := Read(&lines, "trace.jsonl", Options{})
		if err != nil {
			t.Fatal(err)
		}
		ignore := cmpopts.IgnoreFields(Trace{}, "Report")
		if want.Source == "" {
			want.Source = got.Source
		}
		if diff := cmp.Diff(want, got, ignore, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("JSON lines (-want +got):\n%s", diff)
		}
		if err := want.WriteCSV(&table); err != nil {
			t.Fatal(err)
		}
		got, err = Read(&table, "trace.csv", Options{})
		if err != nil {
			t.Fatal(err)
		}
		ignore = cmpopts.IgnoreFields(Trace{}, "Report", "Name", "Source", "Tenants")
		if diff := cmp.Diff(want, got, ignore, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("CSV (-want +got):\n%s", diff)
		}
	})
}
