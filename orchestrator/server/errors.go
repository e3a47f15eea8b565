package server

import (
	"errors"
	"fmt"
	"io/fs"
)

// FieldError reports that a field of a Config or a WorkerConfig is invalid.
type FieldError struct {
	// Field is its path in Go, such as NATS.Listen.
	Field string
	// Value is the field's value if it is helpful, or empty.
	Value string
	// Err describes the problem and a valid value.
	Err error
}

func (e *FieldError) Error() string { return e.Named(e.Field) }

func (e *FieldError) Unwrap() error { return e.Err }

// Named returns the error's text with another name for the field, such as that of a flag.
func (e *FieldError) Named(name string) string {
	if e.Value != "" {
		name += " " + e.Value
	}
	return fmt.Sprintf("%s: %v", name, e.Err)
}

// badField returns a FieldError without the value.
func badField(field, format string, args ...any) error {
	return &FieldError{Field: field, Err: fmt.Errorf(format, args...)}
}

// badValue returns a FieldError with the value.
func badValue(field, value, format string, args ...any) error {
	return &FieldError{Field: field, Value: value, Err: fmt.Errorf(format, args...)}
}

// UnreachableError reports that NATS cannot be reached, or does not accept writes.
type UnreachableError struct {
	// Msg is the complete message.
	Msg string
	// Err is the last error.
	Err error
}

func (e *UnreachableError) Error() string { return e.Msg }

func (e *UnreachableError) Unwrap() error { return e.Err }

// unreachable returns an UnreachableError for err, or err itself if it is about a field.
func unreachable(err error) error {
	if _, said := errors.AsType[*FieldError](err); said {
		return err
	}
	return &UnreachableError{Msg: err.Error(), Err: err}
}

// trimOp removes the system call's name from an error about a file.
func trimOp(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("%s: %w", path.Path, path.Err)
	}
	return err
}
