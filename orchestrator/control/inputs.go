package control

import (
	"time"

	"github.com/outbid-dev/outbid/orchestrator/bidder"
	"github.com/outbid-dev/outbid/orchestrator/control/tuning"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// An Input is something that happened.
type Input interface {
	apply(*Core)
}

// A Submit starts a sweep. Done is called with the sweep's ID once the sweep is in the ledger.
type Submit struct {
	// Spec has been checked and includes defaults.
	Spec       *outbidv1.SweepSpec
	Actor, Key string
	// Opened is the status of a remote tuner when it was started, or nil.
	Opened *outbidv1.TunerStatus
	Done   func(id string, err error)
}

func (in Submit) apply(c *Core) {
	id, err := c.sweeps.Submit(in.Spec, in.Actor, in.Key, in.Opened)
	c.engine.Reply(func() { in.Done(id, err) })
}

// A Command pauses, resumes or stops a sweep.
type Command struct {
	Sweep   string
	Command outbidv1.SweepCommand
	Actor   string
	Done    func(error)
}

func (in Command) apply(c *Core) {
	err := c.sweeps.Command(in.Sweep, in.Command, in.Actor)
	c.engine.Reply(func() { in.Done(err) })
}

// A StopTrial ends one trial of a sweep.
type StopTrial struct {
	Sweep         string
	Trial         int32
	Reason, Actor string
	Done          func(error)
}

func (in StopTrial) apply(c *Core) {
	err := c.sweeps.StopTrial(in.Sweep, in.Trial, in.Reason, in.Actor)
	c.engine.Reply(func() { in.Done(err) })
}

// A RetryTrial runs a failed trial of a sweep again.
type RetryTrial struct {
	Sweep         string
	Trial         int32
	Reason, Actor string
	Done          func(error)
}

func (in RetryTrial) apply(c *Core) {
	err := c.sweeps.RetryTrial(in.Sweep, in.Trial, in.Reason, in.Actor)
	c.engine.Reply(func() { in.Done(err) })
}

// A Delete removes a sweep that has ended. Its objects, logs and reports are deleted once the event is in the ledger.
type Delete struct {
	Sweep, Actor string
	Done         func(state.Deleted, error)
}

func (in Delete) apply(c *Core) {
	d, err := c.sweeps.Delete(in.Sweep, in.Actor)
	c.engine.Reply(func() { in.Done(d, err) })
}

// An Extend gives a sweep more trials, longer training or a wider space.
type Extend struct {
	Request *outbidv1.ExtendSweepRequest
	Actor   string
	// Done receives the trials that restart because their checkpoints were dropped.
	Done func([]*outbidv1.TrainedAgain, error)
}

func (in Extend) apply(c *Core) {
	again, err := c.sweeps.Extend(in.Request, in.Actor)
	c.engine.Reply(func() { in.Done(again, err) })
}

// An Annotate changes the description and the tags of a sweep.
type Annotate struct {
	Request *outbidv1.AnnotateSweepRequest
	Actor   string
	Done    func(error)
}

func (in Annotate) apply(c *Core) {
	err := c.sweeps.Annotate(in.Request, in.Actor)
	c.engine.Reply(func() { in.Done(err) })
}

// An Ask requests a trial for a client of an external sweep.
type Ask struct {
	Sweep, Client string
	Done          func(*outbidv1.AskTrialResponse, error)
}

func (in Ask) apply(c *Core) { c.sweeps.Ask(in.Sweep, in.Client, in.Done) }

// A Tell reports what a client measured.
type Tell struct {
	Request *outbidv1.TellTrialRequest
	Done    func(*outbidv1.TellTrialResponse, error)
}

func (in Tell) apply(c *Core) { c.sweeps.Tell(in.Request, in.Done) }

// A PublishSoup adds a stored soup to a sweep. Done is called once it is in the ledger.
type PublishSoup struct {
	Sweep string
	// Soup has been checked and has its key. The core sets its number and time.
	Soup *outbidv1.Soup
	Done func(*outbidv1.Soup, error)
}

func (in PublishSoup) apply(c *Core) {
	soup, err := c.sweeps.PublishSoup(in.Sweep, in.Soup)
	c.engine.Reply(func() { in.Done(soup, err) })
}

// A SetTenant adds or changes a tenant.
type SetTenant struct {
	// Tenant has been checked.
	Tenant *outbidv1.Tenant
	// Add requires that the tenant does not exist yet.
	Add   bool
	Actor string
	Done  func(error)
}

func (in SetTenant) apply(c *Core) {
	err := c.tenants.Set(in.Tenant, in.Add, in.Actor)
	c.engine.Reply(func() { in.Done(err) })
}

// A RemoveTenant removes the settings of a tenant whose sweeps have all ended.
type RemoveTenant struct {
	Tenant, Actor string
	Done          func(error)
}

func (in RemoveTenant) apply(c *Core) {
	err := c.tenants.Remove(in.Tenant, in.Actor)
	c.engine.Reply(func() { in.Done(err) })
}

// A ControlNode cordons, drains, evicts or opens a node.
type ControlNode struct {
	Node          string
	Command       outbidv1.NodeCommand
	Reason, Actor string
	Done          func(error)
}

func (in ControlNode) apply(c *Core) {
	err := c.nodes.Control(in.Node, in.Command, in.Reason, in.Actor)
	c.engine.Reply(func() { in.Done(err) })
}

// Uplink is a message from a worker.
type Uplink struct{ Message *outbidv1.Uplink }

func (in Uplink) apply(c *Core) { c.nodes.Apply(in.Message) }

// Tick applies the passing of time: silent nodes become lost, limits and timeouts apply.
type Tick struct{}

func (Tick) apply(c *Core) {
	c.recordPrices()
	c.nodes.CheckAll()
	c.merging.TouchForked() // a fork slot may be over
	c.sweeps.Tick()
}

// ReadPrices records the prices of devices in the ledger if they have changed.
type ReadPrices struct{}

func (ReadPrices) apply(c *Core) { c.recordPrices() }

// CheckLimits applies the limits of a sweep. Unlike Tick, it does not judge nodes.
type CheckLimits struct{ Sweep string }

func (in CheckLimits) apply(c *Core) {
	if s := c.engine.st.Sweeps[in.Sweep]; s != nil && !s.Done() {
		c.engine.Touch(s.ID)
	}
}

// NodesSeen gives the times when nodes were last seen, including messages that are still in the queue.
type NodesSeen map[string]time.Time

func (in NodesSeen) apply(c *Core) { c.nodes.Seen(in) }

// LoopStalled tells the core that the loop did not run for a while, because of a disk, a decision or the whole
// machine. Nodes are not to blame for their silence during that time, and orders may have been late by as much: every
// node is given that time.
type LoopStalled struct{ For time.Duration }

func (in LoopStalled) apply(c *Core) { c.nodes.Stalled(in.For) }

// TunerAnswer is a remote tuner's answer to a question.
type TunerAnswer tuning.RemoteAnswer

func (in TunerAnswer) apply(c *Core) { c.tuning.Accept(tuning.RemoteAnswer(in)) }

// PolicyDone reports that the policy has finished the round it was deciding.
type PolicyDone struct{}

func (PolicyDone) apply(c *Core) { c.rounds.Decided() }

// BidsAnswer is the answer of external bidders to a question, or the errors of those that failed. It is ignored unless
// the question is open.
type BidsAnswer struct {
	Question uint64
	Answers  bidder.Answers
}

func (in BidsAnswer) apply(c *Core) { c.rounds.Bid(in.Question, in.Answers) }

// BidderUp reports that an external bidder has become able to answer.
type BidderUp struct{}

func (BidderUp) apply(c *Core) { c.engine.AskPolicy() }
