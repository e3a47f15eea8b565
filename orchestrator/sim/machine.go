package sim

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/objects"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// machine is a simulated worker that keeps to the real protocol over a wire that loses nothing and takes no time. It
// trains by working out when something will next be seen, so that an undisturbed job costs a handful of messages however
// long it runs.
type machine struct {
	r     *run
	node  *cluster.Node
	boots int
	up    bool
	seq   uint64
	forks map[uint64]*training
}

// training is a fork on its machine. Of a gang over several machines the one in place 0 trains, the others hold devices.
type training struct {
	m       *machine
	ref     *outbidv1.ForkRef
	key     trialKey
	place   int
	version uint64
	until   int64
	job     *Job
	gang    cluster.Gang
	rate    float64
	// from is where it started and step how far it was at since; it trains while running is true.
	from, step float64
	since      time.Time
	running    bool
	// savedAt is when it last saved of its own accord, at the step saved.
	savedAt time.Time
	saved   float64
	over    bool
	// turn numbers what was planned: an older plan is void.
	turn    int
	reports uint64
}

func (r *run) addMachine(n *cluster.Node) {
	m := &machine{r: r, node: n}
	r.machines[n.Name] = m
	if !slices.ContainsFunc(r.set.Stays, func(s Stay) bool { return s.Node == n.Name }) {
		r.clock.after(0, m.boot)
	}
	r.scribe.machine(n)
}

// boot joins the cluster.
func (m *machine) boot() {
	m.boots++
	m.up, m.seq, m.forks = true, 1, map[uint64]*training{}
	info := &outbidv1.NodeInfo{
		Name: m.node.Name, Boot: m.bootName(), Cpus: m.node.CPUs, MemoryBytes: m.node.Memory, Hostname: m.node.Name,
	}
	if m.node.Rack != "" {
		info.Labels = map[string]string{"rack": m.node.Rack}
	}
	for i, d := range m.node.Devices {
		info.Devices = append(info.Devices, &outbidv1.Device{Index: int32(i), Type: d.Type, Numa: int32(d.Slot), Speed: d.Speed})
	}
	for _, l := range m.node.Links {
		info.Links = append(info.Links, &outbidv1.DeviceLink{A: int32(l.A), B: int32(l.B), Kind: "nvlink", Lanes: int32(l.Rank)})
	}
	m.r.pending = append(m.r.pending, control.Uplink{Message: &outbidv1.Uplink{Node: m.node.Name, Boot: info.GetBoot(), Info: info}})
	if mean := m.r.set.Mishaps.NodeFails; mean > 0 {
		boot := m.boots
		m.r.clock.after(m.r.draw(mean), func() {
			if m.boots == boot && m.up {
				m.crash()
			}
		})
	}
}

func (m *machine) bootName() string { return "boot-" + strconv.Itoa(m.boots) }

// draw is an exponentially distributed time, at least a second.
func (r *run) draw(mean time.Duration) time.Duration {
	return time.Second + time.Duration(r.rng.ExpFloat64()*float64(mean))
}

// crash ends the machine and all that ran on it. What its jobs had saved before is not lost.
func (m *machine) crash() {
	m.leave()
	m.r.clock.after(m.r.draw(max(m.r.set.Mishaps.NodeBack, time.Second)), m.boot)
}

// leave ends the machine until it boots again.
func (m *machine) leave() {
	if !m.up {
		return
	}
	var last []*outbidv1.UplinkMessage
	for _, epoch := range slices.Sorted(maps.Keys(m.forks)) {
		t := m.forks[epoch]
		t.advance()
		if save := t.keep(t.saved); save != nil {
			last = append(last, save)
		}
		t.stop()
	}
	m.up = false
	m.r.pending = append(m.r.pending, control.Uplink{Message: &outbidv1.Uplink{
		Node: m.node.Name, Boot: m.bootName(), FirstSeq: m.seq, Messages: last, Leaving: true,
	}})
}

// say sends messages.
func (m *machine) say(messages ...*outbidv1.UplinkMessage) {
	up := &outbidv1.Uplink{Node: m.node.Name, Boot: m.bootName(), FirstSeq: m.seq, Messages: messages}
	m.seq += uint64(len(messages))
	up.Forks = make([]*outbidv1.ForkStatus, 0, len(m.forks))
	for _, t := range m.forks { // the core makes a map of them
		up.Forks = append(up.Forks, &outbidv1.ForkStatus{Fork: t.ref, Version: t.version})
	}
	m.r.pending = append(m.r.pending, control.Uplink{Message: up})
}

// obey takes in what the orchestrator wants.
func (m *machine) obey(o *outbidv1.Orders) {
	if !m.up || o.GetBoot() != m.bootName() {
		return
	}
	for _, a := range o.GetAssignments() {
		t := m.forks[a.GetFork().GetLeaseId()]
		switch {
		case t == nil && a.GetBody() != nil && a.GetVerdict() == outbidv1.Verdict_VERDICT_TRAIN:
			m.start(a)
		case t == nil && a.GetBody() != nil:
			// Revoked before it was heard of: there is nothing to end but its place.
			t = &training{m: m, ref: a.GetFork(), version: a.GetVersion(), over: true}
			m.forks[a.GetFork().GetLeaseId()] = t
			t.end(outbidv1.ForkOutcome_FORK_OUTCOME_ORDERED)
		case t == nil || t.over || a.GetVersion() <= t.version:
		default:
			t.version, t.until = a.GetVersion(), a.GetUntilStep()
			t.told(a.GetVerdict())
		}
	}
}

func (m *machine) start(a *outbidv1.Assignment) {
	r := m.r
	key := trialKey{a.GetFork().GetSweep(), a.GetFork().GetTrial()}
	trial := r.core.State().Sweeps[key.sweep].Trials[key.trial]
	app := r.apps[key.sweep]
	t := &training{
		m: m, ref: a.GetFork(), key: key, version: a.GetVersion(), until: a.GetUntilStep(),
		job: &app.Jobs[min(int(key.trial), len(app.Jobs)-1)], place: int(a.GetBody().GetGang().GetPlace()),
	}
	m.forks[t.ref.GetLeaseId()] = t
	t.gang = r.gang(trial.Lease.Places)
	if err := r.guard.claim(t); err != nil {
		r.fail(err)
		return
	}
	if t.place > 0 {
		return
	}
	if t.rate = cluster.RateOf(r.set.Nodes, t.gang, t.job.Speeds); t.rate <= 0 {
		r.fail(fmt.Errorf("policy %s put trial %d of %s on %d devices of type %s, where it does not run", r.set.Policy.Name(),
			key.trial, key.sweep, t.gang.Size(), cluster.TypeOf(r.set.Nodes, t.gang)))
		return
	}
	if c := a.GetBody().GetStart(); c != nil {
		t.from = float64(c.GetStep())
		if exact, ok := r.exact[c.GetKey()]; ok {
			t.from = exact
		}
	}
	t.step, t.saved = t.from, t.from
	delay := time.Duration(0)
	if trial.Leases > 1 {
		delay = r.set.RestartDelay
	}
	t.plan(delay, t.begin)
}

// plan lets something happen after a while, unless something else is planned or told before.
func (t *training) plan(after time.Duration, do func()) {
	t.turn++
	turn := t.turn
	if after <= 0 {
		do()
		return
	}
	t.m.r.clock.after(after, func() {
		if t.turn == turn && !t.over && t.m.forks[t.ref.GetLeaseId()] == t {
			do()
		}
	})
}

func (t *training) begin() {
	r := t.m.r
	t.running, t.since, t.savedAt = true, r.clock.now, r.clock.now
	t.m.say(t.message(&outbidv1.UplinkMessage{Kind: &outbidv1.UplinkMessage_Began{Began: &outbidv1.ForkBegan{FromStep: int64(t.from)}}}))
	if mean := r.set.Mishaps.JobFails; mean > 0 {
		epoch := t.ref.GetLeaseId()
		r.clock.after(r.draw(mean), func() {
			if t.m.forks[epoch] == t && !t.over {
				t.crash()
			}
		})
	}
	t.next()
}

func (t *training) message(m *outbidv1.UplinkMessage) *outbidv1.UplinkMessage {
	m.Fork = t.ref
	return m
}

// target is the step at which something is to be said next: a report, the target, or the end of the code.
func (t *training) target() (step float64, end bool) {
	step, end = math.Inf(1), false
	if t.until > 0 {
		step = float64(t.until)
	}
	if t.job.Steps > 0 && float64(t.job.Steps) <= step {
		step, end = float64(t.job.Steps), true
	}
	return step, end
}

// next plans what will be seen next.
func (t *training) next() {
	step, end := t.target()
	do := t.reach
	if end {
		do = t.finish
	}
	every := t.job.Every
	if every == 0 && t.job.Reports > 0 {
		every = float64(t.job.Steps) / float64(t.job.Reports)
	}
	if t.job.Loss != nil && every > 0 {
		if at := (math.Floor(t.step/every+1e-9) + 1) * every; at < step-1e-9 {
			step, do = at, t.report
		}
	}
	if math.IsInf(step, 1) {
		return // nothing will be seen until it is told something
	}
	seconds := max(0, step-t.step) / t.rate
	t.plan(time.Duration(math.Ceil(seconds*1e9)), func() {
		t.passed(step)
		do()
	})
}

// advance works out how far training is.
func (t *training) advance() {
	if !t.running {
		return
	}
	now := t.m.r.clock.now
	step := t.step + t.rate*now.Sub(t.since).Seconds()
	if most, _ := t.target(); step > most {
		step = max(most, t.step)
	}
	t.passed(step)
}

// passed notes that training is at a step now, and what it saved on the way.
func (t *training) passed(step float64) {
	now := t.m.r.clock.now
	if every := t.m.r.set.SaveEvery; now.Sub(t.savedAt) >= every {
		t.savedAt = t.savedAt.Add(now.Sub(t.savedAt).Truncate(every))
		t.saved = max(t.saved, min(step, step-t.rate*now.Sub(t.savedAt).Seconds()))
	}
	t.step, t.since = step, now
}

// keep is the message that a step was saved; nil if that is no news.
func (t *training) keep(step float64) *outbidv1.UplinkMessage {
	if t.place > 0 || step <= t.from {
		return nil
	}
	t.m.r.guard.kept(t, step)
	key := objects.CheckpointKey(t.key.sweep, t.key.trial, int64(step), t.ref.GetLeaseId(), "ckpt")
	t.m.r.exact[key] = step
	t.from, t.saved = step, step
	return t.message(&outbidv1.UplinkMessage{Kind: &outbidv1.UplinkMessage_Saved{Saved: &outbidv1.Checkpoint{
		Key: key, Step: int64(step),
	}}})
}

func (t *training) report() {
	t.m.say(t.reportMessage())
	t.next()
}

func (t *training) reportMessage() *outbidv1.UplinkMessage {
	t.reports++
	return t.message(&outbidv1.UplinkMessage{Kind: &outbidv1.UplinkMessage_Report{Report: &outbidv1.Report{
		Seq: t.reports, Step: int64(t.step), Metrics: map[string]float64{Metric: t.job.Loss(t.step)},
	}}})
}

// reach: it did what it was to do, and waits for word.
func (t *training) reach() {
	t.running = false
	var said []*outbidv1.UplinkMessage
	if t.job.Loss != nil {
		said = append(said, t.reportMessage())
	}
	if save := t.keep(t.step); save != nil {
		said = append(said, save)
	}
	t.m.say(append(said, t.message(&outbidv1.UplinkMessage{Kind: &outbidv1.UplinkMessage_Reached{
		Reached: &outbidv1.ForkReached{Step: int64(t.step)},
	}}))...)
}

// finish: its code ended.
func (t *training) finish() {
	t.keep(t.step) // counts what it did; nobody needs the checkpoint
	if t.job.Loss != nil {
		t.m.say(t.reportMessage())
	}
	for _, p := range t.gang[1:] { // rank 0 is the last to leave
		if o := t.m.r.machines[t.m.r.set.Nodes[p.Node].Name].forks[t.ref.GetLeaseId()]; o != nil && !o.over {
			o.end(outbidv1.ForkOutcome_FORK_OUTCOME_FINISHED)
		}
	}
	t.end(outbidv1.ForkOutcome_FORK_OUTCOME_FINISHED)
}

// crash: its code failed.
func (t *training) crash() {
	t.advance()
	if save := t.keep(t.saved); save != nil {
		t.m.say(save)
	}
	t.end(outbidv1.ForkOutcome_FORK_OUTCOME_FAILED)
}

// told does what an assignment says now.
func (t *training) told(v outbidv1.Verdict) {
	switch v {
	case outbidv1.Verdict_VERDICT_TRAIN:
		if t.place == 0 {
			t.advance()
			t.running, t.since = true, t.m.r.clock.now
			t.next()
		}
		return
	case outbidv1.Verdict_VERDICT_PAUSE:
		t.advance()
		if save := t.keep(t.step); save != nil {
			t.m.say(save)
		}
	default:
		t.advance()
		if save := t.keep(t.saved); save != nil {
			t.m.say(save)
		}
	}
	t.end(outbidv1.ForkOutcome_FORK_OUTCOME_ORDERED)
}

// end frees the devices and says so.
func (t *training) end(how outbidv1.ForkOutcome) {
	t.stop()
	ended := &outbidv1.ForkEnded{Outcome: how, Step: int64(t.step)}
	if how == outbidv1.ForkOutcome_FORK_OUTCOME_FAILED {
		ended.Failure, ended.Detail = outbidv1.FailureKind_FAILURE_KIND_ERROR, fmt.Sprintf("exit code 1 of lease %d", t.ref.GetLeaseId())
	}
	t.m.say(t.message(&outbidv1.UplinkMessage{Kind: &outbidv1.UplinkMessage_Ended{Ended: ended}}))
}

func (t *training) stop() {
	t.over, t.running = true, false
	t.turn++
	delete(t.m.forks, t.ref.GetLeaseId())
	t.m.r.guard.unclaim(t)
}

// gang is what places are to policies.
func (r *run) gang(places []state.Place) cluster.Gang {
	return state.GangOf(places, func(p state.Place) (int, bool) { return r.places[p.Node], true })
}
