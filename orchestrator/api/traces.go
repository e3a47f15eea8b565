package api

import (
	"context"

	"google.golang.org/grpc/metadata"

	"github.com/outbid-dev/outbid/orchestrator/traceparent"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Traces records spans of calls.
type Traces interface {
	// Begin starts a span below a parent, which may be missing, and returns it with a function that ends it.
	Begin(name string, parent traceparent.Span) (self traceparent.Span, end func(error))
}

// trace starts the span of the call in which a sweep is submitted, sets it in the spec, and returns a function that
// ends the span. Its parent is the call's header. A traceparent that was sent in the spec is that of another sweep, and a
// header that is not valid is ignored, as W3C Trace Context demands.
func (s *sweepService) trace(ctx context.Context, spec *outbidv1.SweepSpec) (end func(error)) {
	var parent traceparent.Span
	for _, header := range metadata.ValueFromIncomingContext(ctx, traceparent.Header) {
		if sent, err := traceparent.Parse(header); err == nil {
			parent = sent
		}
	}
	self, end := parent, func(error) {}
	if s.traces != nil {
		self, end = s.traces.Begin("SubmitSweep", parent)
	}
	spec.Traceparent = self.String()
	return end
}
