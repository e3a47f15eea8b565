package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// explained are command lines that explain digits-2, which lost devices in round 17.
func explained() map[string][]string {
	return map[string][]string{
		"explain":               {"explain", "digits"},
		"explain-json":          {"explain", "digits-2", "--json"},
		"explain-trial":         {"explain", "digits-2/1"},
		"explain-trial-failed":  {"explain", "digits-2/0", "-o", "json"},
		"explain-done":          {"explain", "digits-1"},
		"explain-unknown":       {"explain", "nothing-1"},
		"explain-trial-unknown": {"explain", "digits-2/9"},
		"explain-trial-bad":     {"explain", "digits-2/one"},
		"explain-missing":       {"explain"},
		"explain-policy-bad":    {"explain", "digits-2", "--policy", "fairest"},
		"explain-complete":      {"__complete", "explain", "digits-2/"},
	}
}

func TestExplain(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.round = &outbidv1.Round{
		Round: 17, Policy: "themis", Time: ago(90 * time.Second),
		Decisions: []*outbidv1.Decision{
			{Kind: "grant", Sweep: "digits-2", Trial: 1, LeaseId: 3, Places: []*outbidv1.LeasePlace{{Node: "left", Devices: []int32{0}}}},
			{Kind: "revoke", Sweep: "digits-2", Trial: 1, LeaseId: 3, Reason: "its lease is up"},
			{Kind: "grant", Trial: 4, LeaseId: 5, Places: []*outbidv1.LeasePlace{{Node: "left", Devices: []int32{0}}}},
		},
		Auction: &outbidv1.Auction{Bidders: []*outbidv1.Bidder{
			{Rho: 1.5, Won: []*outbidv1.Lot{{Node: "left", Devices: 1}}}, {Sweep: "digits-2", Rho: 1.25},
		}},
	}
	url, _ := serveFake(t, f, "127.0.0.1:0")
	for name, args := range explained() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			app := newTestApp(strings.NewReader(""), map[string]string{"OUTBID_URL": url})
			code := app.run(t.Context(), args)
			checkGolden(t, name, bytes.ReplaceAll(transcript(args, app, code), []byte(url), []byte("http://SERVER")))
		})
	}
}
