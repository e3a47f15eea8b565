package policy

import (
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
)

// Misses remembers which demands found no place in a plan, so that whoever asks for as much or more need not search. It
// holds as long as the plan only takes.
type Misses struct{ failed []cluster.Demand }

// remembered bounds the demands of which Misses knows.
const remembered = 16

// Covers says whether a demand is known to find no place.
func (m *Misses) Covers(d cluster.Demand) bool {
	return slices.ContainsFunc(m.failed, func(f cluster.Demand) bool { return asksAsMuch(d, f) })
}

// Add remembers a demand that found no place, in the stead of those it covers.
func (m *Misses) Add(d cluster.Demand) {
	m.failed = slices.DeleteFunc(m.failed, func(f cluster.Demand) bool { return asksAsMuch(f, d) })
	if len(m.failed) < remembered {
		m.failed = append(m.failed, d)
	}
}

// Forget starts over, after something was given back.
func (m *Misses) Forget() { m.failed = m.failed[:0] }

// asksAsMuch says whether a demand finds no place where another found none.
func asksAsMuch(d, failed cluster.Demand) bool {
	return d.Min >= failed.Min && d.CPUs >= failed.CPUs && d.Memory >= failed.Memory &&
		(d.NeedsTrust || !failed.NeedsTrust) && (failed.Spread || !d.Spread) && (failed.Mixed || !d.Mixed) &&
		slices.Equal(d.Types, failed.Types) && slices.Equal(d.Exclude, failed.Exclude)
}
