// Package control is the loop that everything goes through: commands, workers' messages and the passing of time come
// in, events and orders go out. It decides, appends, then acts.
//
// Core is the deciding half and pure: the time is an argument, and what it wants done comes back as values, so that the
// simulator and replay drive the very same code on a virtual clock. Loop is the half that appends to the ledger and
// talks to the world.
package control

import (
	"fmt"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/agent"
	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/sanitize"
	"github.com/outbid-dev/outbid/orchestrator/state"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Settings are what the core must know beside its state.
type Settings struct {
	// Lease is how long a node may go on without word from the orchestrator, and how long it must have been silent
	// until its devices are given to others.
	Lease time.Duration
	// Term of this orchestrator: workers ignore orders of a lower one.
	Term uint64
	// Store is the object store's name for workers that were not given one.
	Store string
	// Tenants says that sweeps come from others than the user that runs the server: workers must keep them apart.
	Tenants bool
	// Trust says whether a node's worker is one that joined this server, and so may run functions; nil trusts nobody.
	Trust func(node string) bool
	// Sign makes the proof that this server accepted a function, by the SHA-256 of its blob; nil sends none.
	Sign func(blob string) []byte
	// Seal encrypts the values of a tenant's secrets, given by variable, for the worker of a node. The error says which is
	// missing. nil sends none, as in the simulator.
	Seal func(node *outbidv1.NodeInfo, tenant string, secrets map[string]string) ([]byte, error)
	// NewTuner makes a tuner from its sweep's settings, or from a snapshot if that is not nil.
	NewTuner func(settings tuner.Settings, snapshot []byte) (tuner.Tuner, error)
	// MayReportNothing: a trial that never reports its sweep's metric has not failed by that. Jobs of traces report nothing.
	MayReportNothing bool
	// Fairness says how an app fares by sharing the cluster, or fared if it is over; nil if nobody wants to know.
	Fairness func(v *policy.View, a *policy.App, over bool) *outbidv1.Fairness
	// MaxPayload returns how many bytes one message of NATS may have; nil for no bound.
	MaxPayload func() int
	// Limits returns what a tenant may take, of which was set what the second argument says, nil for nothing; nil for no limits.
	Limits func(tenant string, set *outbidv1.Tenant) limits.Tenant
	// Room says why there is no room for another sweep; "" if there is. nil where nothing is known of that.
	Room func() string
	// Agents outside the binary, which sweeps may choose; nil for none. The core knows their names, and asks none: see Outcome.Bids.
	Agents Agents
	// Beside runs what decides a round, and says whether it is over. If it takes longer than is to be waited for, it goes on
	// beside the core's steps, and PolicyDone is to say when it is over. nil waits.
	Beside func(decide func()) (over bool)
	// NewPolicy makes the policy of an earlier orchestrator from what the ledger says of it. Only those of the name that
	// this core's policy has are asked for; nil lets that one take their place, whatever options it has.
	NewPolicy func(*outbidv1.PolicySettings) (policy.Policy, error)
}

// Agents answer for the sweeps that chose one of them.
type Agents interface {
	agent.Agent
	// Names of the agents, sorted.
	Names() []string
}

// Core decides. It is not safe for concurrent use.
type Core struct {
	set Settings
	st  *state.State
	// tuners of sweeps that have not ended, archived ones of those that have, and those that did not start.
	tuners   map[string]tuner.Tuner
	archived map[string]archived
	unopened map[string]error
	// policy decides. On replay it is the one that decided then; nil if that has another name than configured, which the
	// core was made with.
	policy, configured policy.Policy
	// initial is the snapshot that configured had at first; nil if it has none.
	initial []byte
	// hasHistory: the policy remembers rounds, for the next of its name to go on from.
	hasHistory bool
	// now is the time of the step under way.
	now time.Time
	// started is when this core first decided something: nodes not heard of since are given a lease's time.
	started time.Time
	nodes   map[string]*link

	out Outcome
	// touched sweeps are looked at again before the step ends, later ones in the next.
	touched, later map[string]bool
	// scheduleDue: devices, or trials that want some, may have changed, so that the policy is asked in this step.
	scheduleDue bool
	// next is when the policy wants to be asked again; zero for never.
	next time.Time
	// spent names the tenants whose device-hours are used up; metered is when that may change, zero for never.
	spent   map[string]bool
	metered time.Time
	// opening is when the next node is open again that trials keep off; zero for never.
	opening time.Time
	// err is set once, by an event that does not fit; the core is unusable from then on.
	err error
	// views keeps the policy's view.
	views *viewCache
	// stateful policies remember something, so that each of their rounds is recorded; one that preempts is shown all that
	// sweeps could use.
	stateful, preempts bool
	// mayCreate names the sweeps whose tuner may create trials if it is asked.
	mayCreate map[string]bool
	// audit is shown each round that is replayed: what the policy decides now, and what followed then.
	audit func(at time.Time, round *outbidv1.RoundDecided, now, then []*outbidv1.Event)
	// asking names the sweeps whose tuners, programs of their own, were told something; pending are the commands that wait for
	// what they answer, each of which says whether it was replied to.
	asking  map[string]bool
	pending []func() bool
	// asked counts the questions to agents outside; bids is the round in which they are asked, nil for none.
	asked uint64
	bids  *bids
	// deciding is the round that the policy decides beside the core's steps, nil for none; holding has no other begin in the step in
	// which that ends. On replay begun is the view of the last round that was so begun.
	deciding *round
	holding  bool
	begun    *policy.View
	// ordersDue names the nodes that get orders at the end of the step.
	ordersDue map[string]bool
	// unordered are the leases for which no orders can be made: their trials fail in the next step.
	unordered []unordered
	// meters are those of the tenants whose trials report, by tenant.
	meters map[string]*reportMeter
	// asksOn: tuners are to be asked for more in the next step, because this one was full.
	asksOn bool
	// replaying: events come from the ledger, and following are those of the batch after the current one.
	replaying bool
	following []*outbidv1.Event
}

// Outcome is what a step wants done. Nothing of it may happen before Events are in the ledger.
type Outcome struct {
	// Events decided, in order, and what each changed. The changes are those of this step until the next begins. Ends are how many
	// events may be in the ledger without those after: who restores what is between would know what a tuner was asked, and not
	// all that followed.
	Events  []*outbidv1.Event
	Changes []state.Change
	Ends    []int
	// Bytes that Events take, encoded.
	Bytes int
	// Orders to send.
	Orders []*outbidv1.Orders
	// Delete names objects that nothing needs any more.
	Delete []string
	// Merges counts what became of rounds of forks.
	Merges Merges
	// Replies answer commands.
	Replies []func()
	// Retire names the sweeps whose tuners, programs of their own, need not be asked any more, and Ask those whose tuners were
	// told something. What is in both is asked anew.
	Retire, Ask []string
	// Bids is what agents outside the binary are to be asked, whose answer is an input; nil for nothing.
	Bids *BidsQuestion
	// More says that there is more to do at once: step again.
	More bool
}

// An Input is something that happened.
type Input interface {
	apply(*Core)
}

// NewCore returns a core that goes on from a state and its tuners' and policy's snapshots.
func NewCore(set Settings, p policy.Policy, st *state.State) *Core {
	c := &Core{
		set: set, st: st, configured: p, tuners: map[string]tuner.Tuner{}, archived: map[string]archived{},
		unopened: map[string]error{}, nodes: map[string]*link{},
		touched: map[string]bool{}, later: map[string]bool{}, scheduleDue: true,
		views: newViewCache(), mayCreate: map[string]bool{}, ordersDue: map[string]bool{},
		asking: map[string]bool{}, meters: map[string]*reportMeter{},
	}
	c.install(p)
	c.initial, _ = p.Snapshot()
	return c
}

// Next is when the core wants a step although nothing happened; zero for never.
func (c *Core) Next() time.Time {
	next := c.next
	if !c.mayDecide() {
		return next
	}
	for _, at := range []time.Time{c.metered, c.opening} {
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}

// State is what the core decides on. It must not be changed, nor read while a step runs.
func (c *Core) State() *state.State { return c.st }

// Step takes in what happened and decides. An error means that the core's state cannot be trusted any more: nothing of
// the outcome may be used, and the process must start again from the ledger.
func (c *Core) Step(now time.Time, inputs ...Input) (Outcome, error) {
	if c.started.IsZero() {
		c.started = now
	}
	clear(c.out.Changes)
	c.now, c.out = now, Outcome{Changes: c.out.Changes[:0]}
	c.touched, c.later = c.later, c.touched
	c.failUnopened()
	c.failUnordered()
	for _, in := range inputs {
		in.apply(c)
		c.mayEnd()
	}
	c.resume()
	c.settle()
	if r := c.deciding; r != nil && r.over {
		c.deciding = nil
		c.conclude(r)
		c.mayEnd()
		c.settle()
	}
	if c.mayDecide() && (c.scheduleDue || c.asksOn || due(now, c.next) || due(now, c.metered) || due(now, c.opening)) {
		c.scheduleDue = false
		c.schedule()
		c.settle()
	}
	c.resume()
	c.opening = c.nextOpening()
	c.holding = c.holding && c.Deciding()
	c.order()
	c.out.Ask = c.questions()
	c.out.More = len(c.later) > 0 || len(c.unordered) > 0 || c.asksOn
	return c.out, c.err
}

// due says whether a time has come; zero never does.
func due(now, at time.Time) bool { return !at.IsZero() && !now.Before(at) }

// settle looks at every touched sweep until nothing follows any more.
func (c *Core) settle() {
	for len(c.touched) > 0 && c.err == nil {
		ids := sortedKeys(c.touched)
		clear(c.touched)
		for _, id := range ids {
			c.advance(c.st.Sweeps[id])
			c.mayEnd()
		}
	}
}

// emit decides one event: it is folded in at once, and will be appended with the step's batch. What the tuner says to it
// follows.
func (c *Core) emit(e *outbidv1.Event) {
	if c.err != nil {
		return
	}
	change, answer, err := c.fold(c.now, e)
	if err != nil {
		c.err = fmt.Errorf("deciding: %w", err)
		return
	}
	c.out.Events, c.out.Changes = append(c.out.Events, e), append(c.out.Changes, change)
	c.out.Bytes += sizeOfEvent(e)
	c.follow(answer)
}

// mayEnd notes that a batch may end here.
func (c *Core) mayEnd() {
	if n := len(c.out.Events); n > 0 && (len(c.out.Ends) == 0 || c.out.Ends[len(c.out.Ends)-1] != n) {
		c.out.Ends = append(c.out.Ends, n)
	}
}

// note tells the user one line about a sweep or a trial.
func (c *Core) note(sweep string, trial *int32, level, format string, args ...any) {
	c.emit(&outbidv1.Event{Kind: &outbidv1.Event_Note{Note: &outbidv1.Note{
		Sweep: sweep, Trial: trial, Level: level, Text: sanitize.Text(fmt.Sprintf(format, args...), limits.Note),
	}}})
}

// reply answers a command once the step's events are in the ledger.
func (c *Core) reply(f func()) { c.out.Replies = append(c.out.Replies, f) }
