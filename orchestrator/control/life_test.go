package control_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/lab"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	"github.com/outbid-dev/outbid/orchestrator/spec"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// life is a core, its inputs, and all of its decisions.
type life struct {
	judge
	// dice makes the random choices, because rapid prefers small values and first elements.
	dice   *rand.Rand
	policy string
	core   *control.Core
	now    time.Time
	// whole is read from its first batch, and short from its newest snapshot. They hold the same batches.
	whole, short *ledger.Memory
	machines     []*machine
	submitted    int
	kinds        map[string]int
	// asked are the trials that clients train.
	asked []*outbidv1.AskTrialResponse
	// outside allows remote tuners, which run in processes.
	outside   bool
	processes map[string]*asked
	// auctions allows sweeps with an external bidder. question is its open question, or nil.
	auctions bool
	question *control.BidsQuestion
	// slow policies decide some rounds concurrently: deciding finishes such a round, or is nil. calm disables these
	// rounds for now.
	slow, calm bool
	// frail nodes cannot start some trials, and their workers may report that.
	frail bool
	// meddling people stop and retry single trials, evict nodes, and change prices, which are nil before the first.
	meddling bool
	prices   *outbidv1.DevicePrices
	deciding func()
}

// machine is a node with a worker.
type machine struct {
	name    string
	devices int
	boot    int
	seq     uint64
	orders  []*outbidv1.Assignment
	// averages are the averages that it must compute.
	averages []*outbidv1.Consolidation
	forks    map[uint64]*fork
	// checks counts the checks of the machine.
	checks uint64
}

type fork struct {
	began     bool
	step      int64
	reportSeq uint64
}

// firstMeddling is the first seed of lives in which people meddle. The lives of lower seeds stay as they were.
const firstMeddling = 2000

func newLife(t judge, policyName string, seed uint64) *life {
	l := &life{
		judge: t, dice: rand.New(rand.NewPCG(seed, 1)), policy: policyName, now: time.Unix(1_700_000_000, 0).UTC(), kinds: map[string]int{},
		whole: ledger.NewMemory(), short: ledger.NewMemory(), processes: map[string]*asked{}, outside: seed%4 == 3,
		auctions: policyName == "themis" && seed%2 == 1, slow: seed%24 >= 18, frail: seed < 100 && seed%3 > 0, meddling: seed >= firstMeddling,
	}
	for i := range 3 {
		l.machines = append(l.machines, &machine{name: fmt.Sprintf("n%d", i), devices: i + 1})
	}
	l.begin()
	return l
}

func (l *life) must(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

func (l *life) options() map[string]string {
	if l.auctions { // ask every sweep
		return map[string]string{"lease": "5s", "f": "0"}
	}
	if l.policy == "themis" {
		return map[string]string{"lease": "20s"}
	}
	if l.policy == "oasis" {
		return map[string]string{"slot": "5s"}
	}
	return nil
}

func (l *life) newPolicy() policy.Policy {
	p, err := lab.Policies().New(l.policy, policy.NewOptions(l.options()))
	l.must(err)
	return dividing(p)
}

func (l *life) settings() control.Settings {
	set := settings()
	set.Bidders, set.Beside, set.Prices = &slowBidders{}, l.beside, func() *outbidv1.DevicePrices { return l.prices }
	set.NewPolicy = func(s *outbidv1.PolicySettings) (policy.Policy, error) {
		p, err := lab.Policies().New(s.GetName(), policy.NewOptions(s.GetOptions()))
		return dividing(p), err
	}
	return set
}

func (l *life) restore(from *ledger.Memory) (*control.Core, *ledger.Memory) {
	l.Helper()
	again := from.Another()
	core, err := control.Restore(context.Background(), l.settings(), l.newPolicy(), again, nil)
	l.must(err)
	return core, again
}

// begin starts a server, the first one or after a crash.
func (l *life) begin() {
	l.core, l.short = l.restore(l.short)
	_, l.whole = l.restore(l.whole)
	started, err := l.core.Begin(l.now, "test", l.options())
	l.must(err)
	l.append([]*outbidv1.Event{started})
	l.question, l.deciding = nil, nil
}

func (l *life) append(events []*outbidv1.Event) {
	l.Helper()
	if len(events) == 0 {
		return
	}
	for _, e := range events {
		l.kinds[l.core.State().Kind(e).Name]++
	}
	b, err := l.whole.Append(context.Background(), l.now, events)
	l.must(err)
	_, err = l.short.Append(context.Background(), l.now, events)
	l.must(err)
	l.core.Appended(b)
}

// step runs a step of the core. The times are such that their sums are exact.
func (l *life) step(inputs ...control.Input) []*outbidv1.Event {
	l.Helper()
	l.now = l.now.Add(250 * time.Millisecond)
	out, err := l.core.Step(l.now, inputs...)
	l.must(err)
	l.append(out.Events)
	if out.Bids != nil {
		l.question = out.Bids
	}
	for _, reply := range out.Replies {
		reply()
	}
	for _, o := range out.Orders {
		for _, m := range l.machines {
			if m.name == o.GetNode() && o.GetBoot() == m.bootName() {
				m.orders, m.averages = o.GetAssignments(), o.GetConsolidations()
			}
		}
	}
	return out.Events
}

// compare restores the core in both ways, and makes all three decide another round.
func (l *life) compare() {
	l.Helper()
	l.conclude()
	l.calm = true
	defer func() { l.calm = false }()
	want := l.snapshot(l.core)
	fromStart, _ := l.restore(l.whole)
	fromSnapshot, _ := l.restore(l.short)
	others := map[string]*control.Core{"the ledger": fromStart, "a snapshot": fromSnapshot}
	for name, core := range others {
		if diff := cmp.Diff(want, l.snapshot(core), protocmp.Transform(), cmpopts.EquateNaNs()); diff != "" {
			l.Fatal(fmt.Sprintf("restored from %s, at %d (-decided +restored):\n%s", name, l.core.State().Seq, diff))
		}
	}
	if l.question != nil {
		return // the core itself is not asked again, the restored ones are
	}
	l.same(others, control.BidderUp{}, control.BidderUp{})
	if l.question != nil {
		mine := l.bid()
		theirs := mine
		theirs.Question = 1
		l.question = nil
		l.same(others, mine, theirs)
		l.kinds["bids after a restart"]++
	}
}

// same gives the core and others the same input, and fails if their decisions or questions differ.
func (l *life) same(others map[string]*control.Core, mine, theirs control.Input) {
	l.Helper()
	events := l.step(mine)
	for name, core := range others {
		out, err := core.Step(l.now, theirs)
		l.must(err)
		if diff := cmp.Diff(events, out.Events, protocmp.Transform(), cmpopts.EquateNaNs()); diff != "" {
			l.Fatal(fmt.Sprintf("after it was restored from %s, it decides otherwise (-decided +restored):\n%s", name, diff))
		}
		if diff := cmp.Diff(questions(l.question), questions(out.Bids), protocmp.Transform()); diff != "" {
			l.Fatal(fmt.Sprintf("after it was restored from %s, it asks bidders otherwise (-asked +restored):\n%s", name, diff))
		}
	}
}

func (l *life) snapshot(core *control.Core) *outbidv1.StateSnapshot {
	data, err := core.Snapshot()
	l.must(err)
	snap := &outbidv1.StateSnapshot{}
	l.must(proto.Unmarshal(data, snap))
	for _, r := range snap.GetSweeps() {
		l.forgetSaved(r)
	}
	return snap
}

// happen makes one thing happen.
func (l *life) happen() {
	happenings := map[string]func(){
		"submit": l.submit, "command": l.command, "extend": l.extend, "remove": l.remove, "tenant": l.tenant, "join": l.join, "leave": l.leave, "node": l.node,
		"ask": l.ask, "tell": l.tell, "pass": l.pass, "crash": l.crash, "save": l.save, "compare": l.compare, "work": l.work,
	}
	if l.meddling {
		happenings["stop a trial"], happenings["retry a trial"], happenings["change prices"] = l.stopTrial, l.retryTrial, l.changePrices
		happenings["annotate"] = l.annotate
	}
	names := slices.Sorted(maps.Keys(happenings))
	switch name := pick(l, names); {
	case l.deciding != nil && l.n(3) == 0:
		l.conclude()
	case l.question != nil && l.n(3) == 0:
		l.hear()
	case l.n(10) < 3:
		happenings[name]()
	case !l.outside || l.n(3) > 0 || !l.answer():
		l.work()
	}
}

// n returns a number below n.
func (l *life) n(n int) int { return l.dice.IntN(n) }

func pick[T any](l *life, from []T) T { return from[l.n(len(from))] }

func (l *life) submit() {
	if l.submitted == 4 {
		return
	}
	l.submitted++
	tuner := pick(l, []string{"random", "asha", "hyperband", "pbt", "median"})
	rules := sim.Tuner(tuner, map[string]int64{"max_steps": 8, "eta": 2, "trials": 4, "min_steps": 1, "seed": int64(l.n(10))})
	if l.outside && l.n(2) == 0 {
		rules = outside(tuner, 8, int64(l.n(10)))
	}
	s := sim.Sweep(fmt.Sprintf("s%d", l.n(2)), "min", int32(1+l.n(6)), rules)
	s.MaxRestarts = new(int32(l.n(4)))
	if l.auctions {
		s.Agent = &outbidv1.Agent{Plugin: "moody"}
	}
	switch l.n(6) {
	case 0:
		s.Workload = &outbidv1.SweepSpec_External{External: &outbidv1.External{Timeout: "1h"}}
		s.Resources = nil
	case 1:
		s.Resources = &outbidv1.Resources{Devices: &outbidv1.DeviceCount{Min: 4, Max: 4}, Spread: true}
	case 2:
		s.Resources = &outbidv1.Resources{Devices: &outbidv1.DeviceCount{Min: 1, Max: 3}, Memory: "1GiB"}
	case 3:
		s.Limits.Steps = 20
	case 4:
		s.Limits.WallTime = "10m"
	}
	if l.prices != nil {
		s.Limits.Cost = 0.01
	}
	spec.Default(s)
	l.must(spec.Check(s))
	if l.policy == "drf" && s.GetResources() != nil { // dividing forks these without their asking
		s.Resources.ForksMerge = "best"
	}
	l.step(control.Submit{Spec: s, Actor: "ann", Done: func(_ string, err error) {
		if l.core.State().Tenant("default") == nil { // a quota might refuse it
			l.must(err)
		}
	}})
}

// sweep picks one of the sweeps, or returns "" if there are not any.
func (l *life) sweep() string {
	ids := l.core.State().SweepIDs
	if len(ids) == 0 {
		return ""
	}
	return pick(l, ids)
}

func (l *life) command() {
	l.step(control.Command{
		Sweep: l.sweep(), Command: outbidv1.SweepCommand(1 + l.n(3)), Actor: "ann", Done: func(error) {},
	})
}

func (l *life) stopTrial() {
	l.step(control.StopTrial{Sweep: l.sweep(), Trial: int32(l.n(6)), Reason: "it diverges", Actor: "ann", Done: func(error) {}})
}

// changePrices gives devices other prices.
func (l *life) changePrices() {
	l.prices = &outbidv1.DevicePrices{Currency: "EUR", DeviceHour: map[string]float64{"*": 0.1 + float64(l.n(3))}}
	l.step(control.ReadPrices{})
}

func (l *life) extend() {
	req := &outbidv1.ExtendSweepRequest{Sweep: l.sweep(), Preview: l.n(5) == 0}
	if l.n(2) == 0 {
		req.MaxSteps = new(int64(16))
	} else {
		req.Trials = new(int32(8))
		req.Weight = new(1 + float64(l.submitted))
	}
	l.step(control.Extend{Request: req, Actor: "ann", Done: func([]*outbidv1.TrainedAgain, error) {}})
}

func (l *life) annotate() {
	req := &outbidv1.AnnotateSweepRequest{Sweep: l.sweep(), Description: new(fmt.Sprint("after ", l.submitted))}
	l.step(control.Annotate{Request: req, Actor: "ann", Done: func(error) {}})
}

func (l *life) remove() {
	l.step(control.Delete{Sweep: l.sweep(), Actor: "ann", Done: func(state.Deleted, error) {}})
}

// node cordons, drains, evicts or opens a node.
func (l *life) node() {
	names := l.core.State().NodeNames
	if len(names) == 0 {
		return
	}
	commands := 3
	if l.meddling {
		commands++
	}
	command := outbidv1.NodeCommand(1 + l.n(commands))
	if l.n(2) == 0 {
		command = outbidv1.NodeCommand_NODE_COMMAND_UNCORDON
	}
	l.step(control.ControlNode{Node: pick(l, names), Command: command, Reason: "a repair", Actor: "ann", Done: func(error) {}})
}

// tenant gives the tenant of all sweeps another quota, or removes it.
func (l *life) tenant() {
	none := func(error) {}
	if l.n(2) == 0 {
		l.step(control.RemoveTenant{Tenant: "default", Actor: "ann", Done: none})
	}
	if l.core.State().Tenant("default") != nil && l.n(2) == 0 {
		l.step(control.SetTenant{Tenant: &outbidv1.Tenant{Name: "default"}, Actor: "ann", Done: none})
		return
	}
	t := &outbidv1.Tenant{Name: "default", Weight: 2, Quota: &outbidv1.TenantQuota{Devices: new(int32(1 + l.n(4)))}}
	l.step(control.SetTenant{Tenant: t, Actor: "ann", Done: none})
}

func (l *life) ask() {
	l.step(control.Ask{Sweep: l.sweep(), Client: "c", Done: func(r *outbidv1.AskTrialResponse, err error) {
		if err == nil && r.GetTrial() != nil {
			l.asked = append(l.asked, r)
		}
	}})
}

func (l *life) tell() {
	if len(l.asked) == 0 {
		return
	}
	a := pick(l, l.asked)
	l.step(control.Tell{Request: &outbidv1.TellTrialRequest{
		Sweep: a.GetTrial().GetSweep(), Trial: a.GetTrial().GetNumber(), LeaseId: a.GetLeaseId(), Finished: l.n(4) == 0,
		Reports: []*outbidv1.Report{{Step: int64(1 + l.n(8)), Metrics: l.metrics()}},
	}, Done: func(*outbidv1.TellTrialResponse, error) {}})
}

// soup publishes an average of checkpoints of the newest sweep.
func (l *life) soup() {
	if ids := l.core.State().SweepIDs; len(ids) > 0 {
		soup := &outbidv1.Soup{Key: fmt.Sprintf("soup-%d", l.now.UnixNano()), Parts: []*outbidv1.SoupPart{{Kept: true}}}
		l.step(control.PublishSoup{Sweep: ids[len(ids)-1], Soup: soup, Done: func(*outbidv1.Soup, error) {}})
	}
}

func (l *life) metrics() map[string]float64 {
	v := float64(l.n(10)) / 8
	switch v {
	case 0:
		return nil
	case 1. / 8:
		v = math.NaN()
	}
	return map[string]float64{"loss": v}
}

// pass lets time pass; silent nodes become lost.
func (l *life) pass() {
	if l.n(4) == 0 {
		l.now = l.now.Add(time.Duration(5+l.n(26)) * time.Second)
		if l.n(2) == 0 {
			l.all()
		}
	}
	l.step(control.Tick{})
}

func (l *life) crash() {
	if l.deciding == nil || l.n(2) == 0 {
		l.compare()
	}
	l.begin()
	l.all()
}

// all makes all workers send a heartbeat.
func (l *life) all() {
	for _, m := range l.machines {
		if m.boot > 0 {
			l.uplink(m)
		}
	}
}

func (l *life) save() {
	l.soup()
	if l.core.Deciding() {
		return
	}
	data, err := l.core.Snapshot()
	l.must(err)
	l.must(l.short.SaveSnapshot(context.Background(), l.core.State().Seq, data))
}
