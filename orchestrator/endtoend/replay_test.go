package endtoend

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// replayed is the output of `outbid replay -o jsonl`.
type replayed struct {
	Rounds, Decisions, Differing int
	Policies                     map[string]int
	Stretches                    []struct {
		Policy   string
		Recorded bool
		Options  map[string]string
	}
}

// replay runs `outbid replay` to its end.
func replay(t testing.TB, dir string, args ...string) string {
	t.Helper()
	p := start(t, dir, append([]string{"replay"}, args...)...)
	<-p.ended
	text, _ := p.out.text()
	if p.err != nil {
		t.Fatalf("replay %v: %v\n%s", args, p.err, text)
	}
	return text
}

func mustRepeat(t testing.TB, dir, ledger string) replayed {
	t.Helper()
	var r replayed
	if text := replay(t, dir, ledger, "-o", "jsonl"); json.Unmarshal([]byte(text), &r) != nil {
		t.Fatal(text)
	}
	if r.Differing > 0 || r.Decisions == 0 {
		t.Errorf("replay of %s found %+v", ledger, r)
	}
	return r
}

// TestALedgerIsReplayed checks that the ledger of a real server, killed in between, can be replayed with the same
// decisions: exported while the server runs or not, and from its data directory. It is also simulated under another
// policy.
func TestALedgerIsReplayed(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"tiresias", "drf"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, "--policy", policy)
			c.worker("a", "cpu:2", "")
			c.worker("b", "cpu:1", "")
			pace := map[string]string{"PACE": "40ms"}
			first := c.submit(job{name: "first", mode: "well", tuner: hyperband(9), env: pace}.spec(t, c.locks))
			second := c.submit(job{name: "second", mode: "well", tuner: hyperband(9), env: pace}.spec(t, c.locks))
			c.waitSteps(first, 20)
			c.kill()
			c.restart()
			c.mustDone(first)
			live := filepath.Join(c.dir, "live.jsonl")
			p := start(t, c.dir, "export", "--ledger", live, "--data", "data")
			if <-p.ended; p.err != nil {
				t.Fatal("export of a server that runs: ", p.err)
			}
			c.mustDone(second)
			c.stop()
			before := mustRepeat(t, c.dir, live)
			file := filepath.Join(c.dir, "ledger.jsonl")
			p = start(t, c.dir, "export", "--ledger", file, "--data", "data")
			if <-p.ended; p.err != nil {
				t.Fatal("export of a server that stopped: ", p.err)
			}
			after, dir := mustRepeat(t, c.dir, file), mustRepeat(t, c.dir, "data")
			if after.Rounds < before.Rounds || after.Rounds != dir.Rounds || after.Policies[policy] != after.Rounds {
				t.Errorf("rounds: %+v while it ran, %+v at the end, %+v in its directory", before, after, dir)
			}
			text := replay(t, c.dir, file, "--policy", "fifo,themis")
			for _, want := range []string{policy + " ", "fifo ", "themis ", "assumed: "} {
				if !strings.Contains(text, want) {
					t.Errorf("%q is missing from the results of other policies:\n%s", want, text)
				}
			}
			if data, err := os.ReadFile(file); err != nil || !strings.Contains(string(data), `{"lease_granted":{`) {
				t.Errorf("the export cannot be read by people: %v", err)
			}
		})
	}
}

// TestALedgerKnowsTheOptionsOfItsPolicy checks that a server records its policy's options, and changes at a restart, so
// that a replay gives the same decisions without options.
func TestALedgerKnowsTheOptionsOfItsPolicy(t *testing.T) {
	t.Parallel()
	first := []string{"--policy", "themis", "--policy-option", "lease=2s", "--policy-option", "f=0.3", "--policy-option", "seed=7"}
	second := []string{"--policy", "themis", "--policy-option", "lease=700ms", "--policy-option", "restart=20s", "--policy-option", "seed=9"}
	c := newCluster(t, first...)
	c.worker("a", "cpu:2", "")
	c.worker("b", "cpu:1", "")
	pace := map[string]string{"PACE": "60ms"}
	var sweeps []string
	for _, name := range []string{"one", "two", "three"} {
		sweeps = append(sweeps, c.submit(job{name: name, mode: "well", tuner: hyperband(9), env: pace}.spec(t, c.locks)))
	}
	c.waitSteps(sweeps[0], 20)
	c.kill() // so that no snapshot has the policy's memory
	c.restart()
	c.waitSteps(sweeps[0], 40)
	c.stop()
	c.args = second
	c.restart()
	doctor := start(t, c.dir, "doctor", "--server", c.Info.API)
	doctor.until("lease=700ms restart=20s seed=9")
	for _, id := range sweeps {
		c.mustDone(id)
	}
	c.stop()
	r := mustRepeat(t, c.dir, "data")
	if len(r.Stretches) != 2 || r.Policies["themis"] != r.Rounds {
		t.Fatalf("it found %+v", r)
	}
	for i, want := range []map[string]string{
		{"lease": "2s", "f": "0.3", "seed": "7", "restart": "10s"}, {"lease": "700ms", "f": "0.8", "seed": "9", "restart": "20s"},
	} {
		for name, value := range want {
			if s := r.Stretches[i]; s.Policy != "themis" || !s.Recorded || s.Options[name] != value {
				t.Errorf("stretch %d: %+v, want %s=%s", i, s, name, value)
			}
		}
	}
	p := start(t, c.dir, "replay", "data", "--policy-option", "lease=3s")
	if <-p.ended; p.err == nil {
		t.Error("decisions do not depend on the lease: this test shows nothing")
	}
	if text, _ := p.out.text(); !strings.Contains(text, "differ with the options given here") {
		t.Error(text)
	}
}
