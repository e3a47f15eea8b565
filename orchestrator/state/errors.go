package state

import "errors"

var (
	// ErrNotFound says that there is no sweep, trial or node of that name.
	ErrNotFound = errors.New("not found")
	// ErrInvalid says that what was asked for is wrong in itself.
	ErrInvalid = errors.New("invalid")
	// ErrConflict says that what was asked for does not fit the state that something is in.
	ErrConflict = errors.New("conflict")
	// ErrStopping says that what was asked for was not done, because the server ends.
	ErrStopping = errors.New("the server is stopping; try again")
	// ErrBroken says that an event cannot follow the state: the ledger is damaged or was written by another version.
	ErrBroken = errors.New("event does not fit the state")
)
