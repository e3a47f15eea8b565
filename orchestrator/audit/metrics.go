package audit

import "github.com/prometheus/client_golang/prometheus"

// Register adds the metrics of the audit to a registry.
func (l *Log) Register(registry *prometheus.Registry) error {
	for _, c := range []prometheus.Collector{
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "outbid_audit_records_total", Help: "Records of the audit that this process stored.",
		}, func() float64 { return float64(l.written.Load()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "outbid_audit_lost_total", Help: "Records of the audit that were lost because too many waited to be stored.",
		}, func() float64 { return float64(l.lost.Load()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "outbid_audit_file_failures_total", Help: "Records of the audit that could not be written to the file of --audit-log.",
		}, func() float64 { return float64(l.fileFailures.Load()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "outbid_audit_waiting", Help: "Records of the audit that wait to be stored.",
		}, func() float64 { return float64(l.waiting.Load()) }),
	} {
		if err := registry.Register(c); err != nil {
			return err
		}
	}
	return nil
}
