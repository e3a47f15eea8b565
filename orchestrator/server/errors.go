package server

import (
	"errors"
	"fmt"
	"io/fs"
)

// FieldError says that a field of a Config or a WorkerConfig holds what cannot be used.
type FieldError struct {
	// Field is its path in Go, such as NATS.Listen.
	Field string
	// Value is what it holds, where that helps; else it is empty.
	Value string
	// Err says what is wrong with it, and what would be right.
	Err error
}

func (e *FieldError) Error() string { return e.Named(e.Field) }

func (e *FieldError) Unwrap() error { return e.Err }

// Named is the text of the error for somebody who knows the field by another name, such as that of a flag.
func (e *FieldError) Named(name string) string {
	if e.Value != "" {
		name += " " + e.Value
	}
	return fmt.Sprintf("%s: %v", name, e.Err)
}

// badField is a FieldError that shows no value.
func badField(field, format string, args ...any) error {
	return &FieldError{Field: field, Err: fmt.Errorf(format, args...)}
}

// badValue is a FieldError that shows the value.
func badValue(field, value, format string, args ...any) error {
	return &FieldError{Field: field, Value: value, Err: fmt.Errorf(format, args...)}
}

// UnreachableError says that NATS cannot be reached, or takes no writes.
type UnreachableError struct {
	// Msg is the whole text.
	Msg string
	// Err is what was answered last.
	Err error
}

func (e *UnreachableError) Error() string { return e.Msg }

func (e *UnreachableError) Unwrap() error { return e.Err }

// unreachable is the error of a NATS that cannot be reached; one about a field stays as it is.
func unreachable(err error) error {
	if _, said := errors.AsType[*FieldError](err); said {
		return err
	}
	return &UnreachableError{Msg: err.Error(), Err: err}
}

// trimOp drops the system call's name from an error about a file: people know what they asked for.
func trimOp(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("%s: %w", path.Path, path.Err)
	}
	return err
}
