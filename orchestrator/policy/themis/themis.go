// Package themis is the arbiter of Themis (Mahajan et al., "Themis: Fair and Efficient GPU Cluster Scheduling", NSDI
// 2020): devices are leased for a short term; whatever is free, or on a lease that is up, is auctioned to the apps that
// are furthest from finishing as soon as they would on a share of their own.
//
// A round (pseudocode 1): every app that wants devices is ranked by its finish-time fairness rho; the worst 1-f of all
// apps are asked for bids (package agent); the partial allocation auction (package auction) gives each its part of the
// proportionally fair allocation; what is left over goes to apps that were not asked, in random order, then to anyone.
// An app that wins what it held before goes on without a stop. Jobs whose devices went to others are paused once they
// saved, and the devices are kept for the winner until then.
//
// In code a round is a sequence of values, a phase and a file each: what is reserved is granted or held (reserve), leases
// that are up (expire), how apps stand (standing), what is remembered of them (memory), their rank, whom to ask, the offer,
// the bids, the awards, what is placed of them and of what is left over (place, leftover), what is remembered then (learn),
// and the record. Only placing simulates, on the round's Planner; nothing changes the values of a phase before.
//
// Where the paper leaves something open:
//
//   - Who is worst off. Apps are ranked by their cached rho: what the arbiter knew at the last auction of what they hold. One
//     that holds nothing has no bound on its rho and comes first; among such apps who has waited longest in units of its T_id.
//     N_avg follows the cluster.
//   - How many are asked: the worst 1-f of all live apps, those that have all they can use counted too. Where there are
//     several types of devices, the worst 1-f of those that accept a type, for every type on offer.
//   - T_id is the arbiter's (agent.Ideal), and so is the rho that it remembers. Of an agent's table only the times count that
//     its rows say: by another T_id, or by over-reporting, nobody becomes visible.
//   - Weights. What an app weighs is its part of what its tenant has (policy.View.ShareOf): T_id is divided by its weight over
//     the mean weight of the tenant's apps. weights=own divides by the weight itself, so that whoever says 1.1 is due more.
//   - In the auction the rho of an app that would hold nothing is finite, that of a quarter of its smallest gang's speed.
//     Without a bound a payment is undefined where devices are whole: who takes the last one that another such app could have
//     had would pay all of it, whatever it says, and a crowded round would give everything away by lot. nothing is a factor on it.
//   - Rounding. The auction leaves an app c times its row. It keeps whole gangs as far as they fit into that, and of the
//     next one a part, if its job takes so few; otherwise chance decides, so that it keeps c times the row in expectation
//     and truth still pays. With rounding=keep-one it keeps at least one gang.
//   - Leftovers go, gang by gang, to apps that were not asked in random order, and to those that were if nobody else can use
//     them. A job whose turn it is goes on where it was, if nobody has taken that.
//   - What is free is pooled: terms end together, on a grid of a lease, so that a lease of 10 minutes lasts 5 to 15. With
//     grid=0 each ends on its own; devices are then offered one by one, and a gang of four hardly ever finds four side by side.
//   - An app's rho that is shown for the visibility phase is what its last table says of what it holds now (section 3.2.3 and appendix):
//     the work left then, less the device time it has had since, on the devices that it has.
//
// What differs from the paper is an option, off unless it is chosen: rank=passed-over, cover, newcomers and short change who
// is asked; idle=cached and nothing what holding nothing means; leftover=keep, gangs, worst and all who gets what is left over;
// rounding=keep-one the payments; weights=own what an app may weigh; grid=0 and stagger when leases end; grow stops running jobs
// before that for devices that nobody else wants.
package themis

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/agent"
	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// Policy is Themis's arbiter.
type Policy struct {
	set    settings
	agents agent.Agent
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

// settings are the policy's options.
type settings struct {
	knob     float64
	lease    time.Duration
	seed     uint64
	keepOne  bool
	grid     float64
	rank     string
	idle     string
	cover    float64
	nothing  float64
	study    study
	leftover string
	// restart is what a job loses, in seconds, when it starts again as several forks.
	restart float64
	// stagger, newcomers and short are deviations from the paper, off unless they are chosen.
	stagger, newcomers, short, ownWeights bool
	// grow is how long devices are idle before running jobs have them; 0 for when their leases end.
	grow time.Duration
}

// passedOver is the value of the option rank that is not the paper's.
const passedOver = "passed-over"

// state is what a snapshot holds.
type state struct {
	// Random is the generator's state.
	Random []byte
	// Ends is the next end of a term; zero if that is not known.
	Ends time.Time
	// Seen is what is known of apps, by ID.
	Seen map[string]*memory
	// Reservations are devices that are kept for jobs until others have left them.
	Reservations []policy.Reservation `json:"Promises"`
	// Idle is what nobody waits for, with the option grow.
	Idle idle `json:",omitzero"`
}

// New makes the policy from its options.
func New(o *policy.Options) *Policy {
	p := &Policy{set: settings{
		knob:  o.Float("f", 0.8, 0, 0.999, "fairness knob: the 1-f of the apps with the worst rho are asked for bids"),
		lease: o.Duration("lease", 10*time.Minute, "how long devices are granted for"),
		rank: o.Text("rank", "rho", "who counts as worst off: rho, by the cached rho, as the paper has it; or passed-over, by "+
			"what rho would come to if the app were passed over in this round and wanted for nothing afterwards", "rho", passedOver),
		idle: o.Text("idle", "unbounded", "by rank=rho, an app that holds nothing: unbounded, it comes before all that hold "+
			"something, by how long it waits in units of its T_id; or cached, by its cached rho like them", "unbounded", "cached"),
		cover: o.Float("cover", 0, 0, 1e9, "no more apps are asked than it takes to use what is on offer so many times; 0 for no such bound"),
		nothing: o.Float("nothing", 1, 1, 1e12, "in the auction rho of an app that would hold nothing is so many times that of a "+
			"quarter of its smallest gang's speed"),
		grid:    o.Float("grid", 1, 0, 1, "leases end together, on a grid of this part of the lease; 0 for each on its own"),
		seed:    o.Seed("seed", 1, "of the random order in which leftovers are given"),
		keepOne: o.Text("rounding", "lottery", "of what an app keeps: lottery, or keep-one at least", "lottery", "keep-one") == "keep-one",
		study: study{
			errors: o.Float("error", 0, 0, 1, "to study errors: every app's estimates are off by up to this part"),
			liars:  o.Float("liars", 0, 0, 1, "to study lies: the part of the apps that over-report their slowdown"),
			lie:    o.Float("lie", 0.3, 0, 100, "by how much they do"),
		},
		leftover: o.Text("leftover", "random", "who comes first among those not asked: random; keep, which lets each first "+
			"keep what it held; gangs, which does so for jobs that take several devices at once; or worst, by rho; all lets those that "+
			"were asked come in the same random order",
			"random", "keep", "gangs", "worst", "all"),
		ownWeights: o.Text("weights", "tenant", "an app's weight shares out what is due to its tenant, among the tenant's apps: "+
			"tenant; or makes more due to it whoever else there is, without bound: own", "tenant", "own") == "own",
		stagger: o.Bool("stagger", false, "leases end machine by machine, each on a grid of its own, and not all at once"),
		restart: o.Duration("restart", 10*time.Second,
			"what a job loses when it starts again as several forks; one that would gain less is not forked").Seconds(),
		newcomers: o.Bool("newcomers", false, "apps that never held anything are asked beside the worst"),
		short:     o.Bool("short", false, "apps that could end within a lease are asked beside the worst"),
		grow: time.Duration(o.Float("grow", 0, 0, 86400, "seconds that devices must be free, and wanted by nobody who waits, before running "+
			"jobs that can use more are stopped to go on with them; 0 for not before their leases end") * float64(time.Second)),
	}}
	p.set.study.seed = p.set.seed
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

// UseAgents implements policy.Bidding.
func (p *Policy) UseAgents(a agent.Agent) { p.agents = a }

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
