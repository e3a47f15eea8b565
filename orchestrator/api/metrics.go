package api

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// newCallMetrics returns the metrics of API calls.
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

// clusterMetrics exports, at each scrape, the state of the whole cluster.
type clusterMetrics struct {
	control                                        Control
	sweeps, trials, devices, ledgerSeq, deviceUsed *prometheus.Desc
}

func newClusterMetrics(c Control) *clusterMetrics {
	return &clusterMetrics{
		control:    c,
		sweeps:     desc("outbid_sweeps", "Sweeps by state.", "state"),
		trials:     desc("outbid_trials", "Trials of these sweeps by state.", "state"),
		devices:    desc("outbid_devices", "Devices by type and use: held, free, draining, or on a lost node.", "type", "use"),
		ledgerSeq:  desc("outbid_ledger_seq", "Sequence of the ledger's last batch."),
		deviceUsed: desc("outbid_device_seconds_total", "Device-seconds used by all tenants, up to the ledger's last batch."),
	}
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// Describe implements prometheus.Collector.
func (m *clusterMetrics) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, ch) }

// Collect implements prometheus.Collector.
func (m *clusterMetrics) Collect(ch chan<- prometheus.Metric) {
	out := series(ch)
	sweeps := map[outbidv1.SweepState]int{}
	trials := map[string]int32{}
	for _, s := range m.control.Sweeps() {
		sweeps[s.GetState()]++
		addCounts(trials, s.GetCounts())
	}
	for value, name := range outbidv1.SweepState_name {
		if value != 0 {
			out.gauge(m.sweeps, float64(sweeps[outbidv1.SweepState(value)]), label(name, sweepPrefix))
		}
	}
	for state, n := range trials {
		out.gauge(m.trials, float64(n), state)
	}
	for key, n := range deviceCounts(m.control.Nodes()) {
		out.gauge(m.devices, float64(n), key.kind, key.use)
	}
	out.gauge(m.ledgerSeq, float64(m.control.Info().GetLedgerSeq()))
	var used int64
	for _, t := range m.control.Totals() {
		for _, micros := range t.DeviceMicros {
			used += micros
		}
	}
	out.counter(m.deviceUsed, seconds(used))
}

// seconds converts device-microseconds to device-seconds. The sums are integers, because a rounding error could make a
// sum of floats smaller, which Prometheus takes for a restart.
func seconds(micros int64) float64 { return float64(micros) / 1e6 }

// series is the channel to which a collector sends its metrics.
type series chan<- prometheus.Metric

func (s series) gauge(d *prometheus.Desc, v float64, labels ...string) {
	s <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (s series) counter(d *prometheus.Desc, v float64, labels ...string) {
	s <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
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

// deviceCounts counts the devices of all nodes except those that have left, which may never come back.
func deviceCounts(nodes []*outbidv1.Node) map[deviceKey]int {
	counts := map[deviceKey]int{}
	for _, n := range nodes {
		if n.GetState() == outbidv1.NodeState_NODE_STATE_LEFT {
			continue
		}
		held := map[int32]bool{}
		for _, u := range n.GetUses() {
			held[u.GetDevice()] = u.GetFork() != nil
		}
		for _, d := range n.GetInfo().GetDevices() {
			use := "free"
			switch {
			case held[d.GetIndex()]:
				use = "held"
			case n.GetState() == outbidv1.NodeState_NODE_STATE_DRAINING:
				use = "draining"
			case n.GetState() != outbidv1.NodeState_NODE_STATE_UP:
				use = "away"
			}
			counts[deviceKey{d.GetType(), use}]++
		}
	}
	return counts
}

// The prefixes of the enums whose values are labels.
const (
	sweepPrefix   = "SWEEP_STATE_"
	trialPrefix   = "TRIAL_STATE_"
	nodePrefix    = "NODE_STATE_"
	failurePrefix = "FAILURE_KIND_"
)

// label returns an enum's name as a label: SWEEP_STATE_DONE is "done".
func label(name, prefix string) string { return strings.ToLower(strings.TrimPrefix(name, prefix)) }
