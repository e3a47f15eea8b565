package endtoend

import (
	"slices"
	"testing"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// TestTheSecondSweepNeedNotWaitForTheFirst runs two equal sweeps on four devices, the second one after the first holds
// them all. The second is asked when the first's leases expire, and soon holds devices. A sweep is not renewed on all
// devices while a worse-off sweep holds none and is not asked.
func TestTheSecondSweepNeedNotWaitForTheFirst(t *testing.T) {
	t.Parallel()
	const lease = 3 * time.Second
	c := newCluster(t, "--policy", "themis", "--policy-option", "lease="+lease.String())
	c.worker("a", "cpu:4", "")
	submit := func(name string) string {
		tuner := &outbidv1.Tuner{Kind: &outbidv1.Tuner_Random{Random: &outbidv1.RandomSearch{MaxSteps: 100}}}
		return c.submit(job{name: name, mode: "well", tuner: tuner, trials: 64, env: map[string]string{"PACE": "50ms"}}.spec(t, c.locks))
	}
	first := submit("first")
	c.waitSteps(first, 40)
	second := submit("second")
	c.waitSteps(second, 150)
	got, err := c.ListRounds(t.Context(), &outbidv1.ListRoundsRequest{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	submitted := c.sweep(second).GetSubmitted().AsTime()
	asked, granted := false, time.Time{}
	rounds := got.GetRounds()
	for i := len(rounds) - 1; i >= 0; i-- { // the oldest first
		r := rounds[i]
		if !r.GetTime().AsTime().After(submitted) {
			continue
		}
		if !granted.IsZero() {
			break
		}
		for _, d := range r.GetDecisions() {
			if d.GetKind() == "grant" && d.GetSweep() == second {
				granted = r.GetTime().AsTime()
			}
		}
		for _, b := range r.GetAuction().GetBidders() {
			asked = asked || b.GetSweep() == second && b.GetAsked()
		}
		for _, b := range r.GetAuction().GetBidders() {
			if b.GetSweep() == first && devicesIn(b.GetRenewed()) > 0 && !asked {
				t.Errorf("round %d renewed %d devices of the first while the second held nothing and was not asked", r.GetRound(),
					devicesIn(b.GetRenewed()))
			}
		}
	}
	// A lease lasts at most half as long again; then the first's trials save and end.
	if wait := granted.Sub(submitted); !asked || granted.IsZero() || wait > 3*lease/2+20*time.Second {
		t.Errorf("the second was asked: %t, and waited %v for its first device", asked, wait)
	}
}

func devicesIn(lots []*outbidv1.Lot) int {
	n := 0
	for _, l := range lots {
		n += int(l.GetDevices())
	}
	return n
}

// TestShowAndAuctionSayTheSameRho checks that the rho that `show` gives for an auction equals the round's record to the
// last digit, with its number and time. The current rho uses the rates measured since then.
func TestShowAndAuctionSayTheSameRho(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "--policy", "themis", "--policy-option", "lease=2s")
	c.worker("a", "cpu:4", "")
	var sweeps []string
	for _, name := range []string{"one", "two"} {
		tuner := &outbidv1.Tuner{Kind: &outbidv1.Tuner_Random{Random: &outbidv1.RandomSearch{MaxSteps: 400}}}
		sweeps = append(sweeps, c.submit(job{name: name, mode: "well", tuner: tuner, trials: 8, env: map[string]string{"PACE": "50ms"}}.spec(t, c.locks)))
	}
	same := map[string]bool{}
	poll(t, "show to name an auction of each sweep", func() bool {
		for _, id := range sweeps {
			shown := c.sweep(id).GetFairness()
			last := shown.GetAuction()
			if last == nil {
				continue
			}
			got, err := c.GetRound(t.Context(), &outbidv1.GetRoundRequest{Round: last.GetRound()})
			if err != nil {
				t.Fatal(err)
			}
			r := got.GetRound()
			at := slices.IndexFunc(r.GetAuction().GetBidders(), func(b *outbidv1.Bidder) bool { return b.GetSweep() == id })
			if at < 0 {
				t.Fatalf("show prints %v for %s, which did not take part in that round", last, id)
			}
			b := r.GetAuction().GetBidders()[at]
			if last.GetRho() != b.GetRhoAfter() || last.GetAloneSeconds() != b.GetIdealSeconds() || !last.GetTime().AsTime().Equal(r.GetTime().AsTime()) {
				t.Fatalf("show prints %v for %s, but the auction rho %v, alone %v s, at %v", last, id, b.GetRhoAfter(), b.GetIdealSeconds(), r.GetTime().AsTime())
			}
			if shown.GetRho() <= 0 {
				t.Fatalf("its current values are %v", shown)
			}
			same[id] = true
		}
		return len(same) == len(sweeps)
	})
}
