package api

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// newCallMetrics returns the metrics of the calls themselves.
func newCallMetrics() (*prometheus.CounterVec, *prometheus.HistogramVec) {
	calls := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "outbid_api_calls_total", Help: "Calls of the API by method and gRPC code.",
	}, []string{"method", "code"})
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "outbid_api_call_seconds", Help: "How long calls of the API took; streams until they ended.",
		Buckets: prometheus.ExponentialBuckets(0.0005, 4, 10),
	}, []string{"method"})
	return calls, seconds
}

// stateMetrics counts, at each scrape, what Control knows.
type stateMetrics struct {
	control                 Control
	sweeps, trials, devices *prometheus.Desc
	ledgerSeq, deviceUsed   *prometheus.Desc
}

func newStateMetrics(c Control) *stateMetrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &stateMetrics{
		control:    c,
		sweeps:     desc("outbid_sweeps", "Sweeps by state.", "state"),
		trials:     desc("outbid_trials", "Trials by state.", "state"),
		devices:    desc("outbid_devices", "Devices by type and use: held, free, or away with their node.", "type", "use"),
		ledgerSeq:  desc("outbid_ledger_seq", "Sequence of the ledger's last batch."),
		deviceUsed: desc("outbid_device_seconds_total", "Device-seconds used by all sweeps."),
	}
}

// Describe implements prometheus.Collector.
func (m *stateMetrics) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, ch) }

// Collect implements prometheus.Collector.
func (m *stateMetrics) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	sweeps := map[outbidv1.SweepState]int{}
	trials := map[string]int32{}
	used := 0.0
	for _, s := range m.control.Sweeps() {
		sweeps[s.GetState()]++
		used += s.GetDeviceSeconds()
		addCounts(trials, s.GetCounts())
	}
	for value, name := range outbidv1.SweepState_name {
		if value != 0 {
			gauge(m.sweeps, float64(sweeps[outbidv1.SweepState(value)]), label(name, "SWEEP_STATE_"))
		}
	}
	for state, n := range trials {
		gauge(m.trials, float64(n), state)
	}
	for key, n := range deviceCounts(m.control.Nodes()) {
		gauge(m.devices, float64(n), key.kind, key.use)
	}
	gauge(m.ledgerSeq, float64(m.control.Info().GetLedgerSeq()))
	ch <- prometheus.MustNewConstMetric(m.deviceUsed, prometheus.CounterValue, used)
}

func addCounts(into map[string]int32, c *outbidv1.TrialCounts) {
	into["queued"] += c.GetQueued()
	into["running"] += c.GetRunning()
	into["paused"] += c.GetPaused()
	into["completed"] += c.GetCompleted()
	into["stopped"] += c.GetStopped()
	into["failed"] += c.GetFailed()
	into["cancelled"] += c.GetCancelled()
}

type deviceKey struct{ kind, use string }

func deviceCounts(nodes []*outbidv1.Node) map[deviceKey]int {
	counts := map[deviceKey]int{}
	for _, n := range nodes {
		held := map[int32]bool{}
		for _, u := range n.GetUses() {
			held[u.GetDevice()] = u.GetFork() != nil
		}
		for _, d := range n.GetInfo().GetDevices() {
			use := "free"
			switch {
			case held[d.GetIndex()]:
				use = "held"
			case n.GetState() != outbidv1.NodeState_NODE_STATE_UP:
				use = "away"
			}
			counts[deviceKey{d.GetType(), use}]++
		}
	}
	return counts
}

// label is an enum's name as a label: SWEEP_STATE_DONE is "done".
func label(name, prefix string) string { return strings.ToLower(strings.TrimPrefix(name, prefix)) }
