package tuning

import (
	"math"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/state"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// aheadAtMost limits how many trials a tuner is asked for beyond what is free, so that a preempting policy sees them.
const aheadAtMost = 256

// AskTuners asks tuners for trials if devices are free that no trial waits for. A sweep without running or waiting
// trials is always asked for one, so that the policy sees its demand. If the policy preempts, it is asked for as many
// as the cluster could run.
func (tu *Tuning) AskTuners(v *policy.View, preempts bool) {
	tu.asksOn = false
	idle, size := v.Free.FreeDevices(), 0
	if preempts {
		for i := range v.Nodes {
			size += len(v.Nodes[i].Devices)
		}
	}
	for _, s := range tu.creatorsInOrder() {
		t := tu.tuners[s.ID]
		if s.State != outbidv1.SweepState_SWEEP_STATE_RUNNING || t == nil {
			continue
		}
		status, asked := t.Status(), 0
		if r := tu.Remote(s.ID); r != nil {
			// Ask for the next free device while the tuner draws for another one, so that the tuner does not wait for
			// this step.
			status.Waiting, asked = r.Said().Waiting, r.AskedFor()
		}
		if status.Waiting || status.Exhausted {
			delete(tu.mayCreate, s.ID)
			continue
		}
		n := 0
		d := s.Terms.Demand
		d.Avoid = tu.faults.Avoids(s, nil)
		if idle > 0 {
			n = v.Free.Slots(d, idle) - len(s.Queued)
		}
		if len(s.Queued) == 0 && len(s.Running) == 0 {
			n = max(n, 1)
		}
		if preempts {
			n = max(n, min(size/d.Min, aheadAtMost)-len(s.Queued)-len(s.Running))
		}
		if !tu.askFor(s, min(n, Room(s))-asked) {
			return
		}
	}
}

// MayCreate reports whether AskTuners may ask a tuner.
func (tu *Tuning) MayCreate() bool { return len(tu.mayCreate) > 0 }

// AsksOn reports whether AskTuners continues in the next step, because this one was full.
func (tu *Tuning) AsksOn() bool { return tu.asksOn }

// askAtOnce limits how many trials a tuner is asked for in one question, whose answer is one batch of the ledger.
const askAtOnce = 256

// askFor asks a sweep's tuner for n trials, or for as many as it has. It reports whether the step has room for more.
func (tu *Tuning) askFor(s *state.Sweep, n int) (room bool) {
	for n > 0 && !tu.core.Failed() {
		if tu.core.Full() {
			tu.asksOn = true
			return false
		}
		tu.Ask(s, min(n, askAtOnce))
		tu.core.MarkBatchEnd()
		n -= askAtOnce
		t := tu.tuners[s.ID]
		if t == nil || s.State != outbidv1.SweepState_SWEEP_STATE_RUNNING || t.Status().Waiting || t.Status().Exhausted {
			break
		}
	}
	return true
}

// Ask asks the tuner for up to n trials to run.
func (tu *Tuning) Ask(s *state.Sweep, n int) {
	answer := tu.consult(s, tuner.Ask{N: n})
	if answer.err == nil {
		status := tu.tuners[s.ID].Status()
		if t := tu.Remote(s.ID); t != nil {
			status = t.Said()
		}
		tu.core.Emit(&outbidv1.Event{Kind: &outbidv1.Event_TunerAsked{TunerAsked: &outbidv1.TunerAsked{
			Sweep: s.ID, N: int32(n), Waiting: status.Waiting, Exhausted: status.Exhausted,
		}}})
	}
	tu.core.Enqueue(answer)
}

func (tu *Tuning) creatorsInOrder() []*state.Sweep {
	all := make([]*state.Sweep, 0, len(tu.mayCreate))
	for id := range tu.mayCreate {
		all = append(all, tu.st.Sweeps[id])
	}
	slices.SortFunc(all, func(a, b *state.Sweep) int { return a.Order - b.Order })
	return all
}

// noteMayCreate records that a sweep's tuner may have new trials.
func (tu *Tuning) noteMayCreate(s *state.Sweep) {
	if s.Spec.GetExternal() == nil && !s.Done() {
		tu.mayCreate[s.ID] = true
	}
}

// Room returns how many more trials of a sweep may be active under its concurrency limit.
func Room(s *state.Sweep) int {
	limit := int(s.Spec.GetLimits().GetConcurrency())
	if limit == 0 {
		return math.MaxInt
	}
	return limit - len(s.Running) - len(s.Queued)
}
