package mcp

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// round is a decision of the policy on digits-2 and on another tenant's sweep.
func round() *outbidv1.Round {
	return &outbidv1.Round{
		Round: 17, Policy: "themis", Reason: "2 devices are free",
		Decisions: []*outbidv1.Decision{
			{Kind: "grant", Sweep: "digits-2", Trial: 3, Reason: "won", Places: []*outbidv1.LeasePlace{{Node: "a", Devices: []int32{0, 1}}}},
			{Kind: "revoke", Sweep: "digits-2", Trial: 4, Reason: "its lease ended"},
			{Kind: "grant", Reason: "hidden"},
		},
		Auction: &outbidv1.Auction{Bidders: []*outbidv1.Bidder{{
			Sweep: "digits-2", Asked: true, Rho: 1.4, RhoAfter: 0.9, Bids: []*outbidv1.Bid{{}}, Won: []*outbidv1.Lot{{Node: "a", Type: "v100", Devices: 2}},
		}}},
	}
}

func TestExplainASweep(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.rounds = []*outbidv1.Round{round()}
	got := mustAsk(t, f.client(t, Config{}), "explain", map[string]any{"sweep": "digits-2"})
	findings := fmt.Sprint(got["findings"])
	for _, want := range []string{
		"digits-2 is running: 10 trials of 20 planned",
		"the best trial is 0 with accuracy 0.9 at step 8; it is completed", "1 trial failed: failed for good: exited with code 1",
	} {
		if !strings.Contains(findings, want) {
			t.Errorf("the findings lack %q: %s", want, findings)
		}
	}
	if sentences := fmt.Sprint(got["sentences"]); len(got["sentences"].([]any)) != 3 || !strings.Contains(sentences, "digits-2 waits for its tuner, asha, to start a trial") ||
		!strings.Contains(sentences, "digits-2/4 lost its devices: its lease ended.") {
		t.Errorf("the sentences are %s", sentences)
	}
	first := got["parameters"].([]any)[0].(map[string]any)
	if first["parameter"] != "lr" || first["rank_correlation"] != -1.0 || first["trials"] != 10.0 {
		t.Errorf("the strongest parameter is %v", first)
	}
	rounds := got["rounds"].([]any)[0].(map[string]any)
	want := map[string]any{
		"round": 17.0, "policy": "themis", "reason": "2 devices are free",
		"decisions": []any{"grant trial 3 devices [0 1] of a: won", "revoke trial 4: its lease ended"},
		"bid":       map[string]any{"asked": true, "rho": 1.4, "rho_after": 0.9, "bids": 1.0, "won": "2 v100 on a"},
	}
	if diff := cmp.Diff(want, rounds); diff != "" {
		t.Errorf("round (-want +got):\n%s", diff)
	}
}

func TestExplainATrial(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.rounds = []*outbidv1.Round{round()}
	f.logs = []*outbidv1.StreamLogsResponse{{Stream: "stdout", Line: "step 1"}, {Trial: 9, Stream: "stderr", Line: "ValueError: lr"}}
	session := f.client(t, Config{})
	got := mustAsk(t, session, "explain", map[string]any{"sweep": "digits-2", "trial": 9})
	if got["rank"] != 10.0 || got["ranked"] != 10.0 || !strings.Contains(fmt.Sprint(got["findings"]), "trial 9 is failed (failed for good: exited with code 1)") {
		t.Errorf("the answer is %v", got)
	}
	if diff := cmp.Diff([]any{"ValueError: lr"}, got["stderr"]); diff != "" {
		t.Errorf("stderr (-want +got):\n%s", diff)
	}
	want := map[string]any{"lr": map[string]any{"here": 9.5, "best": 0.5}, "opt.name": map[string]any{"here": "sgd", "best": "adam"}}
	if diff := cmp.Diff(want, got["differs_from_best"]); diff != "" {
		t.Errorf("differs_from_best (-want +got):\n%s", diff)
	}
	if len(got["notes"].([]any)) != 1 || got["rounds"] != nil {
		t.Errorf("notes %v, rounds %v", got["notes"], got["rounds"])
	}
	f.fail["StreamLogs"] = status.Error(codes.PermissionDenied, "no logs")
	if got := mustAsk(t, session, "explain", map[string]any{"sweep": "digits-2", "trial": 9}); got["stderr"] != nil {
		t.Errorf("stderr of a caller who may not read logs: %v", got["stderr"])
	}
}

func TestInfluences(t *testing.T) {
	t.Parallel()
	var all []*outbidv1.Trial
	for i := range 40 {
		metric := float64(i % 7)
		if i%2 == 1 {
			metric += 100
		}
		all = append(all, &outbidv1.Trial{Best: &metric, ConfigJson: fmt.Sprintf(`{"opt":%q,"flat":1,"id":"%d","noise":%d}`, []string{"adam", "sgd"}[i%2], i, i*13%40)})
	}
	all = append(all, &outbidv1.Trial{ConfigJson: `{"opt":"lost"}`}, &outbidv1.Trial{Best: new(math.NaN()), ConfigJson: `{"opt":"nan"}`})
	got := influences(all)
	if len(got) != 2 || got[0].Parameter != "opt" || got[0].Strength < 0.8 || got[1].Parameter != "noise" || got[1].Strength > 0.5 {
		t.Fatalf("the influences are %+v", got)
	}
	if v := got[0].Values; len(v) != 2 || v[0].Value != "adam" || v[0].Mean > 10 || v[1].Mean < 100 {
		t.Errorf("the values are %+v", v)
	}
	if text, err := json.Marshal(influences(all[:7])); err != nil || string(text) != "null" {
		t.Errorf("of three trials: %s, %v", text, err)
	}
}

func TestAnOptimumInTheMiddleIsAnInfluence(t *testing.T) {
	t.Parallel()
	var all []*outbidv1.Trial
	for i := range 41 {
		x := float64(i-20) / 10
		all = append(all, &outbidv1.Trial{Best: new(x * x), ConfigJson: fmt.Sprintf(`{"x":%g}`, x)})
	}
	got := influences(all)
	if len(got) != 1 || got[0].Strength < 0.8 || math.Abs(float64(*got[0].Correlation)) > 0.1 || len(got[0].Values) != 4 {
		t.Errorf("the influences are %+v", got)
	}
}

func TestRanksShareTies(t *testing.T) {
	t.Parallel()
	if diff := cmp.Diff([]float64{2.5, 1, 2.5, 4}, ranks([]float64{5, 1, 5, 9})); diff != "" {
		t.Errorf("ranks (-want +got):\n%s", diff)
	}
}
