// Package traceparent identifies the spans of a sweep in a trace. A span's ID is a hash of its trace and its subject, so that
// a server that takes over, and a worker, know the parent of a span without another message.
package traceparent

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// Header is the name of the header that W3C Trace Context defines.
const Header = "traceparent"

// Span identifies a span in a trace.
type Span struct {
	Trace [16]byte
	ID    [8]byte
	Flags byte
}

// sampled is the flag of a trace that is recorded.
const sampled = 1

// New returns a span with random IDs, which are read from random bytes.
func New(random func([]byte)) Span {
	s := Span{Flags: sampled}
	random(s.Trace[:])
	random(s.ID[:])
	return s
}

// Parse reads a traceparent such as 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01.
func Parse(text string) (Span, error) {
	var s Span
	parts := strings.Split(text, "-")
	if len(parts) < 4 || len(parts[0]) != 2 || parts[0] == "ff" || parts[0] == "00" && len(parts) > 4 || text != strings.ToLower(text) {
		return s, fmt.Errorf("want version-trace-span-flags, such as 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01, got %q", text)
	}
	var flags [1]byte
	for i, into := range [][]byte{s.Trace[:], s.ID[:], flags[:]} {
		if part := parts[i+1]; len(part) != 2*len(into) {
			return Span{}, fmt.Errorf("part %d must have %d hexadecimal digits, got %q", i+2, 2*len(into), part)
		} else if _, err := hex.Decode(into, []byte(part)); err != nil {
			return Span{}, fmt.Errorf("part %d: %w", i+2, err)
		}
	}
	s.Flags = flags[0]
	if s.Trace == [16]byte{} || s.ID == [8]byte{} {
		return Span{}, fmt.Errorf("the IDs of the trace and of the span must not be zero, got %q", text)
	}
	return s, nil
}

// String returns the span as a traceparent, or "" for the zero value.
func (s Span) String() string {
	if s.IsZero() {
		return ""
	}
	return fmt.Sprintf("00-%x-%x-%02x", s.Trace, s.ID, s.Flags)
}

// IsZero reports whether the span is missing.
func (s Span) IsZero() bool { return s.Trace == [16]byte{} }

// Sampled reports whether the trace is recorded.
func (s Span) Sampled() bool { return s.Flags&sampled != 0 }

// TraceID returns the trace's ID as hexadecimal digits.
func (s Span) TraceID() string { return hex.EncodeToString(s.Trace[:]) }

// Sweep returns the span of a sweep in the same trace. Like those of trials and leases its ID does not
// depend on the span that it is derived from.
func (s Span) Sweep(sweep string) Span { return s.child("sweep", sweep) }

// Trial returns the span of a trial.
func (s Span) Trial(sweep string, trial int32) Span { return s.child("trial", sweep, trial) }

// Lease returns the span of a lease.
func (s Span) Lease(id uint64) Span { return s.child("lease", id) }

// Process returns the span of a lease's processes on a node.
func (s Span) Process(node string, lease uint64) Span { return s.child("process", node, lease) }

// Part returns the span of a part of a process, such as saving a step's checkpoint, or the zero Span if s is zero.
func (s Span) Part(name string, step int64) Span {
	if s.IsZero() {
		return s
	}
	return s.child("part", s.ID, name, step)
}

// Decision returns the span of the decision that granted a lease.
func (s Span) Decision(lease uint64) Span { return s.child("decision", lease) }

// Queue returns the span of the wait in the queue that a lease ended.
func (s Span) Queue(lease uint64) Span { return s.child("queue", lease) }

func (s Span) child(of ...any) Span {
	sum := sha256.Sum256(fmt.Appendf(s.Trace[:], "%q", of))
	copy(s.ID[:], sum[:])
	return s
}
