package worker

import (
	"errors"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/outbid-dev/outbid/orchestrator/traceparent"
	"github.com/outbid-dev/outbid/orchestrator/tracing"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
	"github.com/outbid-dev/outbid/worker/redact"
)

// telemetry records the spans of a fork and gives its log lines their IDs.
type telemetry struct {
	cfg    *Config
	ref    *outbidv1.ForkRef
	tenant string
	mask   *redact.Mask
	// lease is the span of the fork's lease and process that of its processes here; both are zero if the sweep is not
	// traced.
	lease, process traceparent.Span
}

func newTelemetry(cfg *Config, ref *outbidv1.ForkRef, body *outbidv1.AssignmentBody, mask *redact.Mask) *telemetry {
	t := &telemetry{cfg: cfg, ref: ref, tenant: body.GetTenant(), mask: mask}
	if lease, err := traceparent.Parse(body.GetTraceparent()); err == nil {
		t.lease, t.process = lease, lease.Process(cfg.Node, ref.GetLeaseId())
	}
	return t
}

// traceProcess records the span of the fork's processes, which began at a time and ended now.
func (t *telemetry) traceProcess(began time.Time, ended *outbidv1.ForkEnded) {
	failure := ""
	if ended.GetOutcome() == outbidv1.ForkOutcome_FORK_OUTCOME_FAILED {
		failure = ended.GetDetail()
	}
	t.record(t.process, t.lease, "process", began, failure, attribute.Int64("outbid.step", ended.GetStep()))
}

// trace records a part of the fork's process that began at a time and ended now, with an error or nil. Parts of the same
// name differ in their steps.
func (t *telemetry) trace(name string, began time.Time, step int64, err error) {
	failure := ""
	if err != nil && !errors.Is(err, errUnwanted) {
		failure = err.Error()
	}
	t.record(t.process.Part(name, step), t.process, name, began, failure, attribute.Int64("outbid.step", step))
}

func (t *telemetry) record(self, parent traceparent.Span, name string, began time.Time, failure string, about ...attribute.KeyValue) {
	if self.IsZero() || t.cfg.Tracer == nil {
		return
	}
	t.cfg.Tracer.Record(tracing.Span{
		Self: self, Parent: parent, Name: name, Start: began, End: time.Now(), Failure: t.mask.Text(failure),
		Attributes: append(about,
			attribute.String("outbid.sweep", t.ref.GetSweep()), attribute.String("outbid.tenant", t.tenant),
			attribute.Int("outbid.trial", int(t.ref.GetTrial())), attribute.Int64("outbid.lease", int64(t.ref.GetLeaseId())),
			attribute.String("outbid.node", t.cfg.Node),
		),
	})
}

// traceparent returns the span of the fork's processes for the training code, or "" if the sweep is not traced.
func (t *telemetry) traceparent() string { return t.process.String() }

// logger returns the worker's logger with the IDs of the fork's sweep, trial and trace.
func (t *telemetry) logger() *slog.Logger {
	log := t.cfg.Logger.With("sweep", t.ref.GetSweep(), "trial", t.ref.GetTrial())
	if !t.lease.IsZero() {
		log = log.With("trace_id", t.lease.TraceID())
	}
	return log
}
