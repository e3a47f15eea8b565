package experiment

import "fmt"

// InputError describes a problem with the options: the setting, its value, and the valid values. Settings have the
// names of their flags.
type InputError struct{ err error }

// Error implements error.
func (e *InputError) Error() string { return e.err.Error() }

// Unwrap returns the cause, such as a trace.RowError.
func (e *InputError) Unwrap() error { return e.err }

// BadInput returns an InputError with a formatted text.
func BadInput(format string, args ...any) error {
	return &InputError{fmt.Errorf(format, args...)}
}
