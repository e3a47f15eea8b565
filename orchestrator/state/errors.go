package state

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrNotFound says that there is no sweep, trial or node of that name.
	ErrNotFound = errors.New("not found")
	// ErrInvalid says that what was asked for is wrong in itself.
	ErrInvalid = errors.New("invalid")
	// ErrConflict says that what was asked for does not fit the state that something is in.
	ErrConflict = errors.New("conflict")
	// ErrLimit says that a tenant would take more than it may; see LimitError.
	ErrLimit = errors.New("limit reached")
	// ErrStopping says that what was asked for was not done, because the server ends.
	ErrStopping = errors.New("the server is stopping; try again")
	// ErrBroken says that an event cannot follow the state: the ledger is damaged or was written by another version.
	ErrBroken = errors.New("event does not fit the state")
)

// LimitError is an ErrLimit that names the limit.
type LimitError struct {
	// Limit is the name of the limit, such as "spec_bytes"; see package limits.
	Limit string
	// Tenant is whose limit it is; "" if it is not one of a tenant.
	Tenant string
	// Text says what there is and what may be, as a sentence.
	Text string
	// RetryAfter is when the same may be tried again; 0 where only a person can change that.
	RetryAfter time.Duration
}

// Error implements error.
func (e *LimitError) Error() string {
	if e.Tenant == "" {
		return e.Limit + ": " + e.Text
	}
	return fmt.Sprintf("%s: %s ('outbid tenant show %s' shows its limits, and an admin changes them)", e.Limit, e.Text, e.Tenant)
}

// Is reports whether the error is an ErrLimit.
func (e *LimitError) Is(target error) bool { return target == ErrLimit }
