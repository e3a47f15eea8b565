package server

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/outbid-dev/outbid/orchestrator/control"
)

// registerOwn adds the metrics of this process, whether it leads or not.
func (s *Server) registerOwn() error {
	own := []prometheus.Collector{
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), newStorageMetrics(s),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "outbid_leader", Help: "1 if this server leads, 0 if it is a standby or starting.",
		}, func() float64 { return zeroOrOne(s.leads()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "outbid_ready", Help: "1 if this server accepts commands: it leads and has restored its state.",
		}, func() float64 { return zeroOrOne(s.ready.Load() && s.leads()) }),
	}
	if s.cert != nil {
		own = append(own, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "outbid_certificate_expires_timestamp_seconds", Help: "Unix time at which the server's TLS certificate expires.",
		}, func() float64 { return float64(s.cert.Expires().Unix()) }))
	}
	return s.register(own...)
}

func (s *Server) register(all ...prometheus.Collector) error {
	for _, c := range all {
		if err := s.registry.Register(c); err != nil {
			return fmt.Errorf("register metrics: %w", err)
		}
	}
	return nil
}

func zeroOrOne(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// registerLoop adds the metrics of the control loop's state.
func (s *Server) registerLoop() error {
	return s.register(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "outbid_clock_skew_seconds", Help: "How far this machine's clock is ahead of the time in the ledger.",
		}, func() float64 { return s.loop.Skew().Seconds() }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "outbid_step_age_seconds",
			Help: "How long ago the control loop's current step began, its append to the ledger included; 0 between two steps.",
		}, func() float64 { return s.loop.StepAge(time.Now()).Seconds() }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "outbid_ledger_damaged", Help: "1 if the last check of the whole ledger found damage.",
		}, func() float64 { return zeroOrOne(s.scrub.damaged()) }),
	)
}

// observeLoop adds metrics of the control loop's steps, and returns the loop's observer.
func (s *Server) observeLoop() (func(control.Observation), error) {
	buckets := prometheus.ExponentialBuckets(0.0001, 2, 16)
	decide := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "outbid_decide_seconds", Help: "How long a step of the control loop took to decide.", Buckets: buckets,
	})
	store := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "outbid_append_seconds", Help: "How long the ledger took to make a step durable.", Buckets: buckets,
	})
	events := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "outbid_events_total", Help: "Events appended to the ledger by this process.",
	})
	reports := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "outbid_reports_total", Help: "Reports appended to the ledger by this process.",
	})
	merges := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "outbid_merges_total", Help: "Fork slots that were averaged, and averages that were compared with the best fork: kept or dropped.",
	}, []string{"what"})
	for _, what := range []string{"averaged", "kept", "dropped"} {
		merges.WithLabelValues(what)
	}
	if err := s.register(decide, store, events, reports, merges); err != nil {
		return nil, err
	}
	return func(o control.Observation) {
		if o.Events == 0 {
			return
		}
		decide.Observe(o.Decide.Seconds())
		store.Observe(o.Append.Seconds())
		events.Add(float64(o.Events))
		reports.Add(float64(o.Reports))
		merges.WithLabelValues("averaged").Add(float64(o.Merges.Averaged))
		merges.WithLabelValues("kept").Add(float64(o.Merges.Kept))
		merges.WithLabelValues("dropped").Add(float64(o.Merges.Dropped))
	}, nil
}
