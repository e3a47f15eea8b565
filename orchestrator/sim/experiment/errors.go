package experiment

import "fmt"

// InputError says what is wrong with what was asked for: the setting, its value, and what would be right. Settings go by
// the names of the flags that set them.
type InputError struct{ err error }

// Error implements error.
func (e *InputError) Error() string { return e.err.Error() }

// Unwrap returns the cause, such as a trace.RowError.
func (e *InputError) Unwrap() error { return e.err }

func badInput(format string, args ...any) error {
	return &InputError{fmt.Errorf(format, args...)}
}
