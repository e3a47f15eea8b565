package server

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/state"
	"github.com/outbid-dev/outbid/orchestrator/traceparent"
	"github.com/outbid-dev/outbid/orchestrator/tracing"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// sweepSpans records the spans of sweeps, trials and leases when they end.
type sweepSpans struct{ tracer *tracing.Tracer }

// openTracer opens the tracer that the environment configures. On close it exports the last spans.
func openTracer(ctx context.Context, c *closers, about tracing.Service) *tracing.Tracer {
	tracer := tracing.Open(ctx, about)
	c.onClose(tracer.Close)
	return tracer
}

// traces finds the traceparents of sweeps once the state is restored.
type traces struct {
	find atomic.Pointer[func(sweep string) string]
}

// of returns the traceparent of a sweep, or "" if it is not traced or not known yet.
func (t *traces) of(sweep string) string {
	if find := t.find.Load(); find != nil {
		return (*find)(sweep)
	}
	return ""
}

// follow records the spans that a step of the control loop ended. now is the time of its events.
func (r sweepSpans) follow(now time.Time, changes []state.Change, o control.Observation) {
	for i := range changes {
		c := &changes[i]
		if c.Sweep == nil || c.Sweep.Spec.GetTraceparent() == "" {
			continue
		}
		if parent, err := traceparent.Parse(c.Sweep.Spec.GetTraceparent()); err == nil {
			r.record(now, c, parent, o)
		}
	}
}

// follower returns follow, or nil without a collector.
func (r sweepSpans) follower() func(time.Time, []state.Change, control.Observation) {
	if r.tracer == nil {
		return nil
	}
	return r.follow
}

func (r sweepSpans) record(now time.Time, c *state.Change, parent traceparent.Span, o control.Observation) {
	sweep := parent.Sweep(c.Sweep.ID)
	about := []attribute.KeyValue{attribute.String("outbid.sweep", c.Sweep.ID), attribute.String("outbid.tenant", state.TenantOf(c.Sweep.Spec))}
	if c.Trial != nil {
		trial := parent.Trial(c.Sweep.ID, c.Trial.Number)
		about = append(about, attribute.Int("outbid.trial", int(c.Trial.Number)))
		if c.Lease != nil {
			r.lease(now, c, trial, about, o)
		}
		if c.TrialEnded() {
			r.tracer.Record(tracing.Span{
				Self: trial, Parent: sweep, Name: "trial", Start: c.Trial.Created, End: now, Failure: failedTrial(c.Trial),
				Attributes: append(about, attribute.Int64("outbid.step", c.Trial.Step), attribute.String("outbid.state", word(c.TrialTo().String(), "TRIAL_STATE_"))),
			})
		}
	}
	if c.SweepEnded() {
		r.tracer.Record(tracing.Span{
			Self: sweep, Parent: parent, Name: "sweep", Start: c.Sweep.Submitted, End: now, Failure: failedSweep(c.Sweep),
			Attributes: append(about, attribute.String("outbid.state", word(c.SweepTo().String(), "SWEEP_STATE_"))),
		})
	}
}

// lease records the wait in the queue, the step of the control loop that granted it, and the lease itself.
func (r sweepSpans) lease(now time.Time, c *state.Change, trial traceparent.Span, about []attribute.KeyValue, o control.Observation) {
	about = append(about, attribute.Int64("outbid.lease", int64(c.Lease.ID)), attribute.StringSlice("outbid.nodes", nodesOf(c.Lease)))
	if waited, ok := c.Waited(); ok {
		r.tracer.Record(tracing.Span{
			Self: trial.Queue(c.Lease.ID), Parent: trial, Name: "queue", Start: c.Lease.Granted.Add(-waited), End: c.Lease.Granted, Attributes: about,
		})
	}
	if c.LeaseBegan() {
		r.tracer.Record(tracing.Span{
			Self: trial.Decision(c.Lease.ID), Parent: trial, Name: "decide", Start: now, End: now.Add(o.Decide + o.Append),
			Attributes: append(about, attribute.Float64("outbid.decide_seconds", o.Decide.Seconds()), attribute.Float64("outbid.append_seconds", o.Append.Seconds())),
		})
	}
	if c.LeaseEnded() {
		r.tracer.Record(tracing.Span{
			Self: trial.Lease(c.Lease.ID), Parent: trial, Name: "lease", Start: c.Lease.Granted, End: now, Attributes: about,
		})
	}
}

func nodesOf(l *state.Lease) []string {
	var nodes []string
	for _, p := range l.Places {
		nodes = append(nodes, p.Node)
	}
	return nodes
}

// failedSweep returns why a sweep failed, or "".
func failedSweep(s *state.Sweep) string {
	if s.State != outbidv1.SweepState_SWEEP_STATE_FAILED {
		return ""
	}
	return s.Reason
}

// failedTrial returns why a trial failed, or "".
func failedTrial(t *state.Trial) string {
	if t.State != outbidv1.TrialState_TRIAL_STATE_FAILED {
		return ""
	}
	return t.Reason
}

func word(name, prefix string) string { return strings.ToLower(strings.TrimPrefix(name, prefix)) }
