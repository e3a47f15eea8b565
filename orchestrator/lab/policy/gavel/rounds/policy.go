// Package rounds makes policies from Gavel's programs and its round-based mechanism (package gavel), for the registry.
// The rules are those of Gavel's own simulator:
//
//   - Time is divided into rounds, 360 s by default. Only the beginning of a round decides which jobs run: new jobs
//     wait for the next round, and devices of a job that ends idle until then. A round ends early if nothing runs in it
//     any longer.
//   - A new allocation is made when a round begins, if jobs have been added or removed since the last one and that is
//     long enough ago (interval), or if no job could run under the old one.
//   - A job that is picked again for the type that it holds continues without a stop. The others save and leave, and
//     their devices are granted as they become free, in the same round.
//
// A job gets the least number of devices that it asks for; it does not run on types with fewer. Its speed on a type is
// that of a gang on one node.
//
// # Differences from Gavel's simulator
//
// In Gavel's simulator a job does whole steps in each round, idles for the rest of it, and makes up the difference in
// another turn; here it continues to train and ends up to a round earlier. There a job with fewer steps left than
// workers fails its rounds, and is dropped after five of them (298 of 300 jobs end under fifo on the trace of the
// tests); here it ends. Schedules depend on such details: an earlier end gives others an earlier start. With the option
// whole-steps the mechanism follows Gavel's count, so that every turn is as in Gavel, drops included, and only the
// jobs' own ends differ.
//
// If no job may run until the next allocation, Gavel's simulator advances to the next arrival; here the allocation is
// made at once. A job that cannot be placed (trust, memory, no node with enough devices) loses its turn to others. A
// job for which no single type has room, and that may mix types, gets what the others leave.
package rounds

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/lab/policy/gavel"
	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// A Rule defines one of Gavel's policies.
type Rule struct {
	// Allocate computes the allocation.
	Allocate func(*Input) (gavel.Allocation, error)
	// Aware rules know the device types. For the others the order in which types are filled is shuffled.
	Aware bool
	// Strict rounds never run jobs with zero allocation.
	Strict bool
}

// Policy is one of Gavel's policies.
type Policy struct {
	name    string
	rule    Rule
	round   time.Duration
	seconds float64 // of a round
	minimum float64 // seconds between allocations
	seed    uint32
	whole   bool
	s       state
	// shuffle and random are at the draws recorded in the state.
	shuffle, random *gavel.Mersenne
	// scratch
	turn turn
}

// New makes a policy by its name in the registry: one of Names, or "fifo", which is gavel-fifo under its name in Gavel.
// It returns nil for any other name.
func New(name string, o *policy.Options) *Policy {
	rule, ok := rules()[name]
	if name == "fifo" {
		rule, ok = rules()["gavel-fifo"]
	}
	if !ok {
		return nil
	}
	p := &Policy{
		name: name, rule: rule,
		round: o.Duration("round", 6*time.Minute, "length of a round"),
		minimum: o.Duration("interval", 32*time.Minute,
			"least time between two allocations; trials submitted in between wait for the next").Seconds(),
		seed: uint32(o.Int("seed", 0, 0, 1<<30, "seed of Gavel's random draws: the order of types, and FIFO's choice of them")),
		whole: o.Bool("whole-steps", false, "count steps as Gavel's simulator does, for comparisons: whole steps in "+
			"each round, and a trial that lacks steps by that count keeps its turn although it has ended"),
	}
	p.seconds = p.round.Seconds()
	p.s.FIFO.Perf = rule.Aware
	p.reseed(0, 0)
	return p
}

// shuffler is Gavel's offset to the seed for the generator that shuffles types.
const shuffler = 5

func (p *Policy) reseed(random, shuffle uint64) {
	p.random = gavel.NewMersenne(p.seed, random)
	p.shuffle = gavel.NewMersenne(p.seed+shuffler, shuffle)
}

// Name implements policy.Policy.
func (p *Policy) Name() string { return p.name }

// Preempts implements policy.Preemptive.
func (p *Policy) Preempts() bool { return true }

// Decide implements policy.Policy.
func (p *Policy) Decide(v *policy.View) policy.Plan {
	if p.s.Epoch.IsZero() {
		p.s.Epoch = v.Now
	}
	more := v.Now.Equal(p.s.Begun) && len(v.Apps) > p.s.Apps
	if p.s.On && v.Now.Before(p.next()) && !more {
		if plan, on := p.within(v); on {
			return plan
		}
	}
	return p.begin(v)
}

// next returns when the next round begins.
func (p *Policy) next() time.Time {
	if p.whole && p.s.On {
		return p.s.Begun.Add(p.s.Length)
	}
	return p.s.Begun.Add(p.round)
}

// clock converts a time to seconds since the policy's epoch.
func (p *Policy) clock(t time.Time) float64 { return t.Sub(p.s.Epoch).Seconds() }

// state is the policy's snapshot.
type state struct {
	// Epoch is zero on the mechanism's clock.
	Epoch time.Time `json:"epoch"`
	// Types of device, sorted, and the number of each on nodes that accept trials.
	Types   []string `json:"types,omitempty"`
	Workers []int    `json:"workers,omitempty"`
	// Rounds holds the jobs by number, and Names their names in the same order. Last is the highest number so far.
	Rounds *gavel.Rounds `json:"rounds,omitempty"`
	Names  []name        `json:"names,omitempty"`
	Last   int           `json:"last"`
	// Counts has Gavel's count of each job, in the same order, with whole-steps; otherwise it is empty.
	Counts []count `json:"counts,omitempty"`
	// On means that a round is in progress, Begun is when it began, and Assignments holds its jobs. Length is its
	// length with whole-steps.
	On          bool          `json:"on"`
	Begun       time.Time     `json:"begun"`
	Length      time.Duration `json:"length,omitempty"`
	Assignments []assignment  `json:"seats,omitempty"`
	// Free is how many devices were free after the last decision.
	Free  int         `json:"free"`
	FIFO  gavel.FIFO  `json:"fifo"`
	Alone gavel.Alone `json:"alone"`
	// Random and Shuffle count draws, and Drawn those of Shuffle before this round. Apps is the number of sweeps when
	// it began.
	Random  uint64 `json:"random"`
	Shuffle uint64 `json:"shuffle"`
	Drawn   uint64 `json:"drawn"`
	Apps    int    `json:"apps"`
}

// name identifies a job: its sweep, the sweep's place in the order of submission, and its trial.
type name struct {
	App   string `json:"app"`
	Order int    `json:"order"`
	Trial int32  `json:"trial"`
}

// assignment is a job's place in the round.
type assignment struct {
	Job  int  `json:"job"`
	Who  name `json:"who"`
	Type int  `json:"type"`
	// Gang is its devices, which are reserved for it until Given.
	Gang policy.NamedGang `json:"gang,omitempty"`
	// Given means that the job got it, at From; Left that it has gone, at To. From and To are on the policy's clock.
	Given bool    `json:"given,omitempty"`
	From  float64 `json:"from,omitempty"`
	Left  bool    `json:"left,omitempty"`
	To    float64 `json:"to,omitempty"`
	// hint is the sweep's last known index in the view.
	hint int
}

// Snapshot implements policy.Policy.
func (p *Policy) Snapshot() ([]byte, error) {
	p.s.Random, p.s.Shuffle = p.random.Draws, p.shuffle.Draws
	data, err := json.Marshal(&p.s)
	if err != nil {
		return nil, fmt.Errorf("write the state of policy %s: %w", p.name, err)
	}
	return data, nil
}

// Restore implements policy.Policy.
func (p *Policy) Restore(data []byte) error {
	var s state
	if err := json.Unmarshal(data, &s); err != nil {
		return fmt.Errorf("read the state of policy %s: %w", p.name, err)
	}
	shares := 0
	if s.Rounds != nil {
		shares = len(s.Rounds.Shares)
	}
	if len(s.Names) != shares || len(s.Types) != len(s.Workers) || p.whole && len(s.Counts) != shares {
		return fmt.Errorf("read the state of policy %s: %d jobs have %d names", p.name, shares, len(s.Names))
	}
	p.s = s
	p.s.FIFO.Perf = p.rule.Aware
	p.reseed(s.Random, s.Shuffle)
	return nil
}
