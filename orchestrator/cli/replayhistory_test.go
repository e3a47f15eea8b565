package cli

import (
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/sim/experiment"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// recorded returns a ledger as a server with these policy settings would write it. p is nil for a server that does not
// record settings. change, if not nil, changes the following events.
func recorded(t *testing.T, file string, p *outbidv1.PolicySettings, change func(*outbidv1.Event)) string {
	t.Helper()
	old := ledger.NewLines(func() (io.ReadCloser, error) { return os.Open(file) })
	l := ledger.NewMemory()
	err := old.Read(t.Context(), 1, func(b *outbidv1.Batch) error {
		events, err := ledger.Decode(b)
		if err != nil {
			return err
		}
		for _, e := range events {
			if started := e.GetOrchestratorStarted(); started != nil {
				started.Policy = p
			}
			if change != nil {
				change(e)
			}
		}
		_, err = l.Append(t.Context(), b.GetTime().AsTime(), events)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if _, err := ledger.Export(t.Context(), l, &text); err != nil {
		t.Fatal(err)
	}
	return writeFile(t, "recorded.jsonl", text.String())
}

// tiresias returns the settings that a server with this threshold records.
func tiresias(threshold string) *outbidv1.PolicySettings {
	return &outbidv1.PolicySettings{Name: "tiresias", Options: map[string]string{
		"threshold": threshold, "interval": "1m0s", "promote": "0", "unit": "job",
	}}
}

func TestReplayTakesTheLedgersOptions(t *testing.T) {
	t.Parallel()
	file := simLedger(t, "tiresias", "--option", "threshold=60")
	code, out, errs := runReplay(t, "replay", recorded(t, file, nil, nil))
	if code != exitFailed || !strings.Contains(errs, "if the server was given policy options, give them here too") ||
		!strings.Contains(out, "threshold=3600 unit=job; the ledger does not say its options") {
		t.Errorf("of a ledger that does not say its options: exit code %d:\n%s\n%s", code, out, errs)
	}
	code, out, errs = runReplay(t, "replay", file)
	if code != exitOK || !strings.Contains(out, " 0 differ\nfrom batch 1: tiresias with interval=1m0s promote=0 threshold=60 unit=job\n") {
		t.Errorf("of one that does: exit code %d:\n%s\n%s", code, out, errs)
	}
	code, out, errs = runReplay(t, "replay", file, "--policy-option", "threshold=3600")
	if code != exitFailed || !strings.Contains(errs, "decisions differ with the options given here") ||
		!strings.Contains(out, "threshold=3600") {
		t.Errorf("with other options than it says: exit code %d:\n%s\n%s", code, out, errs)
	}
	code, out, errs = runReplay(t, "replay", file, "-o", "jsonl")
	var got experiment.Decided
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != exitOK {
		t.Fatalf("exit code %d: %s %s %v", code, out, errs, err)
	}
	want := []experiment.PolicyPeriod{{
		Policy: "tiresias", Batch: 1, Time: got.History[0].Time, Rounds: got.Rounds, Recorded: true, Options: tiresias("60").GetOptions(),
	}}
	if diff := cmp.Diff(want, got.History); diff != "" {
		t.Error(diff)
	}
}

// TestReplayShowsEachPeriod checks a server that was restarted with other options: each period has its options.
func TestReplayShowsEachPeriod(t *testing.T) {
	t.Parallel()
	rounds, change := 0, tiresias("60")
	file := recorded(t, simLedger(t, "tiresias"), tiresias("3600"), func(e *outbidv1.Event) {
		if e.GetRoundDecided() != nil {
			rounds++
		}
		if rounds > 20 && e.GetUplinkSeen() != nil && change != nil {
			e.Kind = &outbidv1.Event_OrchestratorStarted{OrchestratorStarted: &outbidv1.OrchestratorStarted{Format: state.Format, Policy: change}}
			change = nil
		}
	})
	code, out, errs := runReplay(t, "replay", file)
	if code != exitFailed || strings.Contains(errs, "give them here too") || !strings.Contains(out, "threshold=3600 unit=job\nfrom batch ") ||
		!strings.Contains(out, "threshold=60 unit=job\n") {
		t.Errorf("exit code %d:\n%s\n%s", code, out, errs)
	}
}

func TestReplayOfOptionsThatAreNoMore(t *testing.T) {
	t.Parallel()
	p := tiresias("60")
	p.Options["queues"] = "2"
	file := recorded(t, simLedger(t, "tiresias"), p, nil)
	code, _, errs := runReplay(t, "replay", file)
	if code != exitUsage || !strings.Contains(errs, "policy option queues=2: this policy has threshold") ||
		!strings.Contains(errs, "replay it with the version of outbid that wrote it") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

// TestReplayUnderOthersHasTheLedgersOptions checks that the ledger's own policy runs with its own options, besides the
// other policies.
func TestReplayUnderOthersHasTheLedgersOptions(t *testing.T) {
	t.Parallel()
	plain := simLedger(t, "tiresias", "--option", "threshold=60")
	bidders := 0
	file := recorded(t, plain, tiresias("60"), func(e *outbidv1.Event) {
		if s := e.GetSweepSubmitted().GetSpec(); s != nil && bidders < 3 {
			s.Agent = &outbidv1.Agent{Plugin: "patient"}
			bidders++
		}
	})
	common := []string{"--policy", "fifo", "-o", "jsonl", "--no-times"}
	code, want, errs := runReplay(t, append([]string{"replay", plain, "--policy-option", "tiresias.threshold=60"}, common...)...)
	if code != exitOK {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	code, got, errs := runReplay(t, append([]string{"replay", file}, common...)...)
	if diff := cmp.Diff(want, got); code != exitOK || diff != "" {
		t.Errorf("exit code %d, %s (-given +recorded):\n%s", code, errs, diff)
	}
	for _, said := range []string{
		"assumed: policy tiresias has the options that it had last: interval=1m0s promote=0 threshold=60 unit=job",
		"assumed: 3 sweeps had bidders that are programs of their own",
	} {
		if !strings.Contains(errs, said) {
			t.Errorf("it does not say %q: %s", said, errs)
		}
	}
	code, other, errs := runReplay(t, append([]string{"replay", file, "--policy-option", "threshold=3600"}, common...)...)
	if code != exitOK || other == got {
		t.Errorf("options that are given make no difference: exit code %d: %s", code, errs)
	}
}
