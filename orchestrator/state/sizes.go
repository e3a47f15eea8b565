package state

import (
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// ReportSize returns how many bytes a report counts against its sweep's limit. It must depend only on the report, in
// every version. It is close to the size in the ledger.
func ReportSize(r *outbidv1.Report) int64 {
	const each, metric, attribute = 48, 14, 6
	n := each
	for name := range r.GetMetrics() {
		n += metric + len(name)
	}
	for name, value := range r.GetAttributes() {
		n += attribute + len(name) + len(value)
	}
	return int64(n)
}

// checkpointBytes returns the size of the checkpoints of the event's trial, with shards of incomplete ones. It is 0 for reports, which are the most
// frequent events and change no checkpoints.
func (f *foldContext) checkpointBytes() int64 {
	if f.trial == nil || f.kind.Readers == ReadersReport {
		return 0
	}
	return f.trial.checkpointBytes()
}

func (t *Trial) checkpointBytes() int64 {
	n := int64(0)
	for _, c := range t.Checkpoints {
		n += CheckpointSize(c)
	}
	for _, l := range t.Leases {
		for _, s := range l.Shards {
			n += s.GetShard().GetBytes()
		}
	}
	return n
}

// CheckpointSize returns the size of all objects of a checkpoint.
func CheckpointSize(c *outbidv1.Checkpoint) int64 {
	return c.GetBytes() + c.GetShardBytes() + c.GetOuter().GetBytes()
}

// CheckpointBytes returns the size of the checkpoints of a tenant's sweeps in the store.
func (p *Published) CheckpointBytes(tenant string) int64 {
	n := int64(0)
	for _, id := range p.SweepIDs {
		if s, err := p.Sweep(id); err == nil && TenantOf(s.Sweep().Spec) == tenant {
			n += s.Sweep().CheckpointBytes
		}
	}
	return n
}
