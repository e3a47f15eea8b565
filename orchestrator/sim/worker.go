package sim

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// worker is a simulated worker, which uses the same protocol as a real one. With a perfect transport it omits what is
// then unnecessary: heartbeats, repeating unacknowledged messages, and the end of its lease.
type worker struct {
	w     *World
	node  cluster.Node
	boots int
	up    bool
	forks map[uint64]*fork
	// averages are those that it makes or has made, as long as they are ordered.
	averages map[averaging]bool

	// unacked are the messages that may not be in the ledger yet; first is the number of the first one.
	unacked []*outbidv1.UplinkMessage
	first   uint64
	// term and generation are those of the newest orders; leaseEnd is the time until which they allow it to continue.
	term, generation uint64
	leaseEnd         time.Time
	// known is set once the orchestrator knows this boot.
	known bool
}

func (k *worker) careful() bool { return !k.w.set.Transport.Perfect() }

// deaf reports whether it is up and has received nothing for the duration of its lease.
func (k *worker) deaf() bool { return k.careful() && k.up && k.w.clock.now.After(k.leaseEnd) }

func (k *worker) bootName() string { return "boot-" + strconv.Itoa(k.boots) }

// boot joins the cluster, without anything that ran before.
func (k *worker) boot() {
	k.boots++
	k.up, k.known, k.generation = true, false, 0
	k.forks, k.averages, k.unacked, k.first = map[uint64]*fork{}, map[averaging]bool{}, nil, 1
	k.leaseEnd = k.w.clock.now.Add(k.w.set.Control.Lease)
	k.fails()
	if k.careful() {
		k.beat(k.boots)
		return
	}
	k.send(nil)
	k.known = true
}

// fails schedules a failure of the node, if nodes fail.
func (k *worker) fails() {
	mean := k.w.set.Mishaps.NodeFails
	if mean <= 0 {
		return
	}
	boot := k.boots
	k.w.clock.after(exponential(k.w.rng, mean), func() {
		if k.up && k.boots == boot {
			k.crash()
			k.w.clock.after(exponential(k.w.rng, max(k.w.set.Mishaps.NodeBack, time.Second)), k.boot)
		}
	})
}

// info describes its node.
func (k *worker) info() *outbidv1.NodeInfo {
	info := &outbidv1.NodeInfo{
		Name: k.node.Name, Boot: k.bootName(), Cpus: k.node.CPUs, MemoryBytes: k.node.Memory, Hostname: k.node.Name,
	}
	if k.node.Rack != "" {
		info.Labels = map[string]string{"rack": k.node.Rack}
	}
	for i, d := range k.node.Devices {
		info.Devices = append(info.Devices, &outbidv1.Device{Index: int32(i), Type: d.Type, Numa: int32(d.Slot), Speed: d.Speed})
	}
	for _, l := range k.node.Links {
		info.Links = append(info.Links, &outbidv1.DeviceLink{A: int32(l.A), B: int32(l.B), Kind: "nvlink", Lanes: int32(l.Rank)})
	}
	return info
}

// beat sends a heartbeat each second, and ends forks when the lease has run out.
func (k *worker) beat(boot int) {
	if !k.up || boot != k.boots {
		return
	}
	if k.deaf() {
		for _, leaseID := range k.leaseIDs() {
			k.forks[leaseID].expire()
		}
	}
	k.send(nil)
	k.w.clock.after(time.Second, func() { k.beat(boot) })
}

// leaseIDs returns the leases of its forks, sorted.
func (k *worker) leaseIDs() []uint64 { return slices.Sorted(maps.Keys(k.forks)) }

// say sends messages, and keeps them until they are known to be in the ledger.
func (k *worker) say(messages ...*outbidv1.UplinkMessage) {
	if k.careful() {
		k.unacked = append(k.unacked, messages...)
		k.send(k.unacked)
		return
	}
	k.send(messages)
	k.first += uint64(len(messages))
}

// send sends an uplink with messages, or with the unacknowledged ones for nil.
func (k *worker) send(messages []*outbidv1.UplinkMessage) {
	if messages == nil {
		messages = k.unacked
	}
	if k.careful() {
		messages = slices.Clone(messages) // unacked changes while the uplink is under way
	}
	k.w.up(k.uplink(messages))
}

func (k *worker) uplink(messages []*outbidv1.UplinkMessage) *outbidv1.Uplink {
	up := &outbidv1.Uplink{Node: k.node.Name, Boot: k.bootName(), FirstSeq: k.first, Messages: messages}
	if !k.known {
		up.Info = k.info()
	}
	up.Forks = make([]*outbidv1.ForkStatus, 0, len(k.forks))
	for _, f := range k.forks { // the order does not matter, because the core makes a map of them
		up.Forks = append(up.Forks, &outbidv1.ForkStatus{Fork: f.ref, Version: f.version})
	}
	return up
}

// crash stops the node and its processes. Earlier saves are not lost if the orchestrator received them.
func (k *worker) crash() {
	if k.careful() {
		for _, leaseID := range k.leaseIDs() {
			k.forks[leaseID].gone()
		}
		k.up = false
		return
	}
	k.leave()
}

// leave stops the node in an orderly way until it boots again.
func (k *worker) leave() {
	if !k.up {
		return
	}
	var last []*outbidv1.UplinkMessage
	for _, leaseID := range k.leaseIDs() {
		f := k.forks[leaseID]
		f.advance()
		if save := f.keep(f.saved); save != nil {
			last = append(last, save)
		}
		f.gone()
	}
	k.up = false
	up := k.uplink(append(k.unacked, last...))
	up.Forks, up.Leaving = nil, true
	k.w.up(up)
}

// obey handles orders.
func (k *worker) obey(o *outbidv1.Orders) {
	if !k.up || o.GetBoot() != k.bootName() {
		return
	}
	if k.careful() && !k.heed(o) {
		return
	}
	for _, a := range o.GetAssignments() {
		k.assign(a)
	}
	if k.careful() {
		k.endUnwanted(o)
	}
	k.consolidate(o.GetConsolidations())
}

// heed handles everything in orders except the assignments, and reports whether the assignments apply.
func (k *worker) heed(o *outbidv1.Orders) bool {
	if o.GetTerm() < k.term || o.GetTerm() == k.term && o.GetGeneration() <= k.generation {
		return false
	}
	k.term, k.generation = o.GetTerm(), o.GetGeneration()
	k.leaseEnd = k.w.clock.now.Add(o.GetLease().AsDuration())
	if k.known = !o.GetHello(); !k.known {
		k.send(nil)
		return false
	}
	if o.GetLease().AsDuration() <= 0 {
		return false // it would have to end immediately whatever it started
	}
	if o.GetAckedSeq() >= k.first {
		k.unacked = k.unacked[o.GetAckedSeq()-k.first+1:]
		k.first = o.GetAckedSeq() + 1
	}
	return true
}

// endUnwanted ends the forks that orders no longer name.
func (k *worker) endUnwanted(o *outbidv1.Orders) {
	wanted := map[uint64]bool{}
	for _, a := range o.GetAssignments() {
		wanted[a.GetFork().GetLeaseId()] = true
	}
	for _, leaseID := range k.leaseIDs() {
		if f := k.forks[leaseID]; !wanted[leaseID] {
			f.told(outbidv1.Verdict_VERDICT_STOP)
		}
	}
}

func (k *worker) assign(a *outbidv1.Assignment) {
	leaseID := a.GetFork().GetLeaseId()
	f := k.forks[leaseID]
	switch {
	case f != nil && a.GetVersion() <= f.version:
	case f != nil:
		f.version, f.until = a.GetVersion(), a.GetUntilStep()
		f.told(a.GetVerdict())
	case a.GetBody() == nil || k.ending(leaseID):
	case a.GetVerdict() != outbidv1.Verdict_VERDICT_TRAIN:
		// Revoked before the worker received it: only the place has to end.
		f = &fork{k: k, ref: a.GetFork(), version: a.GetVersion(), place: int(a.GetBody().GetGang().GetPlace())}
		k.forks[leaseID] = f
		f.end(outbidv1.ForkOutcome_FORK_OUTCOME_ORDERED)
	default:
		k.start(a)
	}
}

// ending reports whether the end of a fork is unacknowledged, so that it must not start a second time.
func (k *worker) ending(leaseID uint64) bool {
	return slices.ContainsFunc(k.unacked, func(m *outbidv1.UplinkMessage) bool {
		return m.GetEnded() != nil && m.GetFork().GetLeaseId() == leaseID
	})
}
