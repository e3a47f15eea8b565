// Package control runs the server's event loop. Clients' commands, workers' messages and the passing of time come in;
// events and orders go out. The loop decides, appends to the ledger, and then acts.
//
// Core makes the decisions and is pure: the time is an argument and requested side effects are returned as values.
// The simulator and replay therefore run the same code on a virtual clock. Loop appends to the ledger and does the
// I/O.
package control

import (
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/control/faults"
	"github.com/outbid-dev/outbid/orchestrator/control/merging"
	"github.com/outbid-dev/outbid/orchestrator/control/nodes"
	"github.com/outbid-dev/outbid/orchestrator/control/rounds"
	"github.com/outbid-dev/outbid/orchestrator/control/sweeps"
	"github.com/outbid-dev/outbid/orchestrator/control/tenants"
	"github.com/outbid-dev/outbid/orchestrator/control/trials"
	"github.com/outbid-dev/outbid/orchestrator/control/tuning"
	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/state"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/remote"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Settings configure a Core.
type Settings struct {
	// Lease is how long a node may run without contact to the server, and how long it must be silent before its
	// devices are given to other trials.
	Lease time.Duration
	// Overlap is how long an earlier server that was cut off may have given orders after this one began. Nodes from
	// which this server has no message are not lost before that time is over either.
	Overlap time.Duration
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
	// Bidders are the external bidders that sweeps may choose, or nil. The core uses only their names; the loop asks
	// them: see Outcome.Bids.
	Bidders Bidders
	// Beside runs decide, which decides a round, and reports whether it has finished. If that takes too long, decide
	// continues concurrently with the core's steps and ends with a PolicyDone input. If Beside is nil, the core
	// waits.
	Beside func(decide func()) (over bool)
	// Prices returns the prices of devices, or nil without any. The core records them in the ledger when they change; without
	// prices those in the ledger stay in force. They must not be changed. Prices may be nil.
	Prices func() *outbidv1.DevicePrices
	// NewPolicy recreates the policy of an earlier server from the settings in the ledger. It is called only for
	// policies with the name of this core's policy. If nil, this core's policy is used, whatever the options of the
	// earlier one.
	NewPolicy func(*outbidv1.PolicySettings) (policy.Policy, error)
}

// Bidders bid for the sweeps that chose one of them.
type Bidders = rounds.Bidders

// Core decides. It is not safe for concurrent use. The packages below this one each own a part of its state; the engine
// carries events between them.
type Core struct {
	set     Settings
	engine  *engine
	faults  *faults.Faults
	trials  *trials.Trials
	merging *merging.Merging
	tenants *tenants.Tenants
	tuning  *tuning.Tuning
	nodes   *nodes.Nodes
	rounds  *rounds.Rounds
	sweeps  *sweeps.Sweeps
	// loaded identifies the state of the snapshot from which the core was restored, or is nil. loadedWhole and
	// loadedChanges are the sizes of that snapshot and of the changes since then.
	loaded                     *state.Saved
	loadedWhole, loadedChanges int
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
	Merges merging.Counts
	// Replies answer commands.
	Replies []func()
	// Retire names the sweeps whose remote tuners are no longer needed, and Ask those whose remote tuners have new
	// events. A sweep in both gets a new client.
	Retire, Ask []string
	// Bids is the question to external bidders, whose answer is an input, or nil.
	Bids *BidsQuestion
	// More reports that there is more to do at once: call Step again.
	More bool
}

// NewCore returns a core that continues from a state.
func NewCore(set Settings, p policy.Policy, st *state.State) *Core {
	e := &engine{st: st, touched: map[string]bool{}, later: map[string]bool{}, policyDue: true}
	c := &Core{set: set, engine: e}
	c.faults = faults.New(e, st)
	c.trials = trials.New(e, st, c.faults, set.MayReportNothing)
	c.merging = merging.New(e, st, c.trials)
	c.tenants = tenants.New(e, st, c.trials, tenants.Settings{Limits: set.Limits, Room: set.Room})
	c.tuning = tuning.New(e, st, c.trials, c.faults, set.NewTuner)
	c.nodes = nodes.New(e, st, c.trials, c.merging, c.faults, c.tenants, nodes.Settings{
		Lease: set.Lease, Overlap: set.Overlap, Version: set.Version, Term: set.Term, Store: set.Store, Tenants: set.Tenants, Trust: set.Trust, Sign: set.Sign, Seal: set.Seal,
	})
	c.rounds = rounds.New(e, st, p, c.faults, c.tenants, c.tuning, rounds.Settings{
		Bidders: set.Bidders, Beside: set.Beside, NewPolicy: set.NewPolicy, Fairness: set.Fairness,
	})
	c.sweeps = sweeps.New(e, st, c.trials, c.merging, c.faults, c.tenants, c.tuning, c.rounds, set.MaxPayload)
	c.trials.Use(c.merging, c.tenants)
	c.tuning.Use(c.sweeps)
	e.nodes, e.tuning, e.rounds = c.nodes, c.tuning, c.rounds
	return c
}

// Next returns when the core needs a step even without input, or zero for never.
func (c *Core) Next() time.Time {
	next := c.rounds.Next()
	if !c.rounds.MayBegin() {
		return next
	}
	for _, at := range []time.Time{c.tenants.NextChange(), c.faults.NextOpening()} {
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}

// recordPrices records the prices of devices if they have changed.
func (c *Core) recordPrices() {
	if c.set.Prices == nil {
		return
	}
	now, old := c.set.Prices(), c.engine.st.DevicePrices()
	if now == old || len(now.GetDeviceHour()) == 0 || proto.Equal(now, old) {
		return
	}
	c.engine.Emit(&outbidv1.Event{Kind: &outbidv1.Event_DevicePricesChanged{DevicePricesChanged: &outbidv1.DevicePricesChanged{Prices: now}}})
}

// State returns the state that the core decides on. The caller must not change it, nor read it during a step.
func (c *Core) State() *state.State { return c.engine.st }

// Remote returns the remote tuner of a sweep, or nil if it is not remote or failed. The caller must not change it.
func (c *Core) Remote(sweep string) *remote.Tuner { return c.tuning.Remote(sweep) }

// Deciding reports whether the policy is deciding a round concurrently.
func (c *Core) Deciding() bool { return c.rounds.Deciding() }

// HoldRound keeps the next round from starting in the step in which the current one ends, so that the core can be
// frozen.
func (c *Core) HoldRound() { c.rounds.Defer() }

// Begin returns a server's first event as the leader, with its version and policy. It has all options that the policy
// was made with, so that a reader of the ledger can make it again.
func (c *Core) Begin(now time.Time, version string, options map[string]string) (*outbidv1.Event, error) {
	e := &outbidv1.Event{Kind: &outbidv1.Event_OrchestratorStarted{OrchestratorStarted: &outbidv1.OrchestratorStarted{
		Term: c.set.Term, Version: version, Format: state.Format,
		Policy: &outbidv1.PolicySettings{Name: c.rounds.Policy().Name(), Options: options},
	}}}
	_, _, err := c.engine.fold(now, e)
	return e, err
}

// Step applies the inputs and decides. After an error the core's state is unreliable: the caller must discard the
// outcome and restart from the ledger.
func (c *Core) Step(now time.Time, inputs ...Input) (Outcome, error) {
	c.engine.begin(now)
	c.nodes.Start()
	c.tuning.TakeRetired() // those of a replay
	c.tuning.FailUnopened()
	c.nodes.FailUnordered()
	for _, in := range inputs {
		in.apply(c)
		c.engine.MarkBatchEnd()
	}
	c.sweeps.Resume()
	c.advanceAll()
	if c.rounds.Conclude() {
		c.engine.MarkBatchEnd()
		c.advanceAll()
	}
	if c.rounds.MayBegin() && (c.engine.policyDue || c.tuning.AsksOn() || c.rounds.Due() || due(now, c.tenants.NextChange()) ||
		due(now, c.faults.NextOpening())) {
		c.engine.policyDue = false
		c.rounds.Schedule()
		c.advanceAll()
	}
	c.sweeps.Resume()
	c.faults.Reckon()
	c.rounds.EndStep()
	return c.outcome(), c.engine.err
}

// outcome completes the outcome of the step with the requests of the core's parts to the caller.
func (c *Core) outcome() Outcome {
	out := &c.engine.out
	out.Orders = c.nodes.Orders()
	out.Merges = c.merging.TakeCounts()
	out.Retire, out.Ask = c.tuning.TakeRetired(), c.tuning.Questions()
	if q := c.rounds.TakeQuestion(); q != nil {
		out.Bids = &BidsQuestion{q.Number, q.Asked}
	}
	out.More = len(c.engine.later) > 0 || c.nodes.Unordered() || c.tuning.AsksOn()
	return *out
}

// due reports whether a time has come; zero never does.
func due(now, at time.Time) bool { return !at.IsZero() && !now.Before(at) }

// advanceAll advances the touched sweeps until none is left.
func (c *Core) advanceAll() {
	e := c.engine
	for len(e.touched) > 0 && e.err == nil {
		ids := slices.Sorted(maps.Keys(e.touched))
		clear(e.touched)
		for _, id := range ids {
			c.sweeps.Advance(e.st.Sweeps[id])
			e.MarkBatchEnd()
		}
	}
}
