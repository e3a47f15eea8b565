// Package control runs the server's event loop. Clients' commands, workers' messages and the passing of time come in;
// events and orders go out. The loop decides, appends to the ledger, and then acts.
//
// Core makes the decisions and is pure: the time is an argument and requested side effects are returned as values.
// The simulator and replay therefore run the same code on a virtual clock. Loop appends to the ledger and does the
// I/O.
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

// Settings configure a Core.
type Settings struct {
	// Lease is how long a node may run without contact to the server, and how long it must be silent before its
	// devices are given to other trials.
	Lease time.Duration
	// Version of this server. Workers of another major version are refused.
	Version string
	// Term of this server: workers ignore orders of a lower term.
	Term uint64
	// Store is the name of the object store that is sent to workers that do not have one.
	Store string
	// Tenants reports that sweeps come from users other than the one that runs the server, so workers must isolate
	// them.
	Tenants bool
	// Trust reports whether a node's worker has joined this server, and so may run functions. If nil, no node is
	// trusted.
	Trust func(node string) bool
	// Sign returns the proof that this server accepted a function, given the SHA-256 of its blob. If nil, no proof is
	// sent.
	Sign func(blob string) []byte
	// Seal encrypts the values of a tenant's secrets, which are given by variable, for the worker of a node. The
	// error names the missing secret. If nil, as in the simulator, no secrets are sent.
	Seal func(node *outbidv1.NodeInfo, tenant string, secrets map[string]string) ([]byte, error)
	// NewTuner makes a tuner from its sweep's settings, and from a snapshot unless that is nil.
	NewTuner func(settings tuner.Settings, snapshot []byte) (tuner.Tuner, error)
	// MayReportNothing accepts trials that never report their sweep's metric, such as those of traces.
	MayReportNothing bool
	// Fairness measures how a sweep fares by sharing the cluster, or fared if it is over. It may be nil.
	Fairness func(v *policy.View, a *policy.App, over bool) *outbidv1.Fairness
	// MaxPayload returns the maximum size of a NATS message in bytes. If nil, the size is not limited.
	MaxPayload func() int
	// Limits returns the limits of a tenant. set holds its own settings, or nil if it has none. If Limits is nil,
	// nothing is limited.
	Limits func(tenant string, set *outbidv1.Tenant) limits.Tenant
	// Room returns why another sweep does not fit, or "" if it does. It is nil if that is not known.
	Room func() string
	// Agents are the external bidders that sweeps may choose, or nil. The core uses only their names; the loop asks
	// them: see Outcome.Bids.
	Agents Agents
	// Beside runs decide, which decides a round, and reports whether it has finished. If that takes too long, decide
	// continues concurrently with the core's steps and ends with a PolicyDone input. If Beside is nil, the core
	// waits.
	Beside func(decide func()) (over bool)
	// NewPolicy recreates the policy of an earlier server from the settings in the ledger. It is called only for
	// policies with the name of this core's policy. If nil, this core's policy is used, whatever the options of the
	// earlier one.
	NewPolicy func(*outbidv1.PolicySettings) (policy.Policy, error)
}

// Agents bid for the sweeps that chose one of them.
type Agents interface {
	agent.Agent
	// Names returns the sorted names of the agents.
	Names() []string
}

// Core decides. It is not safe for concurrent use.
type Core struct {
	set Settings
	st  *state.State
	// tuners holds the tuners of unfinished sweeps, archived those of finished ones, and unopened the errors of those
	// that could not be started.
	tuners   map[string]tuner.Tuner
	archived map[string]archived
	unopened map[string]error
	// policy decides rounds. During replay it is the policy of that time, or nil if its name differs from that of
	// configured, the policy that the core was made with.
	policy, configured policy.Policy
	// initial is the first snapshot of configured, or nil if it has none.
	initial []byte
	// hasHistory reports whether the policy remembers rounds, which the next policy of its name continues from.
	hasHistory bool
	// now is the time of the current step.
	now time.Time
	// started is the time of this core's first decision. Nodes that have not been seen since are given a lease's
	// time.
	started time.Time
	nodes   map[string]*nodeContact

	out Outcome
	// touched sweeps are advanced before the step ends, later ones in the next step.
	touched, later map[string]bool
	// scheduleDue asks the policy in this step, because the devices or the trials that need some may have changed.
	scheduleDue bool
	// next is when the policy is due again, or zero for never.
	next time.Time
	// spent names the tenants whose device-hours are used up. metered is when that may change next, or zero for
	// never.
	spent   map[string]bool
	metered time.Time
	// opening is when the next avoided node may be used again, or zero for never.
	opening time.Time
	// err is set by the first event that cannot be applied. The core is unusable after that.
	err error
	// views caches the policy's view.
	views *viewCache
	// stateful policies have state, so each of their rounds is recorded. A policy that preempts is shown every device
	// that sweeps could use.
	stateful, preempts bool
	// mayCreate names the sweeps whose tuner may create trials if it is asked.
	mayCreate map[string]bool
	// audit is called for each replayed round with the policy's decision now and the events recorded then.
	audit func(at time.Time, round *outbidv1.RoundDecided, now, then []*outbidv1.Event)
	// asking names the sweeps whose remote tuners have unanswered events. pending holds the commands that wait for
	// those answers; each reports whether it has replied.
	asking  map[string]bool
	pending []func() bool
	// asked counts the requests to external agents. bids is the round for which they are being asked, or nil.
	asked uint64
	bids  *bids
	// deciding is the round that the policy decides concurrently with the core's steps, or nil. deferRound keeps the
	// next round from starting in the step in which that one ends. During replay, begun is the view of the last such
	// round.
	deciding   *round
	deferRound bool
	begun      *policy.View
	// ordersDue names the nodes that get orders at the end of the step.
	ordersDue map[string]bool
	// unordered holds the leases for which no orders can be made. Their trials fail in the next step.
	unordered []unordered
	// meters holds the report meters of tenants, by name.
	meters map[string]*reportMeter
	// asksOn continues to ask tuners in the next step, because this one was full.
	asksOn bool
	// answers are the tuners' answers that have not been followed yet. draining reports that enqueue follows them.
	answers  []answer
	draining bool
	// replaying reports that events come from the ledger. following are the events after the current one in its
	// batch.
	replaying bool
	following []*outbidv1.Event
}

// Outcome is what a step asks the caller to do. The caller must append Events to the ledger before anything else.
type Outcome struct {
	// Events are the decisions, in order, and Changes their effects, which are valid until the next step. Ends are
	// the numbers of events after which a batch may end: a restore that stopped elsewhere would know that a tuner was
	// asked, but not everything that followed.
	Events  []*outbidv1.Event
	Changes []state.Change
	Ends    []int
	// Bytes is the encoded size of Events.
	Bytes int
	// Orders to send.
	Orders []*outbidv1.Orders
	// Delete names objects that are no longer needed.
	Delete []string
	// Merges counts the results of averages.
	Merges Merges
	// Replies answer commands.
	Replies []func()
	// Retire names the sweeps whose remote tuners are no longer needed, and Ask those whose remote tuners have new
	// events. A sweep in both gets a new client.
	Retire, Ask []string
	// Bids is the question to external agents, whose answer is an input, or nil.
	Bids *BidsQuestion
	// More reports that there is more to do at once: call Step again.
	More bool
}

// An Input is something that happened.
type Input interface {
	apply(*Core)
}

// NewCore returns a core that continues from a state and the snapshots of its tuners and policy.
func NewCore(set Settings, p policy.Policy, st *state.State) *Core {
	c := &Core{
		set: set, st: st, configured: p, tuners: map[string]tuner.Tuner{}, archived: map[string]archived{},
		unopened: map[string]error{}, nodes: map[string]*nodeContact{},
		touched: map[string]bool{}, later: map[string]bool{}, scheduleDue: true,
		views: newViewCache(), mayCreate: map[string]bool{}, ordersDue: map[string]bool{},
		asking: map[string]bool{}, meters: map[string]*reportMeter{},
	}
	c.install(p)
	c.initial, _ = p.Snapshot()
	return c
}

// Next returns when the core needs a step even without input, or zero for never.
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

// State returns the state that the core decides on. The caller must not change it, nor read it during a step.
func (c *Core) State() *state.State { return c.st }

// Step applies the inputs and decides. After an error the core's state is unreliable: the caller must discard the
// outcome and restart from the ledger.
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
		c.markBatchEnd()
	}
	c.resume()
	c.advanceAll()
	if r := c.deciding; r != nil && r.over {
		c.deciding = nil
		c.conclude(r)
		c.markBatchEnd()
		c.advanceAll()
	}
	if c.mayDecide() && (c.scheduleDue || c.asksOn || due(now, c.next) || due(now, c.metered) || due(now, c.opening)) {
		c.scheduleDue = false
		c.schedule()
		c.advanceAll()
	}
	c.resume()
	c.opening = c.nextOpening()
	c.deferRound = c.deferRound && c.Deciding()
	c.order()
	c.out.Ask = c.questions()
	c.out.More = len(c.later) > 0 || len(c.unordered) > 0 || c.asksOn
	return c.out, c.err
}

// due reports whether a time has come; zero never does.
func due(now, at time.Time) bool { return !at.IsZero() && !now.Before(at) }

// advanceAll advances the touched sweeps until none is left.
func (c *Core) advanceAll() {
	for len(c.touched) > 0 && c.err == nil {
		ids := sortedKeys(c.touched)
		clear(c.touched)
		for _, id := range ids {
			c.advance(c.st.Sweeps[id])
			c.markBatchEnd()
		}
	}
}

// emit decides an event. It applies the event, adds it to the step's batch, and queues the answer of the tuner that
// the event concerns. The outermost emit then drains the queue; see engine.md.
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
	c.enqueue(answer)
}

// enqueue adds a tuner's answer to the queue, and drains the queue unless a caller is doing so already.
func (c *Core) enqueue(a answer) {
	if a.err == nil && len(a.actions) == 0 {
		return
	}
	c.answers = append(c.answers, a)
	if c.draining {
		return
	}
	c.draining = true
	for len(c.answers) > 0 {
		next := c.answers[0]
		c.answers = c.answers[1:]
		c.follow(next)
	}
	c.answers, c.draining = nil, false
}

// markBatchEnd records that a batch may end here.
func (c *Core) markBatchEnd() {
	if n := len(c.out.Events); n > 0 && (len(c.out.Ends) == 0 || c.out.Ends[len(c.out.Ends)-1] != n) {
		c.out.Ends = append(c.out.Ends, n)
	}
}

// note adds a line for the user to the log of a sweep or a trial.
func (c *Core) note(sweep string, trial *int32, level, format string, args ...any) {
	c.emit(&outbidv1.Event{Kind: &outbidv1.Event_Note{Note: &outbidv1.Note{
		Sweep: sweep, Trial: trial, Level: level, Text: sanitize.Text(fmt.Sprintf(format, args...), limits.Note),
	}}})
}

// reply calls f once the step's events are in the ledger.
func (c *Core) reply(f func()) { c.out.Replies = append(c.out.Replies, f) }
