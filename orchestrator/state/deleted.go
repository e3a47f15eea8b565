package state

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Deleted is what the state keeps of a deleted sweep.
type Deleted struct {
	ID, Tenant string
	// Blob is the SHA-256 of the sweep's function, or "".
	Blob string
	// Actor deleted the sweep at time At.
	Actor string
	At    time.Time
}

// DeletedError reports that a sweep was deleted. It is also an ErrNotFound.
type DeletedError struct{ Deleted }

func (e *DeletedError) Error() string {
	return fmt.Sprintf("there is no sweep %q any more: %s deleted it at %s", e.ID, e.Actor, e.At.UTC().Format(time.RFC3339))
}

// Is reports whether target is ErrNotFound.
func (e *DeletedError) Is(target error) bool { return target == ErrNotFound }

// EndingError reports that a sweep has ended but still holds devices, because its last processes are ending. It is
// also an ErrConflict.
type EndingError struct{ Sweep string }

func (e *EndingError) Error() string {
	return fmt.Sprintf("the last trials of sweep %s are just ending; try again in a moment", e.Sweep)
}

// Is reports whether target is ErrConflict.
func (e *EndingError) Is(target error) bool { return target == ErrConflict }

// CanDelete returns why a sweep cannot be deleted, or nil if it can.
func (s *Sweep) CanDelete() error {
	switch {
	case !s.Done():
		return fmt.Errorf("%w: sweep %s is %s and cannot be deleted: stop it first, or have it stopped (force)", ErrConflict, s.ID,
			SweepWord(s.State))
	case len(s.Running) > 0 || len(s.Forked) > 0:
		return &EndingError{s.ID}
	}
	return nil
}

// Conflict returns an ErrConflict that the sweep cannot be what a request wants, such as "paused", and the rule.
func (s *Sweep) Conflict(what, rule string) error {
	return fmt.Errorf("%w: sweep %s is %s and cannot be %s: %s", ErrConflict, s.ID, SweepWord(s.State), what, rule)
}

func sortedDeleted(deleted map[string]Deleted) []Deleted {
	return slices.SortedFunc(maps.Values(deleted), func(a, b Deleted) int { return strings.Compare(a.ID, b.ID) })
}

// sweepDeleted removes a sweep. Its ID is not reused, because names are counted.
func (f *foldContext) sweepDeleted(e *outbidv1.SweepDeleted) error {
	st, s := f.st, f.sweep
	if err := s.CanDelete(); err != nil {
		return broken("%v", err)
	}
	st.remove(s, s.asDeleted(e.GetActor(), f.at))
	return nil
}

func (s *Sweep) asDeleted(actor string, at time.Time) Deleted {
	return Deleted{ID: s.ID, Tenant: s.Spec.GetTenant(), Blob: s.Spec.GetFunction().GetBlob(), Actor: actor, At: at}
}
