package gang

import (
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// member is one process of a group, and receives its events. Only those of rank 0 and
// shards are passed on.
type member struct {
	group *Group
	local int
	// gone is closed once the process has ended its trial.
	gone chan struct{}

	// The following fields are guarded by the group's lock.
	process Process
	ended   bool
}

// leads reports whether this is rank 0.
func (m *member) leads() bool { return m.group.rank(m.local) == 0 }

// Reports implements session.Trial.
func (m *member) Reports(reports []*outbidv1.Report) {
	if m.leads() {
		m.group.cfg.Trial.Reports(reports)
	}
}

// LastReports implements session.Trial. The end may come much later than these reports, so they are not delayed.
func (m *member) LastReports(reports []*outbidv1.Report) { m.Reports(reports) }

// Saved implements session.Trial. A shard belongs to the rank of the process that saved it.
func (m *member) Saved(saved *outbidv1.ProcessSaved) {
	if saved.GetShard() != nil {
		saved.Shard.Rank = int32(m.group.rank(m.local))
	}
	if saved.GetShard() != nil || m.leads() {
		m.group.cfg.Trial.Saved(saved)
	}
}

// Began implements session.Trial.
func (m *member) Began() {
	if m.leads() {
		m.group.cfg.Trial.Began()
	}
}

// Waiting implements session.Trial.
func (m *member) Waiting() {
	if m.leads() {
		m.group.cfg.Trial.Waiting()
	}
}

// Reached implements session.Trial.
func (m *member) Reached(step int64) {
	if m.leads() {
		m.group.cfg.Trial.Reached(step)
	}
}

// Ended implements session.Trial.
func (m *member) Ended(e *outbidv1.ForkEnded) { m.group.memberEnded(m, e) }

// Note implements session.Trial.
func (m *member) Note(text string) { m.group.cfg.Trial.Note(text) }
