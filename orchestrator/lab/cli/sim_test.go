package labcli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/cli"
	"github.com/outbid-dev/outbid/orchestrator/cluster"
	labcli "github.com/outbid-dev/outbid/orchestrator/lab/cli"
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

func writeFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// run runs `outbid-lab sim` with args on a fake engine.
func run(t *testing.T, args ...string) (code int, out, errs string, asked []experiment.Request) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	edition := labcli.Edition(fakeEngine(&asked))
	code = cli.Main(t.Context(), edition, append([]string{"sim"}, args...), strings.NewReader(""), &stdout, &stderr,
		func(string) string { return "" }, "test")
	return code, stdout.String(), stderr.String(), asked
}

func TestSimDrawsAndSavesTheTrace(t *testing.T) {
	t.Parallel()
	file, dir := writeFile(t, "jobs.csv", simJobs), t.TempDir()
	code, _, errs, asked := run(t, "--cluster", "gpu:8/4", "--trace", file, "--policy", "fifo,drf", "-o", "json",
		"--plots", filepath.Join(dir, "figures"), "--save-trace", filepath.Join(dir, "t.jsonl"))
	if code != 0 || len(asked) != 2 || asked[0].Bars == 0 {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	for _, name := range []string{"t.jsonl", "figures/jct.svg", "figures/rho.png", "figures/gantt-drf.svg"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSimOfAPaper(t *testing.T) {
	t.Parallel()
	code, _, errs, asked := run(t, "--cluster", "themis-21", "--made", "themis-1", "--made-option", "apps=2", "--policy", "gavel-las,themis",
		"--option", "themis.liars=0.5", "--fork-costs", "1s,2s,3s")
	if code != 0 || len(asked) != 2 || len(asked[0].Nodes) != 4 || asked[1].Policy.Options["liars"] != "0.5" || asked[0].ForkCosts.Each.Seconds() != 3 {
		t.Errorf("exit code %d: %s; asked for %+v", code, errs, asked)
	}
}

func TestSimSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	file := writeFile(t, "jobs.csv", simJobs)
	with := func(more ...string) []string {
		return append([]string{"--cluster", "gpu:8/4", "--policy", "fifo"}, more...)
	}
	for want, args := range map[string][]string{
		"outbid-lab: there is no workload: give --trace FILE or --made NAME":     with(),
		"--cluster is missing: want a file, a short form such as v100:12/4, or ": {"--trace", file},
		"--throughputs: ": with("--trace", file, "--throughputs", file),
		"the workload: --made themis-9: there is no such maker":   with("--made", "themis-9"),
		"the workload: --made-option a=1: these are settings of ": with("--trace", file, "--made-option", "a=1"),
		"policy fifo: policy option depth=3: this policy has rul": with("--trace", file, "--option", "depth=3"),
		"give --save-trace for one of them":                       with("--trace", file, "--sweep", "load=1,2", "--save-trace", "x"),
		"give --events and --apps for one of them":                with("--trace", file, "--sweep", "load=1,2", "--apps", "x"),
	} {
		code, out, errs, _ := run(t, args...)
		if code != 2 || out != "" || !strings.Contains(errs, want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%v: exit code %d, %q, %q; want %q", args, code, out, errs, want)
		}
	}
}

func TestSimSweep(t *testing.T) {
	t.Parallel()
	file, dir := writeFile(t, "jobs.csv", simJobs), t.TempDir()
	base := []string{"--cluster", "gpu:8/4", "--trace", file, "--policy", "fifo,tiresias"}
	code, out, errs, asked := run(t, append(base, "--sweep", "load=1,2,4", "--plots", dir, "-o", "json")...)
	if code != 0 || len(asked) != 6 || !strings.Contains(errs, "load=4\njobs: 3 jobs over 15.0s;") {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	var last struct {
		Setting, Value string
		measure.Result
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if err := json.Unmarshal([]byte(lines[5]), &last); err != nil || len(lines) != 6 {
		t.Fatalf("%v: %q", err, out)
	}
	if last.Setting != "load" || last.Value != "4" || last.Policy != "tiresias" || last.Jobs != 3 {
		t.Errorf("%+v", last)
	}
	if info, err := os.Stat(filepath.Join(dir, "rho-max-over-load.svg")); err != nil || info.Size() == 0 {
		t.Errorf("no figure: %v", err)
	}
	code, out, errs, _ = run(t, append(base, "--sweep", "option.tiresias.threshold=60,600")...)
	if code != 0 || !strings.Contains(out, "OPTION.TIRESIAS.THRESHOLD  POLICY") || strings.Count(out, "\n") != 5 {
		t.Errorf("exit code %d: %s\n%s", code, errs, out)
	}
	for want, sweep := range map[string]string{
		"--sweep load: want SETTING=VALUE,VALUE":                            "load",
		"--sweep load=1,: want SETTING=VALUE":                               "load=1,",
		`--sweep jobs: "x" is not a valid value`:                            "jobs=1,x",
		"--sweep colour: there is no such setting: want cluster, load, len": "colour=red",
		"at load=0: --load 0":                                               "load=1,0",
	} {
		code, out, errs, _ := run(t, append(base, "--sweep", sweep)...)
		if code != 2 || out != "" || !strings.Contains(errs, want) {
			t.Errorf("%s: exit code %d, %q; want %q", sweep, code, errs, want)
		}
	}
}
