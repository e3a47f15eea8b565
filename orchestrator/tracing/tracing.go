// Package tracing exports spans by OTLP if the environment says where to, as OpenTelemetry defines it.
package tracing

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/outbid-dev/outbid/orchestrator/sanitize"
	"github.com/outbid-dev/outbid/orchestrator/traceparent"
)

// Service describes what exports spans.
type Service struct {
	// Name is the service's name, and Instance that of the server or node.
	Name, Instance, Version string
	Logger                  *slog.Logger
}

// Tracer exports spans. A nil Tracer discards them.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	log      *slog.Logger
}

// Span is a span that has ended.
type Span struct {
	Self, Parent traceparent.Span
	Name         string
	Start, End   time.Time
	Attributes   []attribute.KeyValue
	// Failure is what went wrong, or "".
	Failure string
}

const (
	// maxText limits a text of a span in bytes, because tenants choose some of them.
	maxText = 1024
	// closePatience is how long Close waits for the collector.
	closePatience = 2 * time.Second
)

// Open returns a tracer for the collector that the environment names, or nil if it names none. It does not wait for
// the collector. A mistake in the variables is logged and does not stop a server: they may be meant for other programs.
func Open(ctx context.Context, s Service) *Tracer {
	if !isConfigured(os.Getenv) {
		return nil
	}
	t, err := open(ctx, s)
	if err != nil {
		s.Logger.Warn("no spans are exported", "err", err)
	}
	return t
}

// isConfigured reports whether the environment names a collector.
func isConfigured(env func(string) string) bool {
	return env("OTEL_EXPORTER_OTLP_ENDPOINT")+env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != "" &&
		!strings.EqualFold(env("OTEL_SDK_DISABLED"), "true") && env("OTEL_TRACES_EXPORTER") != "none"
}

func open(ctx context.Context, s Service) (*Tracer, error) {
	exporter, err := newExporter(ctx)
	if err != nil {
		return nil, err
	}
	about, err := resource.New(ctx, resource.WithAttributes(
		attribute.String("service.name", s.Name), attribute.String("service.version", s.Version), attribute.String("service.instance.id", s.Instance),
	), resource.WithFromEnv(), resource.WithTelemetrySDK())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	otel.SetErrorHandler(&exportErrors{log: s.Logger})
	return newTracer(sdk.NewBatchSpanProcessor(exporter), about, s.Logger), nil
}

func newTracer(queue sdk.SpanProcessor, about *resource.Resource, log *slog.Logger) *Tracer {
	limits := sdk.NewSpanLimits()
	if limits.AttributeValueLengthLimit < 0 {
		limits.AttributeValueLengthLimit = maxText
	}
	provider := sdk.NewTracerProvider(
		sdk.WithSpanProcessor(queue), sdk.WithResource(about), sdk.WithIDGenerator(givenIDs{}), sdk.WithRawSpanLimits(limits),
	)
	return &Tracer{provider, provider.Tracer("github.com/outbid-dev/outbid"), log}
}

// newExporter returns an exporter that the environment configures. The SDK itself does not read the protocol.
func newExporter(ctx context.Context) (sdk.SpanExporter, error) {
	const general, traces = "OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
	protocol, from := os.Getenv(traces), traces
	if protocol == "" {
		protocol, from = os.Getenv(general), general
	}
	var exporter sdk.SpanExporter
	var err error
	switch protocol {
	case "grpc":
		exporter, err = otlptracegrpc.New(ctx)
	case "", "http/protobuf":
		exporter, err = otlptracehttp.New(ctx)
	default:
		return nil, fmt.Errorf("%s: must be grpc or http/protobuf, got %q", from, protocol)
	}
	if err != nil {
		return nil, fmt.Errorf("export spans: %w", err)
	}
	return exporter, nil
}

// Close exports the last spans. It gives up after two seconds.
func (t *Tracer) Close() error {
	if t == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closePatience)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		t.log.Warn("the last spans could not be exported", "err", err)
	}
	return nil
}

// Record exports a span in the background. It never waits: spans that the collector does not take in time are lost.
func (t *Tracer) Record(s Span) {
	if t == nil || s.Self.IsZero() || !s.Self.Sampled() {
		return
	}
	_, span := t.tracer.Start(withIDs(s.Self, s.Parent), s.Name, trace.WithTimestamp(s.Start), trace.WithAttributes(s.Attributes...))
	if s.Failure != "" {
		span.SetStatus(codes.Error, sanitize.Line(s.Failure, maxText))
	}
	span.End(trace.WithTimestamp(s.End))
}

// Begin starts a span of a call and returns it with a function that ends it. Without a parent it starts a trace. A nil
// Tracer returns the parent.
func (t *Tracer) Begin(name string, parent traceparent.Span) (self traceparent.Span, end func(error)) {
	if t == nil || !parent.IsZero() && !parent.Sampled() {
		return parent, func(error) {}
	}
	self = traceparent.New(func(into []byte) { _, _ = rand.Read(into) })
	if !parent.IsZero() {
		self.Trace = parent.Trace
	}
	_, span := t.tracer.Start(withIDs(self, parent), name, trace.WithSpanKind(trace.SpanKindServer))
	if !span.SpanContext().IsSampled() {
		self.Flags = 0
	}
	return self, func(err error) {
		if err != nil {
			span.SetStatus(codes.Error, sanitize.Line(err.Error(), maxText))
		}
		span.End()
	}
}

// withIDs returns a context for a new span with these IDs.
func withIDs(self, parent traceparent.Span) context.Context {
	ctx := context.WithValue(context.Background(), idsKey{}, self)
	if parent.IsZero() {
		return ctx
	}
	return trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: parent.Trace, SpanID: parent.ID, TraceFlags: trace.TraceFlags(parent.Flags), Remote: true,
	}))
}

// givenIDs takes a span's IDs from the context.
type givenIDs struct{}

type idsKey struct{}

// NewIDs implements sdk.IDGenerator.
func (givenIDs) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	s, _ := ctx.Value(idsKey{}).(traceparent.Span)
	return s.Trace, s.ID
}

// NewSpanID implements sdk.IDGenerator.
func (g givenIDs) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	_, id := g.NewIDs(ctx)
	return id
}

// exportErrors logs errors of the exporter, at most one a minute.
type exportErrors struct {
	log  *slog.Logger
	last atomic.Int64
}

// Handle implements otel.ErrorHandler.
func (e *exportErrors) Handle(err error) {
	now := time.Now().Unix()
	if last := e.last.Load(); now-last < 60 || !e.last.CompareAndSwap(last, now) {
		return
	}
	e.log.Warn("spans could not be exported and are lost", "err", err)
}
