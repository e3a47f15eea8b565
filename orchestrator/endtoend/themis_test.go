package endtoend

import (
	"math"
	"testing"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Two equal sweeps on four devices, the second when the first holds them all: it is asked when the first's leases are up, and
// holds something soon after. Nobody is renewed on everything while one that is worse off holds nothing and is not asked.
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
	// A lease lasts half as long again at most; then the first's trials save and end.
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

// What `show` says of a sweep's rho is what the auction remembered of it, as long as it holds what it got there.
func TestShowAndAuctionSayTheSameRho(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "--policy", "themis", "--policy-option", "lease=2s")
	c.worker("a", "cpu:4", "")
	var sweeps []string
	for _, name := range []string{"one", "two"} {
		tuner := &outbidv1.Tuner{Kind: &outbidv1.Tuner_Random{Random: &outbidv1.RandomSearch{MaxSteps: 400}}}
		sweeps = append(sweeps, c.submit(job{name: name, mode: "well", tuner: tuner, trials: 8, env: map[string]string{"PACE": "50ms"}}.spec(t, c.locks)))
	}
	for _, id := range sweeps {
		c.waitSteps(id, 200)
	}
	// A round that takes devices away grants them in a later one, when they are free. So what is shown is read until it is of
	// the time in which the winner holds what it won.
	poll(t, "show to say of a sweep what the auction did that gave it its devices", func() bool {
		rounds, err := c.ListRounds(t.Context(), &outbidv1.ListRoundsRequest{Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		r := newestAuction(rounds.GetRounds())
		for _, b := range r.GetAuction().GetBidders() {
			got := devicesIn(b.GetWon()) + devicesIn(b.GetLeftover())
			if got == 0 || got != c.holds(b.GetSweep()) {
				continue
			}
			shown := c.sweep(b.GetSweep()).GetFairness()
			ratio := shown.GetRho() / b.GetRhoAfter()
			if ratio > .85 && ratio < 1.15 && math.Abs(shown.GetAloneSeconds()/b.GetIdealSeconds()-1) < .1 {
				return true
			}
		}
		return false
	})
	// Who holds nothing has a rho too: the one by which the next auction ranks it.
	poll(t, "show to say of a sweep that holds nothing what the next auction did", func() bool {
		for _, id := range sweeps {
			if c.holds(id) > 0 {
				continue
			}
			shown := c.sweep(id).GetFairness().GetRho()
			next := c.auctionAfter(id)
			if ratio := shown / next.GetRho(); ratio > .85 && ratio < 1.15 {
				return true
			}
		}
		return false
	})
}

// holds counts the devices that a sweep's trials hold.
func (s *server) holds(id string) int {
	n := 0
	for _, trial := range s.trials(id) {
		for _, l := range trial.GetLeases() {
			for _, p := range l.GetPlaces() {
				n += len(p.GetDevices())
			}
		}
	}
	return n
}

func newestAuction(rounds []*outbidv1.Round) *outbidv1.Round {
	for _, r := range rounds {
		if r.GetAuction() != nil {
			return r
		}
	}
	return nil
}

// auctionAfter waits for the next auction in which a sweep is asked, and returns its bid.
func (s *server) auctionAfter(id string) (bid *outbidv1.Bidder) {
	s.t.Helper()
	seen := uint64(0)
	poll(s.t, "an auction", func() bool {
		got, err := s.ListRounds(s.t.Context(), &outbidv1.ListRoundsRequest{Limit: 20})
		if err != nil {
			s.t.Fatal(err)
		}
		r := newestAuction(got.GetRounds())
		if seen == 0 {
			seen = r.GetRound()
		}
		for _, b := range r.GetAuction().GetBidders() {
			if b.GetSweep() == id && b.GetAsked() && r.GetRound() > seen {
				bid = b
			}
		}
		return bid != nil
	})
	return bid
}
