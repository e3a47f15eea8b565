package lab_test

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outbid-dev/outbid/orchestrator/lab"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/policytest"
	"github.com/outbid-dev/outbid/orchestrator/policy/registry"
)

var update = flag.Bool("update", false, "write testdata/decisions.txt")

// variants lists policies with options that select separate code.
func variants() []string {
	return []string{
		"themis rank=passed-over cover=1 leftover=keep", "themis f=0 rounding=keep-one", "themis leftover=worst grid=0 nothing=4",
		"themis idle=cached leftover=gangs stagger=true", "themis newcomers=true short=true", "themis f=0.4 leftover=all", "themis error=0.3 liars=0.5",
		"srsf unit=app", "srtf unit=app", "tiresias unit=app", "las unit=job", "gandiva-sliced migrate=false slice=1m", "tiresias promote=2", "gandiva migrate=false",
		"yarn-cs borrow=false", "hived spot=false", "hived quota=x=2,y=1", "allox fair=tenant", "hadar choose=cost utility=relative", "hadar preempt=false conserve=false",
		"gandiva-fair per=app", "ogasched preempt=false utility=linear", "ogasched utility=reciprocal beta=0.3 rate=25",
		"gavel-las whole-steps=true", "gavel-ftf-perf whole-steps=true interval=1m", "gavel-fifo round=1m interval=1m",
	}
}

// Decisions do not change: the plans and the last snapshot of stories on random clusters have the hash in the file,
// next to the numbers of grants, renewals and revocations. For an intended change write the file with -update and
// explain the change.
func TestDecisionsDoNotChange(t *testing.T) {
	t.Parallel()
	lines := []string{}
	for _, name := range append(lab.Policies().Names(), variants()...) {
		lines = append(lines, decisions(t, lab.Policies(), name))
	}
	got := strings.Join(lines, "\n") + "\n"
	path := filepath.Join("testdata", "decisions.txt")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("other decisions than before (-before +now):\n%s", diff)
	}
}

// The product's policies decide as the lab's do with their default options.
func TestTheProductDecidesAsTheLab(t *testing.T) {
	t.Parallel()
	file, err := os.ReadFile(filepath.Join("testdata", "decisions.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range registry.Product().Names() {
		if line := decisions(t, registry.Product(), name); !strings.Contains("\n"+string(file), "\n"+line+"\n") {
			t.Errorf("other decisions than the lab's: %s", line)
		}
	}
}

// stories is the number of stories of each policy.
const stories = 40

func decisions(t *testing.T, of registry.Registry, title string) string {
	t.Helper()
	words := strings.Fields(title)
	hash := sha256.New()
	counts := map[string]int{}
	for seed := range stories {
		text := policytest.Story(seed, func() policy.Policy {
			o, err := policy.ParseOptions(words[1:])
			if err != nil {
				t.Fatal(err)
			}
			p, err := of.New(words[0], o)
			if err != nil {
				t.Fatal(err)
			}
			return p
		})
		hash.Write([]byte(text))
		for _, kind := range []string{"grant", "renew", "revoke"} {
			counts[kind] += strings.Count(text, "\n"+kind+" ")
		}
	}
	return fmt.Sprintf("%s: %d grants, %d renewals, %d revocations, %x", title, counts["grant"], counts["renew"],
		counts["revoke"], hash.Sum(nil)[:8])
}
