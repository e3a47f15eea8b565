package control

import (
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/spec"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// schedule lets tuners fill what is free, then asks the policy who gets it.
func (c *Core) schedule() {
	if c.err != nil {
		return
	}
	c.askTuners()
	v, jobs := c.view()
	plan := c.policy.Decide(v)
	c.next = plan.Next
	if len(plan.Grants)+len(plan.Revokes) > 0 {
		c.emit(&outbidv1.Event{Kind: &outbidv1.Event_RoundDecided{RoundDecided: &outbidv1.RoundDecided{
			Round: v.Round, Policy: c.policy.Name(), Reason: plan.Reason,
		}}})
	}
	for _, r := range plan.Revokes {
		j := jobs[r.Job]
		c.revoke(j.sweep, j.trial, outbidv1.RevokeKind_REVOKE_KIND_PAUSE, r.Reason)
	}
	for _, g := range plan.Grants {
		c.grant(jobs[g.Job], g)
	}
	c.explainWaiting(v, jobs)
}

// job is who stands behind a policy.Job.
type job struct {
	sweep *state.Sweep
	trial *state.Trial
}

// askTuners asks tuners for trials where devices are free that no trial waits for.
func (c *Core) askTuners() {
	v, _ := c.view()
	free := v.Capacity()
	idle := free.FreeDevices()
	if idle == 0 {
		return
	}
	for _, s := range slices.Clone(c.st.Live) {
		t := c.tuners[s.ID]
		if s.State != outbidv1.SweepState_SWEEP_STATE_RUNNING || s.Spec.GetExternal() != nil || t == nil {
			continue
		}
		if status := t.Status(); status.Waiting || status.Exhausted {
			continue
		}
		n := min(free.Slots(demand(s), idle)-len(s.Queued), room(s))
		if n > 0 {
			c.ask(s, n)
		}
	}
}

// view is what the policy sees: trials that hold devices or want some, of sweeps that are not over.
func (c *Core) view() (*policy.View, []job) {
	v := &policy.View{Now: c.now, Round: c.st.NextRound}
	nodes := map[string]int{}
	for _, name := range c.st.NodeNames {
		if n := c.st.Nodes[name]; n.Up() {
			nodes[name] = len(v.Nodes)
			v.Nodes = append(v.Nodes, clusterNode(n))
		}
	}
	var jobs []job
	for _, s := range c.st.Live {
		if s.Spec.GetExternal() != nil {
			continue
		}
		app := len(v.Apps)
		v.Apps = append(v.Apps, policy.App{
			ID: s.ID, Tenant: s.Spec.GetTenant(), Submitted: s.Submitted, DeviceSeconds: s.DeviceSeconds,
		})
		d := demand(s)
		for _, n := range s.Running {
			t := s.Trials[n]
			c.hold(v, nodes, t.Lease, len(v.Jobs))
			v.Jobs = append(v.Jobs, policyJob(app, t, d))
			jobs = append(jobs, job{s, t})
		}
		if s.State != outbidv1.SweepState_SWEEP_STATE_RUNNING {
			continue
		}
		for _, n := range s.Queued {
			v.Jobs = append(v.Jobs, policyJob(app, s.Trials[n], d))
			jobs = append(jobs, job{s, s.Trials[n]})
		}
	}
	return v, jobs
}

// hold marks a lease's devices as held by a job, or as busy while its fork is ending.
func (c *Core) hold(v *policy.View, nodes map[string]int, l *state.Lease, job int) {
	i, ok := nodes[l.Node]
	if !ok {
		return
	}
	for _, d := range l.Devices {
		holder := job
		if l.Revoking != outbidv1.RevokeKind_REVOKE_KIND_UNSPECIFIED {
			holder = cluster.Busy
		}
		v.Nodes[i].Devices[d].Holder = holder
	}
}

func policyJob(app int, t *state.Trial, d cluster.Demand) policy.Job {
	j := policy.Job{App: app, Trial: t.Number, Demand: d, Queued: t.Queued, Step: t.Step, UntilStep: t.UntilStep}
	if l := t.Lease; l != nil {
		j.Node, j.Granted, j.Queued = l.Node, l.Granted, time.Time{}
		j.Ending = l.Revoking != outbidv1.RevokeKind_REVOKE_KIND_UNSPECIFIED
		for _, d := range l.Devices {
			j.Devices = append(j.Devices, int(d))
		}
	}
	return j
}

func clusterNode(n *state.Node) cluster.Node {
	info := n.Info
	node := cluster.Node{
		Name: info.GetName(), CPUs: info.GetCpus(), Memory: info.GetMemoryBytes(), Trusted: info.GetTrusted(),
		Draining: n.State == outbidv1.NodeState_NODE_STATE_DRAINING,
	}
	for i, d := range info.GetDevices() {
		speed := d.GetSpeed()
		if speed == 0 {
			speed = 1
		}
		node.Devices = append(node.Devices, cluster.Device{Index: i, Type: d.GetType(), Speed: speed, Holder: cluster.Free})
	}
	for _, l := range info.GetLinks() {
		node.Links = append(node.Links, cluster.Link{A: int(l.GetA()), B: int(l.GetB()), Rank: linkRank(l)})
	}
	return node
}

// linkRank orders links by speed: any NVLink before any PCIe path, and those by how close they meet.
func linkRank(l *outbidv1.DeviceLink) int {
	switch l.GetKind() {
	case "nvlink":
		return 100 + int(l.GetLanes())
	case "pix":
		return 5
	case "pxb":
		return 4
	case "phb":
		return 3
	case "node":
		return 2
	default:
		return 1
	}
}

// demand is what one trial of a sweep needs.
func demand(s *state.Sweep) cluster.Demand {
	r := s.Spec.GetResources()
	d := cluster.Demand{
		Min: max(1, int(r.GetDevices().GetMin())), Types: r.GetTypes(), Exclude: r.GetExcludeTypes(), CPUs: r.GetCpus(),
		NeedsTrust: s.Spec.GetFunction() != nil,
	}
	d.Max = max(d.Min, int(r.GetDevices().GetMax()))
	if bytes, err := spec.ParseBytes(r.GetMemory()); err == nil {
		d.Memory = bytes
	}
	return d
}

// grant turns a policy's grant into a lease. A grant that does not fit the state is the policy's mistake: it is told
// in the sweep's notes and has no effect.
func (c *Core) grant(j job, g policy.Grant) {
	n := c.st.Nodes[g.Node]
	if n == nil || !n.Up() || j.trial.State != outbidv1.TrialState_TRIAL_STATE_QUEUED ||
		j.sweep.State != outbidv1.SweepState_SWEEP_STATE_RUNNING || len(g.Devices) == 0 {
		c.note(j.sweep.ID, &j.trial.Number, "error", "policy %s granted it devices that it cannot have now", c.policy.Name())
		return
	}
	devices := make([]int32, len(g.Devices))
	for i, d := range g.Devices {
		if d < 0 || d >= len(n.Holders) || n.Holders[d] != nil {
			c.note(j.sweep.ID, &j.trial.Number, "error", "policy %s granted it device %d of node %s, which is not free", c.policy.Name(), d, g.Node)
			return
		}
		devices[i] = int32(d)
	}
	granted := &outbidv1.LeaseGranted{
		Sweep: j.sweep.ID, Trial: j.trial.Number, Epoch: c.st.NextEpoch, Node: g.Node, Devices: devices, Reason: g.Reason,
	}
	if !g.TermEnd.IsZero() {
		granted.TermEnd = timestamppb.New(g.TermEnd)
	}
	c.emit(&outbidv1.Event{Kind: &outbidv1.Event_LeaseGranted{LeaseGranted: granted}})
	c.dirty(g.Node)
}

// explainWaiting finds out, for each sweep with trials that wait, why they do.
func (c *Core) explainWaiting(v *policy.View, jobs []job) {
	clear(c.waiting)
	for i := range jobs {
		s := jobs[i].sweep
		if _, known := c.waiting[s.ID]; known || jobs[i].trial.State != outbidv1.TrialState_TRIAL_STATE_QUEUED {
			continue
		}
		if why := cluster.Impossible(v.Nodes, v.Jobs[i].Demand); why != "" {
			c.waiting[s.ID] = why
		} else {
			c.waiting[s.ID] = "waits for devices that others hold"
		}
	}
	for _, s := range c.st.Live {
		if len(s.Queued) > 0 || len(s.Running) > 0 || s.Spec.GetExternal() != nil {
			continue
		}
		if why := cluster.Impossible(v.Nodes, demand(s)); why != "" {
			c.waiting[s.ID] = why
		} else if s.State == outbidv1.SweepState_SWEEP_STATE_RUNNING {
			c.waiting[s.ID] = fmt.Sprintf("waits for devices; %d of this cluster's are held", held(v))
		}
	}
}

func held(v *policy.View) int {
	n := 0
	for i := range v.Nodes {
		for _, d := range v.Nodes[i].Devices {
			if d.Holder != cluster.Free {
				n++
			}
		}
	}
	return n
}
