package tracing

import (
	"context"
	"log/slog"

	"github.com/outbid-dev/outbid/orchestrator/traceparent"
)

// sweepKey is the attribute of log lines that concern a sweep, and traceKey the one with its trace's ID.
const sweepKey, traceKey = "sweep", "trace_id"

// logHandler adds the ID of the trace to log lines about a sweep.
type logHandler struct {
	slog.Handler
	// traceOf returns the traceparent of a sweep, or "".
	traceOf func(sweep string) string
}

// WithTraceIDs returns a logger that adds trace_id to each line with the attribute sweep, if that sweep is traced.
// traceOf returns the traceparent of a sweep, or "".
func WithTraceIDs(log *slog.Logger, traceOf func(sweep string) string) *slog.Logger {
	return slog.New(logHandler{log.Handler(), traceOf})
}

// Handle implements slog.Handler.
func (h logHandler) Handle(ctx context.Context, r slog.Record) error {
	sweep := ""
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == sweepKey {
			sweep = a.Value.String()
		}
		return sweep == ""
	})
	if sweep != "" {
		if span, err := traceparent.Parse(h.traceOf(sweep)); err == nil {
			r = r.Clone()
			r.AddAttrs(slog.String(traceKey, span.TraceID()))
		}
	}
	return h.Handler.Handle(ctx, r) //nolint:wrapcheck // slog ignores it
}

// WithAttrs implements slog.Handler.
func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return logHandler{h.Handler.WithAttrs(attrs), h.traceOf}
}

// WithGroup implements slog.Handler.
func (h logHandler) WithGroup(name string) slog.Handler {
	return logHandler{h.Handler.WithGroup(name), h.traceOf}
}
