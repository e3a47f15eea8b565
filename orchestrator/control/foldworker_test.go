package control_test

import (
	"fmt"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/objects"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func (m *machine) bootName() string { return fmt.Sprintf("%s-%d", m.name, m.boot) }

func (l *life) machine() *machine { return pick(l, l.machines) }

// join starts a node's worker, for the first time or again.
func (l *life) join() {
	m := l.machine()
	m.boot++
	m.seq, m.orders, m.forks = 0, nil, map[uint64]*fork{}
	l.uplink(m)
}

func (l *life) leave() {
	m := l.machine()
	if m.boot == 0 || l.n(3) > 0 {
		return
	}
	up := l.message(m)
	up.Leaving, up.Forks = true, nil
	l.step(control.Uplink{Message: up})
	m.boot, m.orders = m.boot+1, nil
	m.seq, m.forks = 0, map[uint64]*fork{}
}

func (l *life) message(m *machine, messages ...*outbidv1.UplinkMessage) *outbidv1.Uplink {
	up := &outbidv1.Uplink{Node: m.name, Boot: m.bootName(), FirstSeq: m.seq + 1, Messages: messages, Info: &outbidv1.NodeInfo{MemoryBytes: 4 << 30}}
	for i := range m.devices {
		up.Info.Devices = append(up.Info.Devices, &outbidv1.Device{Index: int32(i), Type: "gpu", Speed: 1})
	}
	for _, a := range m.orders {
		up.Forks = append(up.Forks, &outbidv1.ForkStatus{Fork: a.GetFork(), Version: a.GetVersion()})
	}
	m.seq += uint64(len(messages))
	if l.frail {
		m.checks++
		up.Health = &outbidv1.NodeHealth{Check: m.checks}
		if m.checks%16 > 13 {
			up.Health.Unfit = []string{"no room"}
		}
	}
	return up
}

func (l *life) uplink(m *machine, messages ...*outbidv1.UplinkMessage) {
	l.step(control.Uplink{Message: l.message(m, messages...)})
}

// work makes a worker do something for one of its forks, or send a heartbeat.
func (l *life) work() {
	m := l.machine()
	if m.boot == 0 {
		l.join()
		return
	}
	if len(m.averages) > 0 && l.n(2) == 0 {
		l.average(m)
		return
	}
	if len(m.orders) == 0 {
		l.uplink(m)
		return
	}
	a := pick(l, m.orders)
	f := m.forks[a.GetFork().GetLeaseId()]
	if f == nil {
		f = &fork{step: a.GetBody().GetStart().GetStep()}
		m.forks[a.GetFork().GetLeaseId()] = f
	}
	var messages []*outbidv1.UplinkMessage
	for range 1 + l.n(4) {
		say := l.say(a, f)
		say.Fork = a.GetFork()
		messages = append(messages, say)
		if say.GetEnded() != nil {
			break
		}
	}
	l.uplink(m, messages...)
}

func (l *life) say(a *outbidv1.Assignment, f *fork) *outbidv1.UplinkMessage {
	switch {
	case !f.began && l.frail && l.n(4) == 0:
		return ended(&outbidv1.ForkEnded{
			Outcome: outbidv1.ForkOutcome_FORK_OUTCOME_FAILED, Detail: "it cannot be started",
			Failure: []outbidv1.FailureKind{outbidv1.FailureKind_FAILURE_KIND_START, outbidv1.FailureKind_FAILURE_KIND_NODE}[l.n(2)],
		})
	case !f.began:
		f.began = true
		return &outbidv1.UplinkMessage{Kind: &outbidv1.UplinkMessage_Began{Began: &outbidv1.ForkBegan{FromStep: f.step}}}
	case l.n(5) == 0:
		return l.saved(a, f)
	case a.GetVerdict() != outbidv1.Verdict_VERDICT_TRAIN:
		return ended(&outbidv1.ForkEnded{Outcome: outbidv1.ForkOutcome_FORK_OUTCOME_ORDERED, Step: f.step})
	case l.n(20) == 0:
		return ended(&outbidv1.ForkEnded{
			Outcome: outbidv1.ForkOutcome(2 + l.n(3)), Failure: outbidv1.FailureKind(1 + l.n(6)), Detail: "it ended",
			Step: f.step,
		})
	case l.n(20) == 0:
		if f.step%2 == 0 {
			return shardMessage(a.GetBody().GetGang().GetFirstRank(), f.step, 7)
		}
		return &outbidv1.UplinkMessage{Kind: &outbidv1.UplinkMessage_Note{Note: &outbidv1.Note{Level: "info", Text: "a note"}}}
	case a.GetUntilStep() > 0 && f.step >= a.GetUntilStep():
		return &outbidv1.UplinkMessage{Kind: &outbidv1.UplinkMessage_Reached{Reached: &outbidv1.ForkReached{Step: f.step}}}
	default:
		f.step++
		f.reportSeq++
		return &outbidv1.UplinkMessage{Kind: &outbidv1.UplinkMessage_Report{Report: &outbidv1.Report{
			Seq: f.reportSeq, Step: f.step, Metrics: l.metrics(), TrainSeconds: float64(f.reportSeq),
		}}}
	}
}

func (l *life) saved(a *outbidv1.Assignment, f *fork) *outbidv1.UplinkMessage {
	ref := a.GetFork()
	ck := &outbidv1.Checkpoint{
		Key: objects.Checkpoint{
			Sweep: ref.GetSweep(), Trial: ref.GetTrial(), Step: f.step, LeaseID: ref.GetLeaseId(), Format: objects.Opaque,
		}.Key(),
		Step: f.step, Bytes: 1,
	}
	if l.n(3) > 0 {
		ck.Metric = new(float64(l.n(9)) / 8)
	}
	return &outbidv1.UplinkMessage{Kind: &outbidv1.UplinkMessage_Saved{Saved: ck}}
}

func ended(e *outbidv1.ForkEnded) *outbidv1.UplinkMessage {
	return &outbidv1.UplinkMessage{Kind: &outbidv1.UplinkMessage_Ended{Ended: e}}
}

// average makes a worker send the result of an average that it was ordered to compute.
func (l *life) average(m *machine) {
	o := pick(l, m.averages)
	done := &outbidv1.Consolidated{Attempt: o.GetAttempt()}
	switch l.n(6) {
	case 0:
		done.Failure = "its disk is full"
	case 1:
		done.Failure, done.Mismatch = "they differ", true
	default:
		done.Checkpoint = &outbidv1.Checkpoint{Key: o.GetKey(), Step: o.GetStep(), Bytes: 1}
	}
	l.uplink(m, &outbidv1.UplinkMessage{Fork: o.GetFork(), Kind: &outbidv1.UplinkMessage_Consolidated{Consolidated: done}})
}

// dividing is a drf policy that forks what it grants if there is room for another fork.
func dividing(p policy.Policy) policy.Policy {
	if p == nil || p.Name() != "drf" {
		return p
	}
	return divided{p}
}

type divided struct{ policy.Policy }

func (p divided) Decide(v *policy.View) policy.Plan {
	plan := p.Policy.Decide(v)
	if len(plan.Grants) == 0 {
		return plan
	}
	try := v.Statement()
	defer try.Discard()
	for _, g := range plan.Grants {
		v.Free.Take(g.Gang, g.Job.Demand)
	}
	first := &plan.Grants[0]
	left := first.Job.UntilStep - 1 - first.Job.Step
	if gang, ok := v.Free.Place(first.Job.Demand, first.Gang.Size(), ""); ok && left >= 2 {
		first.Steps, first.TermEnd = left/2, v.Now.Add(time.Minute)
		plan.Grants = append(plan.Grants, policy.Grant{
			Job: first.Job, Gang: gang, Fork: true, Steps: left - left/2, TermEnd: first.TermEnd, Reason: "there is room",
		})
	}
	return plan
}
