package state

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrNotFound means that a sweep, trial or node does not exist.
	ErrNotFound = errors.New("not found")
	// ErrInvalid means that a request is wrong in itself.
	ErrInvalid = errors.New("invalid")
	// ErrConflict means that a request does not fit the current state.
	ErrConflict = errors.New("conflict")
	// ErrLimit means that a tenant would exceed a limit: see LimitError.
	ErrLimit = errors.New("limit reached")
	// ErrStopping means that a request was not carried out because the server is stopping.
	ErrStopping = errors.New("the server is stopping; try again")
	// ErrBroken means that an event does not fit the state: the ledger is damaged or was written by another version.
	ErrBroken = errors.New("event does not fit the state")
)

// LimitError is an ErrLimit that names the limit.
type LimitError struct {
	// Limit is the name of the limit, such as "spec_bytes"; see package limits.
	Limit string
	// Tenant whose limit it is, or "" if it is not the limit of a tenant.
	Tenant string
	// Text is a sentence with the current value and the limit.
	Text string
	// RetryAfter is when to retry, or 0 if a person must act first.
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
