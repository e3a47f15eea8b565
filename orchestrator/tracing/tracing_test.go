package tracing

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/outbid-dev/outbid/orchestrator/traceparent"
)

const parentText = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func parent(t *testing.T) traceparent.Span {
	t.Helper()
	s, err := traceparent.Parse(parentText)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// inMemory returns a tracer and its spans.
func inMemory() (*Tracer, *tracetest.InMemoryExporter) {
	spans := tracetest.NewInMemoryExporter()
	return newTracer(sdk.NewSimpleSpanProcessor(spans), resource.Empty(), slog.New(slog.DiscardHandler)), spans
}

func TestTracesAreOffWithoutACollector(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		env map[string]string
		on  bool
	}{
		{map[string]string{}, false},
		{map[string]string{"OTEL_SERVICE_NAME": "mine", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, false},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, true},
		{map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318"}, true},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_SDK_DISABLED": "TRUE"}, false},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_TRACES_EXPORTER": "none"}, false},
	} {
		if got := isConfigured(func(name string) string { return test.env[name] }); got != test.on {
			t.Errorf("with %v: %t", test.env, got)
		}
	}
}

func TestAWrongVariableDoesNotStopAServer(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")
	var log bytes.Buffer
	tracer := Open(t.Context(), Service{Name: "s", Logger: slog.New(slog.NewTextHandler(&log, nil))})
	tracer.Record(Span{Self: parent(t)})
	if tracer != nil || tracer.Close() != nil || !strings.Contains(log.String(), "must be grpc or http/protobuf") {
		t.Errorf("%v; the log:\n%s", tracer, log.String())
	}
}

func TestTextsOfTenantsAreBounded(t *testing.T) {
	t.Parallel()
	tracer, spans := inMemory()
	long := strings.Repeat("x", 10*maxText)
	tracer.Record(Span{
		Self: parent(t).Sweep("s"), Parent: parent(t), Name: "sweep", Start: time.Unix(1, 0), End: time.Unix(2, 0), Failure: "a\x1b[31m\n" + long,
		Attributes: []attribute.KeyValue{attribute.String("outbid.tenant", long)},
	})
	_, end := tracer.Begin("call", traceparent.Span{})
	end(errors.New(long))
	for _, s := range spans.GetSpans() {
		if n := len(s.Status.Description); n == 0 || n > maxText || strings.ContainsAny(s.Status.Description, "\n\x1b") {
			t.Errorf("%s: a status of %d bytes: %q", s.Name, n, s.Status.Description)
		}
		for _, a := range s.Attributes {
			if n := len(a.Value.AsString()); n > maxText {
				t.Errorf("%s: %s has %d bytes", s.Name, a.Key, n)
			}
		}
	}
}

func TestASpanHasTheGivenIDs(t *testing.T) {
	t.Parallel()
	tracer, spans := inMemory()
	self := parent(t).Sweep("s")
	tracer.Record(Span{Self: self, Parent: parent(t), Name: "sweep", Start: time.Unix(1, 0), End: time.Unix(2, 0)})
	called, end := tracer.Begin("call", parent(t))
	end(nil)
	got := spans.GetSpans()
	if len(got) != 2 {
		t.Fatalf("%d spans", len(got))
	}
	for i, want := range []traceparent.Span{self, called} {
		s := got[i]
		if s.SpanContext.SpanID() != want.ID || s.SpanContext.TraceID() != want.Trace || s.Parent.SpanID() != parent(t).ID || want.Trace != parent(t).Trace {
			t.Errorf("%s is %v below %v, want %v", s.Name, s.SpanContext, s.Parent, want)
		}
	}
}

func TestATraceThatIsNotSampledIsNotRecorded(t *testing.T) {
	t.Parallel()
	tracer, spans := inMemory()
	quiet := parent(t)
	quiet.Flags = 0
	self, end := tracer.Begin("call", quiet)
	end(nil)
	tracer.Record(Span{Self: quiet.Sweep("s"), Parent: quiet, Name: "sweep"})
	tracer.Record(Span{Name: "of a sweep without a trace"})
	if self != quiet || len(spans.GetSpans()) != 0 {
		t.Errorf("%v, %v", self, spans.GetSpans())
	}
}

// stuck is an exporter that waits until it is stopped.
type stuck struct{}

func (stuck) ExportSpans(ctx context.Context, _ []sdk.ReadOnlySpan) error {
	<-ctx.Done()
	return ctx.Err()
}

func (stuck) Shutdown(context.Context) error { return nil }

func TestASlowCollectorIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	tracer := newTracer(sdk.NewBatchSpanProcessor(stuck{}, sdk.WithMaxQueueSize(2), sdk.WithMaxExportBatchSize(1)), resource.Empty(), slog.New(slog.DiscardHandler))
	for i := range uint64(10_000) { // would wait without end
		tracer.Record(Span{Self: parent(t).Lease(i), Parent: parent(t), Name: "lease"})
	}
	if err := tracer.Close(); err != nil {
		t.Error(err)
	}
}

func TestLinesAboutASweepHaveItsTrace(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := WithTraceIDs(slog.New(slog.NewJSONHandler(&out, nil)), func(sweep string) string {
		return map[string]string{"a-1": parentText, "b-1": "damaged"}[sweep]
	}).With("node", "n").WithGroup("")
	log.Info("one", "sweep", "a-1", "trial", 3)
	log.Info("two", "sweep", "b-1")
	log.Info("three", "sweep", "c-1")
	log.Info("four")
	for i, line := range strings.Split(strings.TrimSpace(out.String()), "\n") {
		var got map[string]any
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Fatal(err)
		}
		want := any(nil)
		if i == 0 {
			want = parent(t).TraceID()
		}
		if got["trace_id"] != want || got["node"] != "n" {
			t.Errorf("%s: the trace is not %v", line, want)
		}
	}
}
