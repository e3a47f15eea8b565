package sim

import (
	"fmt"
	"slices"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// claim and unclaim record a process's use of devices.
func (v *invariants) claim(f *fork) error {
	lease := f.ref.GetLeaseId()
	for _, d := range f.devices {
		key := deviceKey{f.k.node.Name, d}
		if v.owner[key] != lease {
			return fmt.Errorf("a process of lease %d starts on device %d of %s, which lease %d holds", lease, d, key.node, v.owner[key])
		}
		if other, used := v.runs[key]; used {
			return fmt.Errorf("a process of lease %d starts on device %d of %s, which a process of lease %d uses", lease, d, key.node, other)
		}
		v.runs[key] = lease
	}
	all := v.trains[f.key]
	for _, p := range all {
		if p.lease != lease && !slices.Contains(v.holds[f.key], p.lease) {
			return fmt.Errorf("trial %d of %s trains under lease %d while a process of its lease %d runs", f.key.trial, f.key.sweep, lease, p.lease)
		}
	}
	i := slices.IndexFunc(all, func(p processes) bool { return p.lease == lease })
	if i < 0 {
		i, all = len(all), append(all, processes{lease: lease})
	}
	all[i].n++
	v.trains[f.key] = all
	return nil
}

func (v *invariants) unclaim(f *fork) {
	if !f.claimed {
		return
	}
	for _, d := range f.devices {
		if key := (deviceKey{f.k.node.Name, d}); v.runs[key] == f.ref.GetLeaseId() {
			delete(v.runs, key)
		}
	}
	all := v.trains[f.key]
	i := slices.IndexFunc(all, func(p processes) bool { return p.lease == f.ref.GetLeaseId() })
	if all[i].n--; all[i].n == 0 {
		all = slices.Delete(all, i, i+1)
	}
	if v.trains[f.key] = all; len(all) == 0 {
		delete(v.trains, f.key)
	}
}

// reporting records a process's report before the orchestrator receives it.
func (v *invariants) reporting(f *fork, step float64) {
	if l := v.leases[f.ref.GetLeaseId()]; l != nil {
		l.said = append(l.said, int64(step))
	}
}

// saving records the steps that a fork trained since its last save, before the orchestrator receives the checkpoint.
// finishing records the steps that it trained until its code ended.
func (v *invariants) saving(checkpoint string, steps float64) {
	v.steps.addUnconfirmed(checkpoint, steps)
}

func (v *invariants) finishing(f *fork, steps float64) {
	if l := v.leases[f.ref.GetLeaseId()]; l != nil && !l.stale && !f.part {
		v.steps.finishing[f.ref.GetLeaseId()] = steps
	}
}

// end checks, once every app has ended, that no devices are held and that all steps were trained.
func (v *invariants) end() error {
	if len(v.owner) > 0 || len(v.runs) > 0 {
		return fmt.Errorf("every app has ended, but %d devices are leased and %d used", len(v.owner), len(v.runs))
	}
	for key := range v.steps.done {
		t := v.w.core.State().Sweeps[key.sweep].Trials[key.trial]
		steps := 0.0
		if job := v.w.apps[key.sweep].job(key.trial); job != nil {
			steps = float64(job.Steps)
		}
		if err := v.steps.checkEnd(key, t, steps); err != nil {
			return err
		}
	}
	return nil
}

// overdue is the maximum time from the revocation of a lease to its end while its nodes receive orders. It covers the
// end of a process and lost messages.
const overdue = 3 * time.Minute

// waits checks that revoked leases end, and that a worker that receives nothing stops training. A node whose uplinks
// arrive is not lost, even if its orders do not. A lease that it never received ends when orders arrive again, however
// long that takes; until then the devices stay reserved, because orders may still be under way.
func (v *invariants) waits() error {
	for lease, l := range v.leases {
		switch late := v.w.clock.now.Sub(l.revokedAt); {
		case !l.revoked:
		case slices.ContainsFunc(l.places, func(p *outbidv1.LeasePlace) bool { return v.w.workers[p.GetNode()].deaf() }):
			l.revokedAt = v.w.clock.now
		case late > overdue:
			return fmt.Errorf("lease %d of trial %d of %s was revoked %s ago and has not ended, although its nodes receive orders", lease, l.key.trial,
				l.key.sweep, late)
		}
	}
	for name, k := range v.w.workers {
		if k.deaf() && len(k.forks) > 0 && v.w.clock.now.Sub(k.leaseEnd) > 2*time.Second {
			return fmt.Errorf("node %s received nothing since its lease ended %s ago, but still trains under leases %d", name,
				v.w.clock.now.Sub(k.leaseEnd), k.leaseIDs())
		}
	}
	return nil
}
