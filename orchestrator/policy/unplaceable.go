package policy

import (
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
)

// Unplaceable remembers demands for which a plan had no place, so that equal or larger demands need no search. It is
// valid while the plan only takes devices.
type Unplaceable struct{ failed []cluster.Demand }

// remembered bounds the number of demands in an Unplaceable.
const remembered = 16

// Covers reports whether a demand is known to have no place.
func (u *Unplaceable) Covers(d cluster.Demand) bool {
	return slices.ContainsFunc(u.failed, func(f cluster.Demand) bool { return asksAsMuch(d, f) })
}

// Add records a demand that has no place, in place of those that it covers.
func (u *Unplaceable) Add(d cluster.Demand) {
	u.failed = slices.DeleteFunc(u.failed, func(f cluster.Demand) bool { return asksAsMuch(f, d) })
	if len(u.failed) < remembered {
		u.failed = append(u.failed, d)
	}
}

// Forget clears the record. Call it after a release.
func (u *Unplaceable) Forget() { u.failed = u.failed[:0] }

// asksAsMuch reports whether a demand cannot be placed if another one could not.
func asksAsMuch(d, failed cluster.Demand) bool {
	return (failed.Quota == 0 || failed.Quota == d.Quota) && d.Min >= failed.Min && d.CPUs >= failed.CPUs && d.Memory >= failed.Memory &&
		(d.NeedsTrust || !failed.NeedsTrust) && (failed.MultiNode || !d.MultiNode) && (failed.Mixed || !d.Mixed) &&
		slices.Equal(d.Types, failed.Types) && slices.Equal(d.Exclude, failed.Exclude)
}
