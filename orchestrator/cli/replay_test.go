package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outbid-dev/outbid/orchestrator/lab"
	"github.com/outbid-dev/outbid/orchestrator/ledger/ledgertest"
	"github.com/outbid-dev/outbid/orchestrator/sim/experiment"
	"github.com/outbid-dev/outbid/orchestrator/sim/measure"
)

// runReplay runs `outbid` with args.
func runReplay(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	a := newTestApp(nil, nil)
	code = a.run(t.Context(), args)
	return code, a.out.String(), a.err.String()
}

// simLedger returns the ledger of a simulated run.
func simLedger(t *testing.T, policy string, args ...string) string {
	t.Helper()
	var jobs strings.Builder
	jobs.WriteString("job_id,submit_s,num_gpus,duration_s,tenant,status,model,gpu_type,extra\n")
	for i := range 40 {
		fmt.Fprintf(&jobs, "j%d,%d,%d,%d,%c,,,,\n", i, i*40, 1<<(i%3), 200+i*997%2000, 'x'+rune(i%2))
	}
	file := filepath.Join(t.TempDir(), "events.jsonl")
	code, _, errs := runReplay(t, append([]string{
		"sim", "--cluster", "gpu:8/4", "--trace", writeFile(t, "jobs.csv", jobs.String()),
		"--policy", policy, "--events", file, "--no-times", "-o", "json", "--seed", "1",
	}, args...)...)
	if code != exitOK {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	return file
}

func TestReplayDecidesTheSame(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"fifo", "drf", "tiresias", "las", "hadar", "themis"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			code, out, errs := runReplay(t, "replay", simLedger(t, policy), "-o", "jsonl")
			var got experiment.Decided
			if err := json.Unmarshal([]byte(out), &got); err != nil || code != exitOK {
				t.Fatalf("exit code %d: %s %s %v", code, out, errs, err)
			}
			if got.Differing > 0 || got.Decisions < 30 || got.Rounds < 10 || got.Policies[policy] != got.Rounds {
				t.Errorf("it found %+v", got)
			}
		})
	}
}

// TestReplayNamesWhatDiffers checks that Tiresias decides differently with another interval.
func TestReplayNamesWhatDiffers(t *testing.T) {
	t.Parallel()
	file := simLedger(t, "tiresias")
	code, out, errs := runReplay(t, "replay", file, "--policy-option", "threshold=60")
	if code != exitFailed || !strings.Contains(out, "of tiresias, batch ") || !strings.Contains(out, "then: ") ||
		!strings.Contains(errs, "decisions differ") {
		t.Errorf("exit code %d:\n%s\n%s", code, out, errs)
	}
}

func TestReplayUnderOtherPolicies(t *testing.T) {
	t.Parallel()
	file := simLedger(t, "fifo")
	code, out, errs := runReplay(t, "replay", file, "--policy", "drf,tiresias", "-o", "json", "--no-times")
	if code != exitOK {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	var policies []string
	for line := range strings.Lines(out) {
		var r measure.Result
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		policies = append(policies, r.Policy)
		if r.Jobs < 30 || r.JCTMean <= 0 {
			t.Errorf("%s: %+v", r.Policy, r)
		}
	}
	if diff := cmp.Diff([]string{"fifo", "drf", "tiresias"}, policies); diff != "" {
		t.Error(diff)
	}
	if !strings.Contains(errs, "assumed: sweeps arrive") {
		t.Errorf("it assumes in silence: %s", errs)
	}
	again, out2, _ := runReplay(t, "replay", file, "--policy", "drf,tiresias", "-o", "json", "--no-times")
	if again != exitOK || out2 != out {
		t.Errorf("a second time it says otherwise:\n%s\n%s", out, out2)
	}
}

func TestReplayOfWhatIsNoLedger(t *testing.T) {
	t.Parallel()
	file := simLedger(t, "fifo")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	changed := writeFile(t, "changed.jsonl", strings.Replace(string(text), `"devices":[0]`, `"devices":[1]`, 1))
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"replay"}, "LEDGER is missing"},
		{[]string{"replay", filepath.Join(t.TempDir(), "none")}, "no such file"},
		{[]string{"replay", t.TempDir()}, "does not contain a ledger: want a server's data directory"},
		{[]string{"replay", writeFile(t, "a.jsonl", "")}, "is empty: want a file written by 'outbid export --ledger FILE'"},
		{[]string{"replay", writeFile(t, "b.jsonl", "job_id,submit_s\n")}, "is not a ledger written by 'outbid export --ledger FILE'"},
		{[]string{"replay", changed}, "is damaged: its line has hash"},
		{[]string{"replay", file, "--policy", "nope"}, `there is no policy "nope"`},
		{[]string{"replay", file, "--policy-option", "nope=1"}, "policy option nope=1"},
		{[]string{"export", "--ledger", "x.jsonl", "--data", t.TempDir()}, "does not contain a ledger"},
		{[]string{"export", "--ledger", "x.jsonl", "digits-1"}, `unexpected argument "digits-1"`},
		{[]string{"export", "--ledger", "x.jsonl", "--format", "csv"}, "--ledger cannot be combined"},
		{[]string{"export"}, "SWEEP is missing"},
	} {
		code, _, errs := runReplay(t, c.args...)
		if code != exitUsage || !strings.Contains(errs, c.want) {
			t.Errorf("%v: exit code %d, %q; want %q", c.args, code, errs, c.want)
		}
	}
}

// TestReplayOfAReleasedLedger replays the golden ledger of the first release: all decisions are the same.
func TestReplayOfAReleasedLedger(t *testing.T) {
	t.Parallel()
	text := ledgertest.Unzipped(t, "../ledger/testdata/1.0.0-rc.1/ledger.jsonl.gz")
	a := newTestApp(nil, nil)
	a.edition.Policies = lab.Policies() // its server recorded options that only the lab has now
	code := a.run(t.Context(), []string{"replay", writeFile(t, "released.jsonl", string(text)), "-o", "jsonl"})
	out, errs := a.out.String(), a.err.String()
	var got experiment.Decided
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 || got.Differing != 0 || got.Decisions < 50 {
		t.Fatalf("exit code %d: %s %s %v", code, out, errs, err)
	}
}
