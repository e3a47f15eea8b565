package endtoend

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// replayed is what `outbid replay -o jsonl` says.
type replayed struct {
	Rounds, Decisions, Differing int
	Policies                     map[string]int
}

// replay runs `outbid replay` to its end.
func replay(t *testing.T, dir string, args ...string) string {
	t.Helper()
	p := start(t, dir, append([]string{"replay"}, args...)...)
	<-p.ended
	text, _ := p.out.text()
	if p.err != nil {
		t.Fatalf("replay %v: %v\n%s", args, p.err, text)
	}
	return text
}

func mustRepeat(t *testing.T, dir, ledger string) replayed {
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

// A ledger of a real server, killed in between, decides the same again: exported while the server runs and when it does
// not, and read from its data directory. Another policy is run on what happened.
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
					t.Errorf("%q is not in what other policies would have done:\n%s", want, text)
				}
			}
			if data, err := os.ReadFile(file); err != nil || !strings.Contains(string(data), `{"lease_granted":{`) {
				t.Errorf("the export cannot be read by people: %v", err)
			}
		})
	}
}
