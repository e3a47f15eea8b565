package api

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// nodeMetrics exports every node that has not left. Nodes that have left are omitted, because autoscalers create names
// that never return.
type nodeMetrics struct {
	control                              Control
	state, devices, held, heard, keptOff *prometheus.Desc
}

func newNodeMetrics(c Control) *nodeMetrics {
	return &nodeMetrics{
		control: c,
		state:   desc("outbid_node_state", "1 for the state that a node is in, 0 for the others: up, draining or lost.", "node", "state"),
		devices: desc("outbid_node_devices", "Devices of a node by type.", "node", "type"),
		held:    desc("outbid_node_devices_held", "Devices of a node that trials hold, by type.", "node", "type"),
		heard:   desc("outbid_node_last_heard_timestamp_seconds", "Unix time of the last message from a node's worker.", "node"),
		keptOff: desc("outbid_node_kept_off", "1 if new trials are not placed on a node for this cause, else 0: unfit (the checks of its worker fail), "+
			"ending (its worker stops, or has a spot notice), cordoned (trials repeatedly failed to start there), failures (trials failed there, and it is retried soon) or administrator (it was cordoned or drained by hand).", "node", "cause"),
	}
}

// Describe implements prometheus.Collector.
func (m *nodeMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.state, m.devices, m.held, m.heard, m.keptOff} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *nodeMetrics) Collect(ch chan<- prometheus.Metric) {
	out := series(ch)
	for _, n := range m.control.Nodes() {
		if n.GetState() == outbidv1.NodeState_NODE_STATE_LEFT {
			continue
		}
		m.node(out, n)
		m.faults(out, n, time.Now())
	}
}

// faults exports why no trial of any sweep is placed on a node.
func (m *nodeMetrics) faults(out series, n *outbidv1.Node, now time.Time) {
	causes := map[string]float64{"unfit": 0, "ending": 0, "cordoned": 0, "failures": 0, "administrator": 0}
	for _, f := range n.GetFaults() {
		switch {
		case f.GetSweep() != "" || !state.FaultActive(f, now) && !f.GetCordoned():
		case f.GetUnfit() && f.GetDrained():
			causes["ending"] = 1
		case f.GetUnfit():
			causes["unfit"] = 1
		case f.GetManual():
			causes["administrator"] = 1
		case f.GetCordoned():
			causes["cordoned"] = 1
		default:
			causes["failures"] = 1
		}
	}
	for cause, is := range causes {
		out.gauge(m.keptOff, is, n.GetInfo().GetName(), cause)
	}
}

func (m *nodeMetrics) node(out series, n *outbidv1.Node) {
	name := n.GetInfo().GetName()
	for _, s := range []outbidv1.NodeState{
		outbidv1.NodeState_NODE_STATE_UP, outbidv1.NodeState_NODE_STATE_DRAINING, outbidv1.NodeState_NODE_STATE_LOST,
	} {
		in := 0.0
		if n.GetState() == s {
			in = 1
		}
		out.gauge(m.state, in, name, label(s.String(), nodePrefix))
	}
	all, held := map[string]int{}, map[string]int{}
	types := map[int32]string{}
	for _, d := range n.GetInfo().GetDevices() {
		all[d.GetType()]++
		types[d.GetIndex()] = d.GetType()
	}
	for _, u := range n.GetUses() {
		if u.GetFork() != nil {
			held[types[u.GetDevice()]]++
		}
	}
	for kind, count := range all {
		out.gauge(m.devices, float64(count), name, kind)
		out.gauge(m.held, float64(held[kind]), name, kind)
	}
	if at := n.GetLastSeen(); at != nil {
		out.gauge(m.heard, float64(at.AsTime().UnixMilli())/1e3, name)
	}
}
