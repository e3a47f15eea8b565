package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/outbid-dev/outbid/orchestrator/control"
)

// stepMetrics are the metrics of the control loop's steps.
type stepMetrics struct {
	decide, store, waits    prometheus.Histogram
	events, reports, rounds prometheus.Counter
	leases, merges          *prometheus.CounterVec
}

// observeLoop adds metrics of the control loop's steps, and returns the loop's observer.
func (s *Server) observeLoop() (func(control.Observation), error) {
	m := newStepMetrics()
	return m.observe, s.register(m.decide, m.store, m.waits, m.events, m.reports, m.rounds, m.leases, m.merges)
}

func newStepMetrics() *stepMetrics {
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	counters := func(name, help string, kinds ...string) *prometheus.CounterVec {
		vec := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"what"})
		for _, what := range kinds {
			vec.WithLabelValues(what)
		}
		return vec
	}
	buckets := prometheus.ExponentialBuckets(0.0001, 2, 16)
	return &stepMetrics{
		decide:  histogram("outbid_decide_seconds", "How long a step of the control loop took to decide.", buckets),
		store:   histogram("outbid_append_seconds", "How long the ledger took to make a step durable.", buckets),
		waits:   histogram("outbid_queue_seconds", "How long trials were queued before they got devices.", prometheus.ExponentialBuckets(0.1, 4, 11)),
		events:  counter("outbid_events_total", "Events appended to the ledger by this process."),
		reports: counter("outbid_reports_total", "Reports appended to the ledger by this process."),
		rounds:  counter("outbid_rounds_total", "Rounds of the policy that this process decided."),
		leases:  counters("outbid_leases_total", "Leases that this process granted or revoked.", "granted", "revoked"),
		merges: counters("outbid_merges_total",
			"Fork slots that were averaged, and averages that were compared with the best fork: kept or dropped.", "averaged", "kept", "dropped"),
	}
}

// observe counts a step.
func (m *stepMetrics) observe(o control.Observation) {
	if o.Events == 0 {
		return
	}
	m.decide.Observe(o.Decide.Seconds())
	m.store.Observe(o.Append.Seconds())
	m.events.Add(float64(o.Events))
	m.reports.Add(float64(o.Reports))
	m.rounds.Add(float64(o.Rounds))
	m.leases.WithLabelValues("granted").Add(float64(o.Granted))
	m.leases.WithLabelValues("revoked").Add(float64(o.Revoked))
	for _, w := range o.Waits {
		m.waits.Observe(w.Seconds())
	}
	m.merges.WithLabelValues("averaged").Add(float64(o.Merges.Averaged))
	m.merges.WithLabelValues("kept").Add(float64(o.Merges.Kept))
	m.merges.WithLabelValues("dropped").Add(float64(o.Merges.Dropped))
}
