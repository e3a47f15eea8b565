package worker

import (
	"errors"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/outbid-dev/outbid/orchestrator/traceparent"
	"github.com/outbid-dev/outbid/orchestrator/tracing"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// spans returns the span of the fork's lease and that of its processes here, or zero values if the sweep is not traced.
func (f *fork) spans() (lease, process traceparent.Span) {
	lease, err := traceparent.Parse(f.body.GetTraceparent())
	if err != nil {
		return traceparent.Span{}, traceparent.Span{}
	}
	return lease, lease.Process(f.cfg.Node, f.ref.GetLeaseId())
}

// traceProcess records the span of the fork's processes, which began at a time and ended now.
func (f *fork) traceProcess(began time.Time, ended *outbidv1.ForkEnded) {
	failure := ""
	if ended.GetOutcome() == outbidv1.ForkOutcome_FORK_OUTCOME_FAILED {
		failure = ended.GetDetail()
	}
	lease, process := f.spans()
	f.record(process, lease, "process", began, failure, attribute.Int64("outbid.step", ended.GetStep()))
}

// trace records a part of the fork's process that began at a time and ended now, with an error or nil. Parts of the same
// name differ in their steps.
func (f *fork) trace(name string, began time.Time, step int64, err error) {
	failure := ""
	if err != nil && !errors.Is(err, errUnwanted) {
		failure = err.Error()
	}
	_, process := f.spans()
	f.record(process.Part(name, step), process, name, began, failure, attribute.Int64("outbid.step", step))
}

func (f *fork) record(self, parent traceparent.Span, name string, began time.Time, failure string, about ...attribute.KeyValue) {
	if self.IsZero() || f.cfg.Tracer == nil {
		return
	}
	f.cfg.Tracer.Record(tracing.Span{
		Self: self, Parent: parent, Name: name, Start: began, End: time.Now(), Failure: f.mask.Text(failure),
		Attributes: append(about,
			attribute.String("outbid.sweep", f.ref.GetSweep()), attribute.String("outbid.tenant", f.body.GetTenant()),
			attribute.Int("outbid.trial", int(f.ref.GetTrial())), attribute.Int64("outbid.lease", int64(f.ref.GetLeaseId())),
			attribute.String("outbid.node", f.cfg.Node),
		),
	})
}

// traceparent returns the span of the fork's processes for the training code, or "" if the sweep is not traced.
func (f *fork) traceparent() string {
	_, process := f.spans()
	return process.String()
}

// logger returns the worker's logger with the IDs of the fork's sweep, trial and trace.
func (f *fork) logger() *slog.Logger {
	log := f.cfg.Logger.With("sweep", f.ref.GetSweep(), "trial", f.ref.GetTrial())
	if lease, _ := f.spans(); !lease.IsZero() {
		log = log.With("trace_id", lease.TraceID())
	}
	return log
}
