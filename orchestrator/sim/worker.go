package sim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/objects"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// worker is a simulated worker: it keeps to the same protocol as the real one, and trains by letting time pass.
type worker struct {
	w       *World
	name    string
	boots   int
	devices []*outbidv1.Device
	up      bool

	forks      map[uint64]*fork
	unacked    []*outbidv1.UplinkMessage
	firstSeq   uint64
	generation uint64
	term       uint64
	leaseEnd   time.Time
	knows      bool // the orchestrator knows this boot
}

// fork is a simulated training process.
type fork struct {
	ref      *outbidv1.ForkRef
	version  uint64
	verdict  outbidv1.Verdict
	until    int64
	body     *outbidv1.AssignmentBody
	step     int64
	saved    int64
	started  bool
	waiting  bool
	reports  uint64
	metric   float64
	finished bool
	// measures is the name of what it reports; the sweep's metric if empty.
	measures string
}

// follows says that it is the part of a gang that rank 0 is not in: it holds its devices, and rank 0 speaks for it.
func (f *fork) follows() bool { return f.body.GetGang().GetPlace() > 0 }

func (k *worker) boot() string { return fmt.Sprintf("%s-boot-%d", k.name, k.boots) }

// start begins a new boot: whatever ran before is gone.
func (k *worker) start() {
	k.boots++
	k.up, k.knows, k.generation = true, false, 0
	k.forks, k.unacked, k.firstSeq = map[uint64]*fork{}, nil, 1
	k.leaseEnd = k.w.clock.now.Add(k.w.set.Lease)
	k.beat(k.boots)
}

// crash ends the worker and its processes at once.
func (k *worker) crash() { k.up = false }

// beat sends a heartbeat each second, and ends forks whose lease has run out.
func (k *worker) beat(boot int) {
	if !k.up || boot != k.boots {
		return
	}
	if k.w.clock.now.After(k.leaseEnd) {
		for _, epoch := range slices.Sorted(maps.Keys(k.forks)) {
			f := k.forks[epoch]
			k.end(f, &outbidv1.ForkEnded{Outcome: outbidv1.ForkOutcome_FORK_OUTCOME_EXPIRED, Step: f.step})
		}
	}
	k.send()
	k.w.clock.after(time.Second, func() { k.beat(boot) })
}

// send sends everything that is not acknowledged.
func (k *worker) send() {
	up := &outbidv1.Uplink{Node: k.name, Boot: k.boot(), FirstSeq: k.firstSeq, Messages: slices.Clone(k.unacked)}
	if !k.knows {
		up.Info = &outbidv1.NodeInfo{Name: k.name, Boot: k.boot(), Devices: k.devices}
	}
	for _, epoch := range slices.Sorted(maps.Keys(k.forks)) {
		f := k.forks[epoch]
		up.Forks = append(up.Forks, &outbidv1.ForkStatus{Fork: f.ref, Version: f.version})
	}
	k.w.toOrchestrator(up)
}

func (k *worker) say(m *outbidv1.UplinkMessage) {
	k.unacked = append(k.unacked, m)
}

// orders takes in what the orchestrator wants.
func (k *worker) orders(o *outbidv1.Orders) {
	older := o.GetTerm() < k.term || o.GetTerm() == k.term && o.GetGeneration() <= k.generation
	if !k.up || o.GetBoot() != k.boot() || older {
		return
	}
	k.term, k.generation = o.GetTerm(), o.GetGeneration()
	k.leaseEnd = k.w.clock.now.Add(o.GetLease().AsDuration())
	if k.knows = !o.GetHello(); !k.knows {
		k.send()
		return
	}
	if o.GetAckedSeq() >= k.firstSeq {
		k.unacked = k.unacked[o.GetAckedSeq()-k.firstSeq+1:]
		k.firstSeq = o.GetAckedSeq() + 1
	}
	wanted := map[uint64]bool{}
	for _, a := range o.GetAssignments() {
		wanted[a.GetFork().GetLeaseId()] = true
		k.assign(a)
	}
	for _, epoch := range slices.Sorted(maps.Keys(k.forks)) {
		if !wanted[epoch] {
			delete(k.forks, epoch)
		}
	}
	k.startWaiting()
}

func (k *worker) assign(a *outbidv1.Assignment) {
	f := k.forks[a.GetFork().GetLeaseId()]
	if f == nil {
		if a.GetBody() == nil || k.over(a.GetFork().GetLeaseId()) {
			return
		}
		f = &fork{ref: a.GetFork(), body: a.GetBody()}
		k.forks[a.GetFork().GetLeaseId()] = f
	}
	if a.GetVersion() <= f.version {
		return
	}
	f.version, f.verdict, f.until = a.GetVersion(), a.GetVerdict(), a.GetUntilStep()
	switch {
	case f.verdict != outbidv1.Verdict_VERDICT_TRAIN:
		k.obey(f)
	case f.follows():
	case f.waiting && (f.until == 0 || f.step < f.until):
		f.waiting = false
		k.train(f)
	}
}

// over says whether the end of a fork is still to be acknowledged: it must not start a second time.
func (k *worker) over(epoch uint64) bool {
	return slices.ContainsFunc(k.unacked, func(m *outbidv1.UplinkMessage) bool {
		return m.GetEnded() != nil && m.GetFork().GetLeaseId() == epoch
	})
}

// startWaiting starts forks whose devices are free: an ending fork keeps its own until it is gone.
func (k *worker) startWaiting() {
	for _, epoch := range slices.Sorted(maps.Keys(k.forks)) {
		f := k.forks[epoch]
		if f.started || f.finished || k.taken(f) {
			continue
		}
		f.started = true
		k.w.claim(k, f)
		if c := f.body.GetStart(); c != nil {
			f.step = c.GetStep()
		}
		if f.follows() {
			continue
		}
		k.say(&outbidv1.UplinkMessage{Fork: f.ref, Kind: &outbidv1.UplinkMessage_Began{Began: &outbidv1.ForkBegan{FromStep: f.step}}})
		k.train(f)
	}
}

func (k *worker) taken(f *fork) bool {
	for _, o := range k.forks {
		if o == f || !o.started || o.finished {
			continue
		}
		for _, d := range o.body.GetDevices() {
			if slices.Contains(f.body.GetDevices(), d) {
				return true
			}
		}
	}
	return false
}

// train does the next step after a while.
func (k *worker) train(f *fork) {
	if f.until > 0 && f.step >= f.until {
		k.reach(f)
		return
	}
	if k.w.cfg.StepTime == 0 {
		return // a script says what happens
	}
	boot := k.boots
	k.w.clock.after(k.w.stepTime(k, f), func() {
		if !k.up || boot != k.boots || k.forks[f.ref.GetLeaseId()] != f || f.finished {
			return
		}
		if f.verdict != outbidv1.Verdict_VERDICT_TRAIN {
			return
		}
		k.step(f)
	})
}

func (k *worker) step(f *fork) {
	f.step++
	if name := k.w.cfg.Faults.Deadly; name != "" && f.step == 3 && strings.HasPrefix(f.ref.GetSweep(), name+"-") {
		k.w.killed++
		k.w.disown(k)
		k.crash()
		k.w.clock.after(5*time.Second, k.start)
		return
	}
	if k.w.failsNow() {
		k.end(f, &outbidv1.ForkEnded{
			Outcome: outbidv1.ForkOutcome_FORK_OUTCOME_FAILED, Failure: outbidv1.FailureKind_FAILURE_KIND_ERROR,
			Detail: fmt.Sprintf("simulated failure of lease %d", f.ref.GetLeaseId()), Step: f.step,
		})
		k.send()
		return
	}
	k.report(f, k.w.metric(f.body.GetConfigJson(), f.step))
	k.train(f)
	k.send()
}

// report says what was measured after a step.
func (k *worker) report(f *fork, metric float64) {
	f.reports++
	f.metric = metric
	k.say(&outbidv1.UplinkMessage{Fork: f.ref, Kind: &outbidv1.UplinkMessage_Report{Report: &outbidv1.Report{
		Seq: f.reports, Step: f.step, Metrics: map[string]float64{cmp.Or(f.measures, f.body.GetMetric()): metric},
	}}})
	k.w.trained++
}

// reach saves and waits for word.
func (k *worker) reach(f *fork) {
	f.waiting = true
	k.save(f)
	k.say(&outbidv1.UplinkMessage{Fork: f.ref, Kind: &outbidv1.UplinkMessage_Reached{Reached: &outbidv1.ForkReached{Step: f.step}}})
}

func (k *worker) save(f *fork) {
	if f.saved == f.step || f.step == 0 || f.follows() {
		return
	}
	f.saved = f.step
	metric := f.metric
	k.say(&outbidv1.UplinkMessage{Fork: f.ref, Kind: &outbidv1.UplinkMessage_Saved{Saved: &outbidv1.Checkpoint{
		Key:  objects.CheckpointKey(f.ref.GetSweep(), f.ref.GetTrial(), f.step, f.ref.GetLeaseId(), "ckpt"),
		Step: f.step, Bytes: 1, Metric: &metric,
	}}})
}

// obey pauses or stops a fork after a moment.
func (k *worker) obey(f *fork) {
	boot := k.boots
	k.w.clock.after(k.w.stopTime(), func() {
		if !k.up || boot != k.boots || k.forks[f.ref.GetLeaseId()] != f || f.finished {
			return
		}
		if f.verdict == outbidv1.Verdict_VERDICT_PAUSE && f.started {
			k.save(f)
		}
		k.end(f, &outbidv1.ForkEnded{Outcome: outbidv1.ForkOutcome_FORK_OUTCOME_ORDERED, Step: f.step})
		k.send()
	})
}

func (k *worker) end(f *fork, how *outbidv1.ForkEnded) {
	if f.finished {
		return
	}
	f.finished = true
	delete(k.forks, f.ref.GetLeaseId())
	k.w.release(k, f)
	k.say(&outbidv1.UplinkMessage{Fork: f.ref, Kind: &outbidv1.UplinkMessage_Ended{Ended: how}})
	k.startWaiting()
}
