package sim

import (
	"fmt"
	"maps"
	"math"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// ForkCosts are the costs of fork slots in addition to training.
type ForkCosts struct {
	// Upload is the time that a fork takes to save at the end of its share or of the slot, while it holds its device.
	Upload time.Duration `yaml:"upload"`
	// Average is the time that a worker takes to average, and Each the additional time for each checkpoint.
	Average time.Duration `yaml:"average"`
	Each    time.Duration `yaml:"each"`
}

// upload returns the time that a fork takes to save before its lease ends.
func (f *fork) upload() time.Duration {
	if !f.part {
		return 0 // included in the time of a restart
	}
	return f.k.w.set.Forks.Upload
}

// uploadsAt returns upload for a fork that is ordered to end with a verdict.
func (f *fork) uploadsAt(v outbidv1.Verdict) time.Duration {
	if v != outbidv1.Verdict_VERDICT_PAUSE {
		return 0
	}
	return f.upload()
}

// keepPart returns the message that a fork of a fork slot saved when its code ended, or nil for any other fork.
func (f *fork) keepPart() *outbidv1.UplinkMessage {
	if !f.part {
		return nil
	}
	return f.keep(f.step)
}

// averaging identifies an average that a worker is ordered to make.
type averaging struct {
	lease   uint64
	attempt int32
}

// consolidate starts the averages in orders and drops those that they no longer name.
func (k *worker) consolidate(orders []*outbidv1.Consolidation) {
	wanted := map[averaging]bool{}
	for _, o := range orders {
		name := averaging{o.GetFork().GetLeaseId(), o.GetAttempt()}
		wanted[name] = true
		if k.averages[name] {
			continue
		}
		k.averages[name] = true
		costs, boot := k.w.set.Forks, k.boots
		k.w.clock.after(costs.Average+time.Duration(len(o.GetSources()))*costs.Each, func() {
			if k.up && k.boots == boot && k.averages[name] {
				k.say(&outbidv1.UplinkMessage{Fork: o.GetFork(), Kind: &outbidv1.UplinkMessage_Consolidated{Consolidated: k.w.average(o)}})
			}
		})
	}
	maps.DeleteFunc(k.averages, func(name averaging, _ bool) bool { return !wanted[name] })
}

// average makes one average, if all its checkpoints are in the store.
func (w *World) average(o *outbidv1.Consolidation) *outbidv1.Consolidated {
	done := &outbidv1.Consolidated{Attempt: o.GetAttempt()}
	for _, s := range o.GetSources() {
		if at, stored := w.exact[s.GetCheckpoint().GetKey()]; !stored || int64(math.Floor(at)) != s.GetCheckpoint().GetStep() {
			done.Failure = fmt.Sprintf("%s is not in the store", s.GetCheckpoint().GetKey())
			return done
		}
	}
	if chance := w.set.Mishaps.AverageFails; chance > 0 && w.rng.Float64() < chance {
		done.Failure, done.Mismatch = "the disk is full", w.rng.IntN(4) == 0
		w.invariants.slots.recordFailure(o)
		return done
	}
	w.exact[o.GetKey()] = float64(o.GetStep())
	w.invariants.slots.averages[o.GetKey()] = o
	done.Checkpoint = &outbidv1.Checkpoint{Key: o.GetKey(), Step: o.GetStep(), Bytes: 1}
	return done
}
