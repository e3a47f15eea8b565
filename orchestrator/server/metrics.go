package server

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outbid-dev/outbid/orchestrator/control"
)

// registerSkew adds to /metrics how far the clocks of the machines that led are apart.
func registerSkew(registry *prometheus.Registry, loop *control.Loop) error {
	err := registry.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "outbid_clock_skew_seconds", Help: "How far this machine's clock is ahead of the time in the ledger.",
	}, func() float64 { return loop.Skew().Seconds() }))
	if err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	return nil
}
