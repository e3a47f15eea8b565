package sim

import (
	"fmt"
	"math"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/objects"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// fork is a simulated training process on its worker. In a gang over several nodes, the process in place 0 trains and
// reports for all; the others hold devices.
type fork struct {
	k       *worker
	ref     *outbidv1.ForkRef
	key     trialKey
	place   int
	version uint64
	until   int64
	config  string
	// start is the checkpoint that it starts from, or nil.
	start   *outbidv1.Checkpoint
	devices []int32
	gang    cluster.Gang
	// again is set if its trial had devices before.
	again    bool
	training Training
	// from is the step that is saved. step is the step at the time since. It is training while running is true.
	from, step float64
	since      time.Time
	running    bool
	// savedAt is the time of its last periodic save, at the step saved.
	savedAt time.Time
	saved   float64
	// reported is the step of its last report, with value; reports counts them.
	reported, value float64
	reports         uint64
	// part is set if it belongs to a fork slot. It then counts whole steps and also saves when its code ends.
	part bool
	// claimed is set if its process uses its devices. verdict is the newest one. over is set once it has ended.
	claimed bool
	verdict outbidv1.Verdict
	over    bool
	// turn counts plans: a plan with an older number is void.
	turn int
}

// start handles a new assignment.
func (k *worker) start(a *outbidv1.Assignment) {
	body, ref := a.GetBody(), a.GetFork()
	f := &fork{
		k: k, ref: ref, key: trialKey{ref.GetSweep(), ref.GetTrial()}, version: a.GetVersion(), until: a.GetUntilStep(),
		place: int(body.GetGang().GetPlace()), config: body.GetConfigJson(), start: body.GetStart(), devices: body.GetDevices(),
		verdict: outbidv1.Verdict_VERDICT_TRAIN, reported: -1, part: body.GetPart() != nil,
	}
	k.forks[ref.GetLeaseId()] = f
	if g, ok := k.w.leases[ref.GetLeaseId()]; ok {
		f.gang, f.again = g.gang, g.again
	} else {
		f.gang, f.place = k.part(f.devices), 0 // the lease has ended: an invariant will report it
	}
	f.launch()
}

// part returns a gang of devices of this node.
func (k *worker) part(devices []int32) cluster.Gang {
	p := cluster.Place{Node: k.w.places[k.node.Name]}
	for _, d := range devices {
		p.Devices = append(p.Devices, int(d))
	}
	return cluster.Gang{p}
}

// launchWaiting launches forks whose devices are free now.
func (k *worker) launchWaiting() {
	if !k.careful() {
		return // then devices are free before they are leased again
	}
	for _, leaseID := range k.leaseIDs() {
		if f := k.forks[leaseID]; f != nil && !f.claimed {
			f.launch()
		}
	}
}

// busy reports whether another process of the worker uses one of the devices.
func (k *worker) busy(f *fork) bool {
	for _, o := range k.forks {
		if o == f || !o.claimed {
			continue
		}
		for _, d := range o.devices {
			for _, mine := range f.devices {
				if d == mine {
					return true
				}
			}
		}
	}
	return false
}

// launch starts the process, unless an ending process still has its devices.
func (f *fork) launch() {
	w := f.k.w
	if f.k.careful() && f.k.busy(f) {
		return
	}
	f.claimed = true
	if err := w.invariants.claim(f); err != nil {
		w.fail(err)
		return
	}
	if bad := w.bad(f.k.node.Name, f.key.sweep); bad != nil && bad.How != outbidv1.FailureKind_FAILURE_KIND_ERROR {
		f.plan(startTakes, func() { f.fail(bad.How, badNode) })
		return
	}
	if f.place > 0 {
		return
	}
	training, err := w.model.Start(ForkInfo{
		Sweep: f.key.sweep, Config: f.config, Job: w.apps[f.key.sweep].job(f.key.trial), Nodes: w.nodes, Gang: f.gang, Random: w.rng,
	})
	if err != nil {
		w.fail(fmt.Errorf("policy %s placed trial %d of %s: %w", w.policy.Name(), f.key.trial, f.key.sweep, err))
		return
	}
	f.training = training
	if f.start != nil {
		f.from = float64(f.start.GetStep())
		if exact, ok := w.exact[f.start.GetKey()]; ok && !f.part {
			f.from = exact
		}
	}
	f.step, f.saved = f.from, f.from
	delay := time.Duration(0)
	if f.again {
		delay = w.set.RestartDelay
	}
	f.plan(delay, f.begin)
}

// plan schedules an action, which is void if another is planned or an order arrives before.
func (f *fork) plan(after time.Duration, do func()) {
	f.turn++
	turn := f.turn
	if after <= 0 {
		do()
		return
	}
	f.k.w.clock.after(after, func() {
		if f.turn == turn && !f.over && f.k.forks[f.ref.GetLeaseId()] == f {
			do()
		}
	})
}

func (f *fork) begin() {
	w := f.k.w
	f.running, f.since, f.savedAt = true, w.clock.now, w.clock.now
	f.k.say(f.message(&outbidv1.UplinkMessage{Kind: &outbidv1.UplinkMessage_Began{Began: &outbidv1.ForkBegan{FromStep: int64(f.from)}}}))
	if mean := w.set.Mishaps.JobFails; mean > 0 {
		w.clock.after(exponential(w.rng, mean), func() {
			if f.k.forks[f.ref.GetLeaseId()] == f && !f.over {
				f.crash()
			}
		})
	}
	if bad := w.bad(f.k.node.Name, f.key.sweep); bad != nil {
		w.clock.after(failsAfter, func() {
			if f.k.forks[f.ref.GetLeaseId()] == f && !f.over {
				f.fail(bad.How, badNode)
			}
		})
	}
	f.next()
}

func (f *fork) message(m *outbidv1.UplinkMessage) *outbidv1.UplinkMessage {
	m.Fork = f.ref
	return m
}

// next plans the next visible event.
func (f *fork) next() {
	sight := f.training.Next(f.step, f.until)
	var do func()
	switch sight.What {
	case Reports:
		do = f.report
	case Reaches:
		do = f.reach
	case Finishes:
		do = f.finish
	case Kills:
		do = f.kill
	case Unseen:
		return // until an order arrives
	}
	f.plan(sight.After, func() {
		f.passed(sight.Step)
		do()
	})
}

// advance computes the present step.
func (f *fork) advance() {
	if !f.running {
		return
	}
	step := f.training.At(f.step, f.k.w.clock.now.Sub(f.since))
	if until := float64(f.until); until > 0 && step > until {
		step = max(until, f.step)
	}
	f.passed(step)
}

// passed records the present step and the periodic saves on the way.
func (f *fork) passed(step float64) {
	now := f.k.w.clock.now
	if every := f.k.w.set.SaveEvery; now.Sub(f.savedAt) >= every {
		f.savedAt = f.savedAt.Add(now.Sub(f.savedAt).Truncate(every))
		f.saved = max(f.saved, min(step, f.training.At(step, f.savedAt.Sub(now))))
	}
	f.step, f.since = step, now
}

// keep returns the message that a step was saved, or nil if it was saved already.
func (f *fork) keep(step float64) *outbidv1.UplinkMessage {
	if f.part {
		step = math.Floor(step + rounding) // otherwise each fork would count the fraction of a step that they start with
	}
	if f.place > 0 || step <= f.from {
		return nil
	}
	key := objects.Checkpoint{
		Sweep: f.key.sweep, Trial: f.key.trial, Step: int64(step), LeaseID: f.ref.GetLeaseId(), Format: objects.Opaque,
	}.Key()
	f.k.w.invariants.saving(key, step-f.from)
	f.k.w.exact[key] = step
	f.from, f.saved = step, step
	c := &outbidv1.Checkpoint{Key: key, Step: int64(step)}
	if f.reports > 0 && !f.k.w.quiet() {
		value := f.value
		c.Metric, c.Bytes = &value, 1
	}
	return f.message(&outbidv1.UplinkMessage{Kind: &outbidv1.UplinkMessage_Saved{Saved: c}})
}

// report reports the present metric.
func (f *fork) report() {
	if m := f.reportMessage(); m != nil {
		f.k.say(m)
	}
	f.next()
}

// reportMessage returns nil if the trial does not report, or has reported this step.
func (f *fork) reportMessage() *outbidv1.UplinkMessage {
	value, reports := f.training.Metric(f.step)
	if !reports || f.reported == f.step {
		return nil
	}
	f.reports++
	f.reported, f.value = f.step, value
	f.k.w.invariants.reporting(f, f.step)
	f.k.w.trained++
	return f.message(&outbidv1.UplinkMessage{Kind: &outbidv1.UplinkMessage_Report{Report: &outbidv1.Report{
		Seq: f.reports, Step: int64(f.step), Metrics: map[string]float64{Metric: value},
	}}})
}

// reach handles the target: the fork saves and waits for an order.
func (f *fork) reach() {
	f.running = false
	f.plan(f.upload(), f.reached)
}

func (f *fork) reached() {
	var said []*outbidv1.UplinkMessage
	if m := f.reportMessage(); m != nil {
		said = append(said, m)
	}
	if save := f.keep(f.step); save != nil {
		said = append(said, save)
	}
	f.k.say(append(said, f.message(&outbidv1.UplinkMessage{Kind: &outbidv1.UplinkMessage_Reached{
		Reached: &outbidv1.ForkReached{Step: int64(f.step)},
	}}))...)
}

// finish handles the end of its code.
func (f *fork) finish() {
	w := f.k.w
	if save := f.keepPart(); save != nil {
		f.k.say(save)
	}
	w.invariants.finishing(f, f.step-f.from) // this checkpoint is not needed
	if m := f.reportMessage(); m != nil {
		f.k.say(m)
	}
	for _, p := range f.gang[1:] { // rank 0 leaves last
		k := w.workers[w.nodes[p.Node].Name]
		if o := k.forks[f.ref.GetLeaseId()]; k.up && o != nil && !o.over {
			o.end(outbidv1.ForkOutcome_FORK_OUTCOME_FINISHED)
		}
	}
	f.end(outbidv1.ForkOutcome_FORK_OUTCOME_FINISHED)
}

// crash handles a failure of its code.
func (f *fork) crash() {
	f.advance()
	if save := f.keep(f.saved); save != nil {
		f.k.say(save)
	}
	f.fail(outbidv1.FailureKind_FAILURE_KIND_ERROR, fmt.Sprintf("exit code 1 of lease %d", f.ref.GetLeaseId()))
}

// kill crashes its worker, which boots again after a while.
func (f *fork) kill() {
	f.k.w.killed++
	f.k.crash()
	f.k.w.clock.after(5*time.Second, f.k.boot)
}

// expire handles the end of the lease without contact to the orchestrator.
func (f *fork) expire() {
	f.advance()
	f.end(outbidv1.ForkOutcome_FORK_OUTCOME_EXPIRED)
}

// told handles a changed verdict.
func (f *fork) told(v outbidv1.Verdict) {
	ending := f.verdict != outbidv1.Verdict_VERDICT_TRAIN
	f.verdict = v
	switch {
	case ending: // the process is ending, and follows the newest verdict when it does
	case v != outbidv1.Verdict_VERDICT_TRAIN && f.training == nil:
		f.end(outbidv1.ForkOutcome_FORK_OUTCOME_ORDERED)
	case v != outbidv1.Verdict_VERDICT_TRAIN:
		f.advance()
		f.running = false
		f.plan(f.training.Stop()+f.uploadsAt(v), f.obey)
	case f.training != nil && !f.since.IsZero():
		f.advance()
		f.running, f.since = true, f.k.w.clock.now
		f.next()
	}
}

// obey ends according to the verdict: with everything saved, or only with the periodic saves.
func (f *fork) obey() {
	step := f.saved
	if f.verdict == outbidv1.Verdict_VERDICT_PAUSE {
		step = f.step
	}
	if save := f.keep(step); save != nil {
		f.k.say(save)
	}
	f.end(outbidv1.ForkOutcome_FORK_OUTCOME_ORDERED)
}

// fail ends the process with a failure.
func (f *fork) fail(kind outbidv1.FailureKind, detail string) {
	f.ended(&outbidv1.ForkEnded{Outcome: outbidv1.ForkOutcome_FORK_OUTCOME_FAILED, Failure: kind, Detail: detail})
}

// end ends the process without a failure.
func (f *fork) end(how outbidv1.ForkOutcome) { f.ended(&outbidv1.ForkEnded{Outcome: how}) }

// ended frees the devices and reports the end.
func (f *fork) ended(ended *outbidv1.ForkEnded) {
	f.gone()
	ended.Step = int64(f.step)
	f.k.say(f.message(&outbidv1.UplinkMessage{Kind: &outbidv1.UplinkMessage_Ended{Ended: ended}}))
	f.k.launchWaiting()
}

// gone removes the process.
func (f *fork) gone() {
	f.over, f.running = true, false
	f.turn++
	delete(f.k.forks, f.ref.GetLeaseId())
	f.k.w.invariants.unclaim(f)
}

// scripted does steps up to one and reports a value of a metric there, as ordered by a script. At its target it waits.
func (f *fork) scripted(step int64, metric string, value float64) {
	f.passed(float64(step))
	f.reports++
	f.reported, f.value = f.step, value
	f.k.w.invariants.reporting(f, f.step)
	f.k.say(f.message(&outbidv1.UplinkMessage{Kind: &outbidv1.UplinkMessage_Report{Report: &outbidv1.Report{
		Seq: f.reports, Step: step, Metrics: map[string]float64{metric: value},
	}}}))
	f.next()
}
