package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/sim/experiment"
	"github.com/outbid-dev/outbid/orchestrator/sim/measure"
)

// simJobs is a small trace in the common CSV layout.
const simJobs = "job_id,submit_s,num_gpus,duration_s,tenant,status,model,gpu_type,extra\n" +
	"a,0,1,100,x,,,,\nb,50,2,100,y,,,,\nc,60,4,100,y,,,,\n"

// fakeEngine returns its requests, and figures that a real run could have.
func fakeEngine(asked *[]experiment.Request) experiment.Engine {
	return func(ctx context.Context, r experiment.Request) (measure.Result, error) {
		*asked = append(*asked, r)
		m := measure.New(measure.Config{Policy: r.Policy.Name, Bars: r.Bars})
		m.Devices(0, devicesOf(r.Nodes))
		at := 0.0
		for i, j := range r.Trace.Jobs {
			n := m.Arrive(j.Submit, -1, measure.Job{Name: j.ID, Devices: j.MaxGPUs, Isolated: j.Duration})
			at = max(at, j.Submit)
			m.Grant(at, n, measure.Lease{Devices: 1, Where: []int{0}})
			at += j.Duration
			m.End(at, n, 1, true)
			if r.Events != nil {
				_, _ = fmt.Fprintf(r.Events, "{\"event\":%d}\n", i)
			}
			r.Progress(experiment.Progress{At: at, Done: i + 1, Jobs: len(r.Trace.Jobs)})
			if ctx.Err() != nil {
				return measure.Result{}, context.Cause(ctx)
			}
			// In the trace the next job arrives before this one ends; here time only advances.
			for k := range r.Trace.Jobs[i+1:] {
				r.Trace.Jobs[i+1+k].Submit = max(r.Trace.Jobs[i+1+k].Submit, at)
			}
		}
		return m.Result(measure.Cost{Wall: 1, Events: 7})
	}
}

func devicesOf(nodes []cluster.Node) (n int) {
	for i := range nodes {
		n += len(nodes[i].Devices)
	}
	return n
}

// runSimCommand runs `outbid sim` with args on a fake engine.
func runSimCommand(t *testing.T, args ...string) (code int, out, errs string, asked []experiment.Request) {
	t.Helper()
	a := newTestApp(nil, nil)
	a.edition.Simulate = fakeEngine(&asked)
	code = a.run(t.Context(), append([]string{"sim"}, args...))
	return code, a.out.String(), a.err.String(), asked
}

func TestSimPrintsALineForEachPolicy(t *testing.T) {
	t.Parallel()
	file := writeFile(t, "jobs.csv", simJobs)
	dir := t.TempDir()
	code, out, errs, asked := runSimCommand(t, "--cluster", "gpu:8/4", "--trace", file, "--policy", "fifo,drf", "-o", "json", "--seed", "3",
		"--events", filepath.Join(dir, "e.jsonl"))
	if code != exitOK {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	var policies []string
	for line := range strings.Lines(out) {
		var r struct {
			Policy string  `json:"policy"`
			Jobs   int     `json:"jobs"`
			JCT    float64 `json:"jct_mean_s"`
			Peak   int64   `json:"peak_memory_bytes"`
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if r.Jobs != 3 || r.JCT != 100 || r.Peak == 0 {
			t.Errorf("%+v", r)
		}
		policies = append(policies, r.Policy)
	}
	if diff := cmp.Diff([]string{"fifo", "drf"}, policies); diff != "" {
		t.Error(diff)
	}
	for _, r := range asked {
		if r.Seed != 3 || len(r.Nodes) != 2 || r.Bars != 0 || r.RestartDelay.Seconds() != 10 {
			t.Errorf("asked for %+v", r)
		}
		if p, err := r.Policy.New(); err != nil || p.Name() != r.Policy.Name {
			t.Errorf("policy %s: %v", r.Policy.Name, err)
		}
	}
	for _, name := range []string{"e-fifo.jsonl", "e-drf.jsonl"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSimTable(t *testing.T) {
	t.Parallel()
	file := writeFile(t, "jobs.csv", simJobs)
	code, out, errs, _ := runSimCommand(t, "--cluster", "gpu:8/4", "--trace", file, "--policy", "fifo", "--jobs", "2", "--no-times")
	if code != exitOK || !strings.HasPrefix(out, "POLICY  JOBS") || !strings.Contains(out, "\nfifo       2") {
		t.Errorf("exit code %d, %q, %q", code, out, errs)
	}
	if want := "jobs: 2 jobs over 50.0s; 8 devices on 2 nodes: 8 gpu\n"; errs != want {
		t.Errorf("standard error %q, want %q", errs, want)
	}
}

func TestSimSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	file := writeFile(t, "jobs.csv", simJobs)
	broken := writeFile(t, "broken.csv", simJobs+"d,0,x,1,,,,,\n")
	with := func(more ...string) []string {
		return append([]string{"--cluster", "gpu:8/4", "--trace", file, "--policy", "fifo"}, more...)
	}
	for want, args := range map[string][]string{
		"--cluster is missing: want a file, or a short form such as v100:12/4": {"--trace", file},
		`--cluster: cluster "gpu:8/3": 8 devices do not fill nodes of 3`:       with("--cluster", "gpu:8/3"),
		"there is no workload: give --trace FILE":                              {"--cluster", "gpu:8/4", "--policy", "fifo"},
		`policy: there is no policy "fito"; there are `:                        with("--policy", "fito"),
		"--policy names fifo twice":                                            with("--policy", "fifo,fifo"),
		"policy fifo: policy option depth=3: this policy has no options":       with("--option", "depth=3"),
		"--option depth=3: none of the policies fifo, drf has it":              with("--policy", "drf", "--option", "depth=3"),
		"--round -1s: want more than 0":                                        with("--round", "-1s"),
		"--restart-delay -1s: want 0 or more":                                  with("--restart-delay", "-1s"),
		"--parallel 0: want 1 or more":                                         with("--parallel", "0"),
		"--load 0, --length 1: want both above 0":                              with("--load", "0"),
		"job c wants 4 devices; the cluster has 2 devices on 1 nodes":          with("--cluster", "gpu:2/2"),
		"broken.csv:5: column num_gpus":                                        with("--trace", broken),
		"want table, json or jsonl":                                            with("-o", "xml"),
	} {
		code, out, errs, _ := runSimCommand(t, args...)
		if code != exitUsage || out != "" || !strings.Contains(errs, want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%v: exit code %d, %q, %q; want %q", args, code, out, errs, want)
		}
	}
}

func TestSimLenient(t *testing.T) {
	t.Parallel()
	broken := writeFile(t, "broken.csv", simJobs+"d,0,x,1,,,,,\n")
	code, _, errs, asked := runSimCommand(t, "--cluster", "gpu:2/2", "--trace", broken, "--policy", "fifo", "--lenient")
	if code != exitOK || len(asked[0].Trace.Jobs) != 2 || !strings.Contains(errs, "1 broken and skipped") ||
		!strings.Contains(errs, "1 jobs do not fit the cluster and are left out, the first: job c wants 4 devices") {
		t.Errorf("exit code %d, %q", code, errs)
	}
}

func TestSimInterruptedKeepsWhatIsDone(t *testing.T) {
	t.Parallel()
	file := writeFile(t, "jobs.csv", simJobs)
	a := newTestApp(nil, nil)
	var asked []experiment.Request
	engine := fakeEngine(&asked)
	a.edition.Simulate = func(ctx context.Context, r experiment.Request) (measure.Result, error) {
		if r.Policy.Name == "drf" {
			a.signals <- os.Interrupt
			<-ctx.Done()
			return measure.Result{}, context.Cause(ctx)
		}
		return engine(ctx, r)
	}
	code := a.run(t.Context(), []string{"sim", "--cluster", "gpu:8/4", "--trace", file, "--policy", "fifo,drf", "-o", "json"})
	if code != exitInterrupted || strings.Count(a.out.String(), "\n") != 1 || !strings.HasSuffix(a.err.String(), "outbid: interrupted\n") {
		t.Errorf("exit code %d, %q, %q", code, a.out, a.err)
	}
}

func TestSimFailureNamesThePolicy(t *testing.T) {
	t.Parallel()
	file := writeFile(t, "jobs.csv", simJobs)
	a := newTestApp(nil, nil)
	a.edition.Simulate = func(context.Context, experiment.Request) (measure.Result, error) {
		return measure.Result{}, errors.New("two jobs hold gpu-1/0")
	}
	code := a.run(t.Context(), []string{"sim", "--cluster", "gpu:8/4", "--trace", file, "--policy", "fifo"})
	if code != exitFailed || !strings.HasSuffix(a.err.String(), "outbid: policy fifo: two jobs hold gpu-1/0\n") {
		t.Errorf("exit code %d, %q", code, a.err)
	}
}

func TestSimProgress(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	now := noon()
	a := newTestApp(nil, nil)
	a.stderr = io.Writer(&out)
	a.term.err = true
	show := newSimShow(a.console)
	show.console.now = func() time.Time { now = now.Add(terminalPause); return now }
	show.last = now.Add(time.Minute)
	show.tell("fifo", experiment.Progress{Jobs: 44329})
	show.last = now
	show.tell("fifo", experiment.Progress{At: 7200, Done: 1234, Jobs: 44329})
	show.clear()
	show.clear()
	if want := "\r\x1b[Kfifo: 1,234 of 44,329 jobs, simulated 2h00m in 0.2s\r\x1b[K"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

// TestSimIsTheSameTwice runs the real engine.
func TestSimIsTheSameTwice(t *testing.T) {
	t.Parallel()
	jobs := "job_id,submit_s,num_gpus,duration_s,tenant,status,model,gpu_type,extra\n"
	for i := range 60 {
		jobs += fmt.Sprintf("j%d,%d,%d,%d,t%d,,,,\n", i, i*40, 1<<(i%4), 100+i*37%900, i%3)
	}
	file := writeFile(t, "jobs.csv", jobs)
	run := func(dir string) (string, string) {
		a := newTestApp(nil, nil)
		code := a.run(t.Context(), []string{
			"sim", "--cluster", "gpu:16/4/2", "--trace", file, "--policy", "fifo,drf", "-o", "json", "--no-times",
			"--events", filepath.Join(dir, "events.jsonl"), "--seed", "5",
		})
		if code != exitOK {
			t.Fatalf("exit code %d: %s", code, a.err)
		}
		events, err := os.ReadFile(filepath.Join(dir, "events-fifo.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		return a.out.String(), string(events)
	}
	out, events := run(t.TempDir())
	again, eventsAgain := run(t.TempDir())
	if out != again || events != eventsAgain {
		t.Errorf("two runs differ:\n%s\n%s", out, again)
	}
	var r measure.Result
	if err := json.Unmarshal([]byte(out[:strings.Index(out, "\n")]), &r); err != nil {
		t.Fatal(err)
	}
	if r.Jobs != 60 || r.Unfinished != 0 || r.Utilization <= 0.2 || r.Utilization > 1 || r.RhoMax <= 0 || r.Events == 0 || r.Wall != 0 {
		t.Errorf("%+v", r)
	}
	if n := strings.Count(events, `{"lease_granted":{`); n < 60 {
		t.Errorf("%d grants among the events", n)
	}
	read := ledger.NewLines(func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(events)), nil })
	if last, err := read.Last(t.Context()); err != nil || last != uint64(strings.Count(events, "\n")) {
		t.Errorf("the events read back to batch %d: %v", last, err)
	}
}
