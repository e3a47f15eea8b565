package nodes

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/outbid-dev/outbid/orchestrator/control/trials"
	"github.com/outbid-dev/outbid/orchestrator/spec"
	"github.com/outbid-dev/outbid/orchestrator/state"
	"github.com/outbid-dev/outbid/orchestrator/traceparent"
	"github.com/outbid-dev/outbid/orchestrator/tuner/space"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func (ns *Nodes) body(node string, s *state.Sweep, t *state.Trial, l *state.Lease) (*outbidv1.AssignmentBody, error) {
	sp := s.Spec
	place := l.PlaceOn(node)
	b := &outbidv1.AssignmentBody{
		ConfigJson: t.Config, Devices: l.Places[place].Devices, Gang: ns.gang(s, t, l, place), Start: trials.StartOf(t, l), Seed: seedOf(t, l), Metric: sp.GetMetric(), Mode: sp.GetMode(),
		SaveEvery: durationpb.New(s.Terms.SaveEvery), MemoryBytes: s.Terms.Demand.Memory, KeepBest: sp.GetCheckpoints().GetBest() > 0, Cpus: sp.GetResources().GetCpus(),
		Tenant: state.TenantOf(sp), Part: partOf(t, l), ShardedCheckpoints: true,
	}
	if parent, err := traceparent.Parse(sp.GetTraceparent()); err == nil {
		b.Traceparent = parent.Lease(l.ID).String()
	}
	if d := s.Terms.HangTimeout; d > 0 {
		b.HangTimeout = durationpb.New(d)
	}
	if done, err := ns.sealSecrets(node, sp, b); done || err != nil {
		return b, err
	}
	if f := sp.GetFunction(); f != nil {
		b.Workload = &outbidv1.WorkloadBody{Kind: &outbidv1.WorkloadBody_Function{Function: ns.function(f)}}
		if b.GetGang() != nil {
			b.Workload.Kind = &outbidv1.WorkloadBody_GangFunction{GangFunction: ns.function(f)}
		}
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
func (ns *Nodes) sealSecrets(node string, sp *outbidv1.SweepSpec, b *outbidv1.AssignmentBody) (complete bool, err error) {
	wanted := spec.Secrets(sp)
	if len(wanted) == 0 || ns.set.Seal == nil {
		return false, nil
	}
	info := ns.st.Nodes[node].Info
	if len(info.GetSealKey()) == 0 {
		return true, nil
	}
	b.SealedSecrets, err = ns.set.Seal(info, b.GetTenant(), wanted)
	return false, err
}

func (ns *Nodes) function(f *outbidv1.Function) *outbidv1.FunctionBody {
	body := &outbidv1.FunctionBody{
		Blob: f.GetBlob(), Python: f.GetPython(), Name: f.GetName(), Env: f.GetEnv(), Workdir: f.GetWorkdir(),
		FreshProcess: f.GetFreshProcess(),
	}
	if ns.set.Sign != nil {
		body.Signature = ns.set.Sign(f.GetBlob())
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

// seedOf returns the seed of a lease's fork. It differs in each fork slot, so that forks draw their data in different
// orders.
func seedOf(t *state.Trial, l *state.Lease) uint64 {
	_, i := t.Slot.Part(l.ID)
	if i <= 0 && (t.Slot == nil || t.Slot.From == 0) {
		return t.Seed
	}
	x := t.Seed ^ uint64(t.Slot.From)*0x9e3779b97f4a7c15 ^ uint64(i)<<48
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9 // the mixing function of splitmix64
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// partOf returns the part of a fork slot that a lease trains, or nil.
func partOf(t *state.Trial, l *state.Lease) *outbidv1.ForkPart {
	own, i := t.Slot.Part(l.ID)
	if own == nil {
		return nil
	}
	p := &outbidv1.ForkPart{Index: int32(i), Count: int32(len(t.Slot.Parts)), Share: own.Share, TrialSeed: t.Seed}
	for k := range t.Slot.Parts {
		share := t.Slot.Parts[k].Share
		if p.Total += share; k < i {
			p.Before += share
		}
	}
	return p
}
