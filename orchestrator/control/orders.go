package control

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/sanitize"
	"github.com/outbid-dev/outbid/orchestrator/spec"
	"github.com/outbid-dev/outbid/orchestrator/state"
	"github.com/outbid-dev/outbid/orchestrator/tuner/space"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// order makes orders for every node that changed or was just seen.
func (c *Core) order() {
	if c.err != nil {
		return
	}
	for _, name := range sortedKeys(c.ordersDue) {
		if o := c.orders(name, c.contact(name)); o != nil {
			c.out.Orders = append(c.out.Orders, o)
		}
	}
	clear(c.ordersDue)
}

// orders returns everything that a node should be doing. It omits the bodies that the node already has. The lease
// counts from when the node was last seen, like the time until its loss. Otherwise a node whose uplinks are lost and
// whose orders arrive would run longer than one that is cut off altogether.
func (c *Core) orders(name string, l *nodeContact) *outbidv1.Orders {
	l.generation += renewals
	o := &outbidv1.Orders{
		Node: name, Boot: l.boot, Generation: l.generation, Term: c.set.Term, Store: c.set.Store,
		Lease: durationpb.New(max(0, c.set.Lease-c.now.Sub(l.seen))), Hello: l.hello, Tenants: c.set.Tenants,
		Refused: l.refused,
	}
	n := c.st.Nodes[name]
	if n == nil || l.boot == "" {
		if l.boot == "" {
			return nil // not seen since this server started
		}
		return o
	}
	if n.Info.GetBoot() != l.boot {
		return o
	}
	o.AckedSeq = n.SeenSeq
	said, bodies := l.said, 0
	l.said = make(map[uint64]*outbidv1.Assignment, len(n.Leases))
	for _, lease := range n.Leases {
		a, err := c.assignment(name, lease, l.taken[lease.ID] == 0 && bodies < bodiesPerOrders, said[lease.ID])
		if err != nil {
			c.unordered = append(c.unordered, unordered{lease, err})
			continue
		}
		if a.GetBody() != nil {
			bodies += proto.Size(a)
		}
		o.Assignments = append(o.Assignments, a)
		l.said[lease.ID] = a
	}
	o.Consolidations = c.consolidations(n)
	return o
}

// bodiesPerOrders is the maximum size in bytes of the new assignments' bodies in one orders message. The others
// follow once the node has accepted these.
const bodiesPerOrders = 512 << 10

// unordered is a lease for which no orders can be made.
type unordered struct {
	lease *state.Lease
	err   error
}

// failUnordered fails only the trials for which no orders could be made.
func (c *Core) failUnordered() {
	for _, u := range c.unordered {
		s := c.st.Sweeps[u.lease.Sweep]
		if s == nil || s.Trials[u.lease.Trial].Held(u.lease.ID) == nil {
			continue
		}
		t := s.Trials[u.lease.Trial]
		if !t.Done() {
			reason := "cannot make orders for it: " + sanitize.Line(u.err.Error(), limits.Detail)
			c.note(s.ID, &t.Number, "error", "failed for good: %s", reason)
			c.endTrial(s, t, outbidv1.TrialState_TRIAL_STATE_FAILED, reason, false)
		}
		// The lease was never sent to a worker, so it can end at once.
		if l := t.Held(u.lease.ID); l != nil {
			c.endLease(s, t, l, "cannot make orders for it")
		}
	}
	c.unordered = nil
}

// assignment returns what a node should do for one lease. It returns before, the last assignment that was sent, if
// that is unchanged.
func (c *Core) assignment(
	node string, l *state.Lease, withBody bool, before *outbidv1.Assignment,
) (*outbidv1.Assignment, error) {
	s := c.st.Sweeps[l.Sweep]
	t := s.Trials[l.Trial]
	verdict := outbidv1.Verdict_VERDICT_TRAIN
	switch l.Revoking {
	case outbidv1.RevokeKind_REVOKE_KIND_PAUSE:
		verdict = outbidv1.Verdict_VERDICT_PAUSE
	case outbidv1.RevokeKind_REVOKE_KIND_STOP:
		verdict = outbidv1.Verdict_VERDICT_STOP
	}
	until, rate := t.Until(l), c.reportShare(s)
	if !withBody && before != nil && before.Body == nil && before.Version == l.Version && before.Verdict == verdict &&
		before.UntilStep == until && before.Reason == t.Reason && before.ReportRate == rate {
		return before, nil
	}
	a := &outbidv1.Assignment{
		Fork: l.Fork(), Version: l.Version, Verdict: verdict, UntilStep: until, Reason: t.Reason, ReportRate: rate,
	}
	if !withBody {
		return a, nil
	}
	body, err := c.body(node, s, t, l)
	a.Body = body
	return a, err
}

func (c *Core) body(node string, s *state.Sweep, t *state.Trial, l *state.Lease) (*outbidv1.AssignmentBody, error) {
	sp := s.Spec
	place := l.PlaceOn(node)
	b := &outbidv1.AssignmentBody{
		ConfigJson: t.Config, Devices: l.Places[place].Devices, Gang: c.gang(s, l, place), Start: startOf(t, l), Seed: seedOf(t, l), Metric: sp.GetMetric(), Mode: sp.GetMode(),
		SaveEvery: durationpb.New(s.Terms.SaveEvery), MemoryBytes: s.Terms.Demand.Memory, KeepBest: sp.GetCheckpoints().GetBest() > 0, Cpus: sp.GetResources().GetCpus(),
		Tenant: tenantOf(sp), Part: partOf(t, l),
	}
	if d := s.Terms.HangTimeout; d > 0 {
		b.HangTimeout = durationpb.New(d)
	}
	if done, err := c.sealSecrets(node, sp, b); done || err != nil {
		return b, err
	}
	if f := sp.GetFunction(); f != nil {
		b.Workload = &outbidv1.WorkloadBody{Kind: &outbidv1.WorkloadBody_Function{Function: c.function(f)}}
		return b, nil
	}
	p, err := program(sp.GetProgram(), t.Config, s.Terms.Grace)
	if err != nil {
		return nil, err
	}
	b.Workload = &outbidv1.WorkloadBody{Kind: &outbidv1.WorkloadBody_Program{Program: p}}
	return b, nil
}

// sealSecrets adds the values of a sweep's secrets to the body of an assignment, encrypted for the node's worker. It
// reports whether the body is complete without a workload: a worker too old to open secrets rejects such a body,
// instead of training without them.
func (c *Core) sealSecrets(node string, sp *outbidv1.SweepSpec, b *outbidv1.AssignmentBody) (complete bool, err error) {
	wanted := spec.Secrets(sp)
	if len(wanted) == 0 || c.set.Seal == nil {
		return false, nil
	}
	info := c.st.Nodes[node].Info
	if len(info.GetSealKey()) == 0 {
		return true, nil
	}
	b.SealedSecrets, err = c.set.Seal(info, b.GetTenant(), wanted)
	return false, err
}

// tenantOf returns the tenant of a sweep.
func tenantOf(sp *outbidv1.SweepSpec) string {
	if sp.GetTenant() == "" {
		return "default"
	}
	return sp.GetTenant()
}

func (c *Core) function(f *outbidv1.Function) *outbidv1.FunctionBody {
	body := &outbidv1.FunctionBody{
		Blob: f.GetBlob(), Python: f.GetPython(), Name: f.GetName(), Env: f.GetEnv(), Workdir: f.GetWorkdir(),
		FreshProcess: f.GetFreshProcess(),
	}
	if c.set.Sign != nil {
		body.Signature = c.set.Sign(f.GetBlob())
	}
	return body
}

func program(p *outbidv1.Program, configJSON string, grace time.Duration) (*outbidv1.ProgramBody, error) {
	config, err := space.Parse(configJSON)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	argv, env, err := spec.Render(p, config)
	if err != nil {
		return nil, err
	}
	return &outbidv1.ProgramBody{Argv: argv, Env: env, Workdir: p.GetWorkdir(), Grace: durationpb.New(grace)}, nil
}

// portBase is the first of portCount ports for the rendezvous of gangs; torchrun's default is 29500.
const (
	portBase  = 29500
	portCount = 2000
)

// gang returns which of the trial's processes a place runs, or nil if there is only one process.
func (c *Core) gang(s *state.Sweep, l *state.Lease, place int) *outbidv1.Gang {
	perDevice := s.Spec.GetResources().GetProcesses() == "per_device"
	if !l.Gang() && !perDevice {
		return nil
	}
	g := &outbidv1.Gang{
		Place: int32(place), Places: int32(len(l.Places)), PerDevice: perDevice,
		Address: c.st.Nodes[l.Rank0()].Info.GetHostname(), Port: int32(portBase + l.ID%portCount),
	}
	for i, p := range l.Places {
		ranks := 1
		if perDevice {
			ranks = len(p.Devices)
		}
		if i < place {
			g.FirstRank += int32(ranks)
		}
		g.Ranks += int32(ranks)
	}
	return g
}
