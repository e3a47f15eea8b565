package papers_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outbid-dev/outbid/orchestrator/lab/papers"
	"github.com/outbid-dev/outbid/orchestrator/sim/clusterspec"
	"github.com/outbid-dev/outbid/orchestrator/sim/workload"
	traces "github.com/outbid-dev/outbid/orchestrator/trace"
)

const common = "job_id,submit_s,num_gpus,duration_s,tenant,status,model,gpu_type,extra\n" +
	"a,0,1,100,x,,,,\nb,50,2,100,y,,,,\ncpu,60,0,100,y,,,,\nc,4000,2,100,y,,,,\nd,90000,4,100,x,,,,\n"

func file(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "jobs.csv")
	if err := os.WriteFile(path, []byte(common), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func trace(r workload.Request, made papers.Workload) (*traces.Trace, error) {
	r, err := made.Request(r)
	if err != nil {
		return nil, err
	}
	return r.Trace()
}

func TestMakersAreSeeded(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"themis-1", "themis-2", "oasis", "hadare", "astraea-venus", "venus-like"} {
		r := workload.Request{Seed: 7}
		if name == "astraea-venus" {
			r.File = file(t)
		}
		a, err := trace(r, papers.Workload{Name: name})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		b, err := trace(r, papers.Workload{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(a.Jobs, b.Jobs); diff != "" {
			t.Errorf("%s differs the second time", name)
		}
	}
	got, err := trace(workload.Request{}, papers.Workload{Name: "themis-1", Options: []string{"apps=3", "days=1", "contention=2"}})
	if err != nil || len(got.Apps) != 3 {
		t.Errorf("themis-1 with apps=3: %v, %d apps", err, len(got.Apps))
	}
}

func TestEveryMakerSaysItsSettings(t *testing.T) { //nolint:paralleltest // it counts allocations
	for _, m := range papers.Makers() {
		if m.Help == "" || len(m.Settings) == 0 {
			t.Errorf("%+v", m)
		}
	}
	// Every command lists the makers in its help, so none may generate its workload for that.
	if n := testing.AllocsPerRun(1, func() { papers.Makers() }); n > 2000 {
		t.Errorf("describing the makers allocates %.0f times", n)
	}
}

func TestWhatCannotBeMade(t *testing.T) {
	t.Parallel()
	path := file(t)
	for want, c := range map[string]struct {
		request workload.Request
		made    papers.Workload
	}{
		"--made themis-3: there is no such maker":     {workload.Request{}, papers.Workload{Name: "themis-3"}},
		"--made-option apps: want NAME=VALUE":         {workload.Request{}, papers.Workload{Name: "themis-1", Options: []string{"apps"}}},
		"--made-option apps=x: want a whole number":   {workload.Request{}, papers.Workload{Name: "themis-1", Options: []string{"apps=x"}}},
		"--made-option days=nan: want a number":       {workload.Request{}, papers.Workload{Name: "themis-1", Options: []string{"days=nan"}}},
		"--made-option gpus=1: themis-1 has apps, da": {workload.Request{}, papers.Workload{Name: "themis-1", Options: []string{"gpus=1"}}},
		"--made-option apps is given twice":           {workload.Request{}, papers.Workload{Name: "themis-1", Options: []string{"apps=1", "apps=1"}}},
		"--made-option a=1: these are settings of a ": {workload.Request{File: path}, papers.Workload{Options: []string{"a=1"}}},
		"--made gavel: its jobs are measured in step": {workload.Request{}, papers.Workload{Name: "gavel"}},
		"--made astraea-venus: give the cluster's wh": {workload.Request{}, papers.Workload{Name: "astraea-venus"}},
	} {
		if _, err := trace(c.request, c.made); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func TestNamedClusters(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"astraea-philly": "1680 devices on 210 nodes: 1680 gpu",
		"astraea-venus":  "800 devices on 100 nodes: 800 gpu",
		"gavel":          "108 devices on 27 nodes: 36 k80, 36 p100, 36 v100",
		"gavel-36":       "36 devices on 9 nodes: 12 k80, 12 p100, 12 v100",
		"hadar":          "60 devices on 15 nodes: 20 k80, 20 p100, 20 v100",
		"hadar-example":  "6 devices on 3 nodes: 1 k80, 3 p100, 2 v100",
		"hadare-aws":     "5 devices on 5 nodes: 2 k80, 2 t4, 1 v100",
		"hadare-lab":     "5 devices on 5 nodes: 1 rtx-3090, 1 rtx-a2000, 1 t4, 1 t400, 1 titan-rtx",
		"shockwave":      "32 devices on 8 nodes: 32 v100",
		"themis":         "168 devices on 38 nodes: 168 gpu, in 5 racks",
		"themis-256":     "256 devices on 52 nodes: 256 gpu, in 7 racks",
		"themis-84":      "84 devices on 19 nodes: 84 gpu, in 3 racks",
		"themis-42":      "42 devices on 11 nodes: 42 gpu, in 2 racks",
		"themis-21":      "21 devices on 4 nodes: 21 gpu",
		"themis-testbed": "64 devices on 20 nodes: 64 gpu",
	}
	got := map[string]string{}
	for name := range papers.Clusters() {
		nodes, err := papers.Clusters().Open(name)
		if err != nil {
			t.Fatal(err)
		}
		got[name] = clusterspec.Describe(nodes)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
