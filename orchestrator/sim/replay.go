package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/spec/terms"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Recording is a run reconstructed from a ledger, which can be simulated under any policy.
type Recording struct {
	Nodes []cluster.Node
	Stays []Stay
	Apps  []App
	// Prices are those of devices, by time.
	Prices []PriceChange
	// Restart is the mean time from a grant until a trial that had trained before trained again.
	Restart time.Duration
	// Forks is the mean cost of fork slots.
	Forks ForkCosts
	// Start is the time of the first batch.
	Start time.Time
	// Actual is how the sweeps of Apps fared, by the sweep's id.
	Actual map[string]Actual
	// Policy is the policy that decided last, or "" if none decided anything.
	Policy string
	// Assumptions describe the differences between the simulation and the actual run.
	Assumptions []string
}

// Actual is how a sweep of a ledger fared.
type Actual struct {
	// Ended is when it ended, or zero if it did not.
	Ended time.Time
	// Rho is its finish-time fairness, or 0 if it is unknown or a user stopped the sweep, whose finish time then says nothing.
	Rho           float64
	DeviceSeconds float64
}

// Setup returns the setup for simulating the recording under a policy. A policy that forks no trials would reject
// sweeps with forks, so under it one process trains each trial.
func (p *Recording) Setup(under policy.Policy) Setup {
	set := Setup{Nodes: p.Nodes, Stays: p.Stays, Apps: p.Apps, Prices: p.Prices, RestartDelay: p.Restart, Forks: p.Forks}
	if !policy.ForksJobs(under) {
		set.Apps = WithoutForks(p.Apps)
	}
	return set
}

// ErrNothingRan means that a ledger has no sweep that workers ran.
var ErrNothingRan = errors.New("no sweep of this ledger ran on workers")

// ReadRecording reads a ledger from its first batch on.
func ReadRecording(ctx context.Context, l ledger.Ledger) (*Recording, error) {
	h := &historian{
		st: state.New(), sweeps: map[string]*recorded{}, nodes: map[string]*presence{}, forks: map[uint64]*segment{},
		table: state.NewTable(),
	}
	err := l.Read(ctx, 1, func(b *outbidv1.Batch) error {
		events, err := ledger.Decode(b)
		if err != nil {
			return err
		}
		at := b.GetTime().AsTime()
		if h.start.IsZero() {
			h.start = at
		}
		for _, e := range events {
			change, err := h.st.Fold(at, e)
			if err != nil {
				return fmt.Errorf("ledger batch %d: %w", b.GetSeq(), err)
			}
			h.see(at.Sub(h.start), &change)
			h.priced(at.Sub(h.start))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading what happened: %w", err)
	}
	return h.recording()
}

// historian collects the events of a ledger.
type historian struct {
	st     *state.State
	start  time.Time
	policy string
	// order lists the sweeps, and sweeps has their data.
	order  []string
	sweeps map[string]*recorded
	// names lists the nodes by shape, and nodes has the times when each was present.
	names []string
	nodes map[string]*presence
	// forks are the running forks, by lease.
	forks map[uint64]*segment
	table state.Table
	// prices of devices.
	prices []PriceChange
	// starts is the total time from a grant until a trial that had trained before trained again.
	starts   time.Duration
	started  int
	slots    slotTimes
	outside  int
	forked   int
	extended int
	failed   int
	lastEnd  time.Duration
}

// recorded is the data of a sweep.
type recorded struct {
	spec     *outbidv1.SweepSpec
	submit   time.Duration
	commands []Command
	// weight is its current weight; spec has its first one.
	weight float64
	// actual is how it fared until it ended last.
	actual Actual
	trials map[int32]*record
	pace   map[pace]work
}

// record is the data of a trial.
type record struct {
	pace   map[pace]work
	points []point
	// ended is the step where its code ended without an order, or 0.
	ended int64
	// last is its last fork, which ended at lastAt.
	last   *segment
	lastAt time.Duration
}

// pace is a place where a trial's speed was measured, and work the work done there.
type pace struct {
	kind    string
	devices int
	spread  cluster.Locality
}

type work struct{ steps, seconds float64 }

type point struct{ step, value float64 }

// segment is a stretch of training in progress.
type segment struct {
	at   time.Duration
	step int64
	on   pace
}

// presence is the times when a node of one shape was present.
type presence struct {
	node  cluster.Node
	stays []Stay
	up    bool
}

func (h *historian) see(at time.Duration, c *state.Change) {
	switch c.NodeTo() {
	case outbidv1.NodeState_NODE_STATE_UNSPECIFIED:
	case outbidv1.NodeState_NODE_STATE_UP:
		h.joined(at, c.Node.Info.GetName())
	default:
		h.left(at, c.Node.Info.GetName())
	}
	if round := h.table.Round(c.Event); round != nil {
		h.policy = round.GetPolicy()
	}
	switch {
	case c.Trial != nil:
		h.trial(at, c)
	case c.SweepBegan():
		h.submitted(at, c.Sweep)
	case c.Did(state.Extended):
		if s := h.sweeps[c.Sweep.ID]; s != nil {
			h.extend(at, s, c.Sweep.Spec)
		}
	case c.SweepTo() != outbidv1.SweepState_SWEEP_STATE_UNSPECIFIED:
		h.command(at, c)
	}
}

// extend records another weight at its time, and other extensions as if the sweep had had them from the start.
func (h *historian) extend(at time.Duration, s *recorded, to *outbidv1.SweepSpec) {
	if w := policy.WeightOrOne(to.GetWeight()); w != s.weight {
		s.commands = append(s.commands, Command{At: at, Weight: w})
		s.weight = w
	}
	first := s.spec.GetWeight()
	to = proto.CloneOf(to)
	if to.Weight = first; !proto.Equal(to, s.spec) {
		s.spec = to
		h.extended++
	}
}

// priced records new prices of devices.
func (h *historian) priced(at time.Duration) {
	now := h.st.DevicePrices()
	if n := len(h.prices); now != nil && (n == 0 || h.prices[n-1].Prices != now) {
		h.prices = append(h.prices, PriceChange{at, now})
	}
}

// joined handles a node that joins. A node that comes back with other devices counts as another node.
func (h *historian) joined(at time.Duration, name string) {
	h.left(at, name)
	shape := h.st.Nodes[name].Shape
	for n := 1; ; n++ {
		alias := name
		if n > 1 {
			alias += "#" + strconv.Itoa(n)
		}
		p, known := h.nodes[alias]
		if known && !sameDevices(p.node, shape) {
			continue
		}
		if !known {
			p = &presence{node: shape}
			p.node.Name, p.node.Draining = alias, false
			h.nodes[alias], h.names = p, append(h.names, alias)
		}
		p.stays, p.up = append(p.stays, Stay{Node: alias, From: at}), true
		return
	}
}

func sameDevices(a, b cluster.Node) bool {
	return a.Rack == b.Rack && a.CPUs == b.CPUs && a.Memory == b.Memory && slices.Equal(a.Devices, b.Devices)
}

// left ends the stay of the present node with a name.
func (h *historian) left(at time.Duration, name string) {
	for _, alias := range h.names {
		if p := h.nodes[alias]; p.up && (alias == name || len(alias) > len(name) && alias[:len(name)+1] == name+"#") {
			p.up = false
			p.stays[len(p.stays)-1].To = at
		}
	}
}

func (h *historian) submitted(at time.Duration, s *state.Sweep) {
	switch {
	case s.Spec.GetExternal() != nil, s.Spec.GetTuner().GetPlugin() != nil:
		h.outside++
	default:
		if s.Spec.GetResources().GetForks() != "" {
			h.forked++
		}
		h.sweeps[s.ID] = &recorded{spec: s.Spec, weight: policy.WeightOrOne(s.Spec.GetWeight()), submit: at, trials: map[int32]*record{}, pace: map[pace]work{}}
		h.order = append(h.order, s.ID)
	}
}

// command records a person's command, to repeat it.
func (h *historian) command(at time.Duration, c *state.Change) {
	s := h.sweeps[c.Sweep.ID]
	if s == nil {
		return
	}
	if c.SweepEnded() {
		h.lastEnd = at
		s.actual = Actual{Ended: h.start.Add(at), DeviceSeconds: c.Sweep.DeviceSeconds}
		if c.SweepTo() != outbidv1.SweepState_SWEEP_STATE_STOPPED {
			s.actual.Rho = c.Sweep.Fairness.GetRho()
		}
	}
	if c.Actor() == "" {
		return
	}
	switch c.SweepTo() {
	case outbidv1.SweepState_SWEEP_STATE_PAUSED:
		s.commands = append(s.commands, Command{At: at, Command: outbidv1.SweepCommand_SWEEP_COMMAND_PAUSE})
	case outbidv1.SweepState_SWEEP_STATE_RUNNING:
		s.commands = append(s.commands, Command{At: at, Command: outbidv1.SweepCommand_SWEEP_COMMAND_RESUME})
	case outbidv1.SweepState_SWEEP_STATE_STOPPING:
		s.commands = append(s.commands, Command{At: at, Command: outbidv1.SweepCommand_SWEEP_COMMAND_STOP})
	}
}

func (h *historian) trial(at time.Duration, c *state.Change) {
	s, t := h.sweeps[c.Sweep.ID], c.Trial
	if s == nil {
		return
	}
	r := s.trials[t.Number]
	if r == nil {
		r = &record{pace: map[pace]work{}}
		s.trials[t.Number] = r
	}
	lease := c.Lease
	if step, said := c.Step(); said && lease != nil {
		own := step
		if report := h.table.Report(c.Event).GetReport(); report.GetForkStep() > 0 {
			own = report.GetForkStep() // its step is the sum over forks
		}
		h.trained(at, s, r, lease.ID, own)
		if report := h.table.Report(c.Event).GetReport(); report != nil && lease == t.Lead() {
			if v, ok := report.GetMetrics()[s.spec.GetMetric()]; ok {
				r.plot(float64(step), v)
			}
		}
	}
	h.slots.see(at, c)
	switch {
	case c.Did(state.ProcessStarted):
		h.forkStarted(at, c)
	case c.Did(state.Targeted):
		for _, l := range t.Leases {
			if f := h.forks[l.ID]; f != nil {
				f.at = at // it waited until now
			}
		}
	case c.LeaseEnded():
		r.last, r.lastAt = h.forks[c.Lease.ID], at
		delete(h.forks, c.Lease.ID)
	case c.TrialEnded():
		if c.TrialTo() == outbidv1.TrialState_TRIAL_STATE_COMPLETED && c.News { // News is set for a decision that the tuner did not make
			r.finish(s, t.Number, t.MaxStep)
		}
		if c.TrialTo() == outbidv1.TrialState_TRIAL_STATE_FAILED {
			h.failed++
		}
	}
}

func (h *historian) forkStarted(at time.Duration, c *state.Change) {
	l := c.Lease
	if l.Holder != state.Workers {
		return
	}
	if c.Trial.LeaseCount > 1 {
		h.starts += at - l.Granted.Sub(h.start)
		h.started++
	}
	h.forks[l.ID] = &segment{at, l.FromStep, pace{l.Type(), l.Size(), l.Locality()}}
}

// trained records a stretch of training.
func (h *historian) trained(at time.Duration, s *recorded, r *record, lease uint64, step int64) {
	f := h.forks[lease]
	if f == nil || step <= f.step || at <= f.at {
		return
	}
	done := work{float64(step - f.step), (at - f.at).Seconds()}
	for _, sum := range []map[pace]work{r.pace, s.pace} {
		w := sum[f.on]
		sum[f.on] = work{w.steps + done.steps, w.seconds + done.seconds}
	}
	f.at, f.step = at, step
}

// finish handles the end of a trial's code. The number of steps since its last message is computed from its speed, or
// from one step per second if that is unknown.
func (r *record) finish(s *recorded, number int32, told int64) {
	r.ended = max(1, told)
	f := r.last
	if f == nil || r.lastAt <= f.at || f.step < told {
		return
	}
	seconds, rate := (r.lastAt - f.at).Seconds(), 1.0
	if speeds := (&cluster.Speeds{Measured: append(speedsOf(r.pace), s.hints(number)...)}); len(speeds.Measured) > 0 {
		rate = speeds.Rate(f.on.kind, f.on.devices, f.on.spread)
	}
	r.ended = max(r.ended, f.step+int64(math.Round(rate*seconds)))
	w := r.pace[f.on]
	r.pace[f.on] = work{w.steps + rate*seconds, w.seconds + seconds}
}

// hints returns the speeds that the spec has for a trial.
func (s *recorded) hints(number int32) (all []cluster.Speed) {
	for _, h := range s.spec.GetThroughputs() {
		if speed, ok := terms.SpeedOf(h); ok && (h.Trial == nil || h.GetTrial() == number) {
			all = append(all, speed)
		}
	}
	return all
}

// plot adds a point. A repeated report of a restarted fork replaces the earlier one.
func (r *record) plot(step, value float64) {
	i, found := slices.BinarySearchFunc(r.points, step, func(p point, s float64) int { return cmp.Compare(p.step, s) })
	if found {
		r.points[i].value = value
		return
	}
	r.points = slices.Insert(r.points, i, point{step, value})
}

// at returns the metric at a step, interpolated linearly and constant after the last point.
func (r *record) at(step float64) float64 {
	i, found := slices.BinarySearchFunc(r.points, step, func(p point, s float64) int { return cmp.Compare(p.step, s) })
	switch {
	case found:
		return r.points[i].value
	case i == 0:
		return r.points[0].value
	case i == len(r.points):
		return r.points[i-1].value
	}
	a, b := r.points[i-1], r.points[i]
	return a.value + (b.value-a.value)*(step-a.step)/(b.step-a.step)
}
