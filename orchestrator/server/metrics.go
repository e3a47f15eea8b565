package server

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
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
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "outbid_leader_term", Help: "How often a server became the leader when this one did; 0 if it never led.",
		}, s.term),
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
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "outbid_stalled_seconds_total", Help: "Seconds in which the control loop finished no step, in stalls of at least a second.",
		}, func() float64 { return s.loop.Stalled().Seconds() }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "outbid_ledger_damaged", Help: "1 if the last check of the whole ledger found damage.",
		}, func() float64 { return zeroOrOne(s.scrub.damaged()) }),
	)
}
