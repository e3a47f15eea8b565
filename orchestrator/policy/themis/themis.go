// Package themis is the arbiter of Themis (Mahajan et al., "Themis: Fair and Efficient GPU Cluster Scheduling", NSDI
// 2020). Devices are leased for a short term. Free devices and those on expired leases are auctioned to the sweeps (the
// paper's apps) that are furthest behind the finish time that they would have on their own share of the cluster.
//
// A round (pseudocode 1) ranks every sweep that wants devices by its finish-time fairness rho. The worst 1-f of all
// sweeps are asked for bids (package bidder). The partial allocation auction (package auction) gives each a part of the
// proportionally fair allocation. The leftovers go to sweeps that were not asked, in random order, then to all. A sweep
// that wins what it held before continues without a stop. Trials that lose their devices are paused after they have
// saved, and the devices are reserved for the winner until then.
//
// In the code a round is a sequence of values with one phase per file: reservations are granted or held back (reserve),
// leases expire (expire), the state of each sweep is computed (file standing.go), then the memory (memory), the
// ranking, the sweeps to ask, the offer, the bids, the awards, the places of awards and leftovers (place, leftover),
// the new memory (learn), and the record. Only the allocator simulates, on the round's Planner; no phase modifies the
// values of an earlier one.
//
// Where the paper leaves something open:
//
//   - Ranking. Sweeps are ranked by their cached rho: what the arbiter knew at the last auction about what they hold. A
//     sweep that holds nothing has an unbounded rho and comes first; among such sweeps the one that has waited longest
//     in units of its T_id. N_avg follows the cluster.
//   - The number asked is the worst 1-f of all live sweeps, including those that have all they can use. With several
//     device types it is the worst 1-f of those that accept a type, for every type on offer.
//   - T_id is the arbiter's (bidder.Ideal), and so is the rho that it remembers. Of a bidder's table only the times of
//     its rows count: a sweep does not become visible by another T_id or by over-reporting.
//   - Weights. A sweep's weight is its part of its tenant's share (policy.View.ShareOf): T_id is divided by its weight
//     over the mean weight of the tenant's sweeps. OwnWeights divides by the weight itself, so that a sweep with
//     weight 1.1 is due more.
//   - In the auction the rho of a sweep that would hold nothing is finite: that of a quarter of its smallest gang's
//     speed. Without a bound the payment is undefined if devices are whole: a sweep that takes the last device that
//     another such sweep could have had would pay all of it, whatever it bids, and a crowded round would assign
//     everything at random. Variant.Nothing is a factor on it.
//   - Rounding. The auction leaves a sweep c times its row. It keeps the whole gangs that fit into that, and a part of
//     the next gang if its trial can run on so few devices; otherwise a draw decides, so that it keeps c times the row
//     in expectation and truthful bids remain optimal. With KeepOne it keeps at least one gang.
//   - Leftovers go, gang by gang, to sweeps that were not asked in random order, and to those that were if no other
//     sweep can use them. A trial whose turn it is stays where it was unless that place was given away.
//   - Free devices are pooled: terms end together, on a grid of one lease, so that a lease of 10 minutes lasts 5 to 15.
//     With a Grid of 0 each term ends separately; devices are then offered one by one, and a gang of four hardly ever finds
//     four on one node.
//   - The rho shown for the visibility phase is that of the sweep's last table for what it holds now (section 3.2.3 and
//     appendix): the work left then, less the device time used since, on its present devices.
//
// Further differences from the paper are fields of a Variant and off by default. The lab offers them as options. The
// option grow stops running trials earlier to give them devices that no other sweep wants.
package themis

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/bidder"
	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// Policy is Themis's arbiter.
type Policy struct {
	set     settings
	bidders bidder.Bidder
	state
	rng *rand.Rand
	pcg *rand.PCG
}

var (
	_ policy.Bidding    = (*Policy)(nil)
	_ policy.Preemptive = (*Policy)(nil)
	_ policy.Forking    = (*Policy)(nil)
	_ policy.Growing    = (*Policy)(nil)
)

// settings are the policy's options and variant.
type settings struct {
	Variant

	knob  float64
	lease time.Duration
	seed  uint64
	// restart is the seconds that a trial loses when it restarts as several forks.
	restart float64
	// grow is how long devices must be idle before running trials get them, or 0 to give them only when leases end.
	grow time.Duration
}

// passedOver is the value of Variant.Rank that deviates from the paper.
const passedOver = "passed-over"

// state is the content of a snapshot.
type state struct {
	// Random is the generator's state.
	Random []byte
	// Ends is the next end of a term, or zero if unknown.
	Ends time.Time
	// Seen is the memory of sweeps by ID.
	Seen map[string]*memory
	// Reservations are devices kept for trials until their holders have released them.
	Reservations []policy.Reservation `json:"Promises"`
	// Idle is the idle devices, for the option grow.
	Idle idle `json:",omitzero"`
}

// New makes the policy from its options.
func New(o *policy.Options) *Policy { return NewVariant(o, Default()) }

// NewVariant makes a variant of the policy from its options.
func NewVariant(o *policy.Options, v Variant) *Policy {
	p := &Policy{set: settings{
		Variant: v,
		knob:    o.Float("f", 0.8, 0, 0.999, "fairness knob: the 1-f of the sweeps with the worst rho are asked for bids"),
		lease:   o.Duration("lease", 10*time.Minute, "length of a lease"),
		seed:    o.Seed("seed", 1, "seed of the random order in which leftovers are given"),
		restart: o.Duration("restart", 10*time.Second,
			"time that a trial loses when it restarts as several forks; a trial that would gain less is not forked").Seconds(),
		grow: time.Duration(o.Float("grow", 0, 0, 86400, "seconds that devices must be free, with no waiting trial that wants them, before running "+
			"trials that can use more are stopped to continue with them; 0 to wait until their leases end") * float64(time.Second)),
	}}
	p.pcg = rand.NewPCG(p.set.seed, 0x7e315)
	p.rng = rand.New(p.pcg)
	p.Seen = map[string]*memory{}
	return p
}

// Lease is how long devices are granted for.
func (p *Policy) Lease() time.Duration { return p.set.lease }

// Name implements policy.Policy.
func (*Policy) Name() string { return "themis" }

// Preempts implements policy.Preemptive.
func (*Policy) Preempts() bool { return true }

// ForksJobs implements policy.Forking.
func (*Policy) ForksJobs() bool { return true }

// UseBidder implements policy.Bidding.
func (p *Policy) UseBidder(a bidder.Bidder) { p.bidders = a }

// Snapshot implements policy.Policy.
func (p *Policy) Snapshot() ([]byte, error) {
	random, err := p.pcg.MarshalBinary()
	if err != nil {
		return nil, fmt.Errorf("themis: %w", err)
	}
	p.Random = random
	return json.Marshal(p.state)
}

// Restore implements policy.Policy.
func (p *Policy) Restore(b []byte) error {
	var s state
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("themis: snapshot: %w", err)
	}
	if err := p.pcg.UnmarshalBinary(s.Random); err != nil {
		return fmt.Errorf("themis: snapshot: %w", err)
	}
	if p.state = s; p.Seen == nil {
		p.Seen = map[string]*memory{}
	}
	return nil
}
