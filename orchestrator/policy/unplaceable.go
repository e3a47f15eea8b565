package policy

import (
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
)

// Unplaceable remembers which demands found no place in a plan, so that whoever asks for as much or more need not search.
// It holds as long as the plan only takes.
type Unplaceable struct{ failed []cluster.Demand }

// remembered bounds the demands of which Unplaceable knows.
const remembered = 16

// Covers says whether a demand is known to find no place.
func (u *Unplaceable) Covers(d cluster.Demand) bool {
	return slices.ContainsFunc(u.failed, func(f cluster.Demand) bool { return asksAsMuch(d, f) })
}

// Add remembers a demand that found no place, in the stead of those it covers.
func (u *Unplaceable) Add(d cluster.Demand) {
	u.failed = slices.DeleteFunc(u.failed, func(f cluster.Demand) bool { return asksAsMuch(f, d) })
	if len(u.failed) < remembered {
		u.failed = append(u.failed, d)
	}
}

// Forget starts over, after something was released.
func (u *Unplaceable) Forget() { u.failed = u.failed[:0] }

// asksAsMuch says whether a demand finds no place where another found none.
func asksAsMuch(d, failed cluster.Demand) bool {
	return (failed.Quota == 0 || failed.Quota == d.Quota) && d.Min >= failed.Min && d.CPUs >= failed.CPUs && d.Memory >= failed.Memory &&
		(d.NeedsTrust || !failed.NeedsTrust) && (failed.MultiNode || !d.MultiNode) && (failed.Mixed || !d.Mixed) &&
		slices.Equal(d.Types, failed.Types) && slices.Equal(d.Exclude, failed.Exclude)
}
