package api

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// tenantMetrics exports the state and usage of the tenants that a caller may see. A tenant that was not added and does
// not have its own totals is exported under "others", so that clients cannot create unlimited series.
type tenantMetrics struct {
	control Control
	who     Principal

	deviceSeconds, trialsEnded, forkFailures, submitted, sweepsEnded *prometheus.Desc
	sweeps, trials, held, quota, typeQuota, weight                   *prometheus.Desc
}

func newTenantMetrics(c Control, who Principal) *tenantMetrics {
	return &tenantMetrics{
		control: c, who: who,
		deviceSeconds: desc("outbid_tenant_device_seconds_total",
			"Device-seconds for which a tenant's trials held devices, by type, up to the ledger's last batch.", "tenant", "type"),
		trialsEnded:  desc("outbid_tenant_trials_ended_total", "Trials of a tenant that ended, by state.", "tenant", "state"),
		forkFailures: desc("outbid_tenant_fork_failures_total", "Training processes of a tenant that failed, by kind of failure.", "tenant", "kind"),
		submitted:    desc("outbid_tenant_sweeps_submitted_total", "Sweeps that a tenant submitted.", "tenant"),
		sweepsEnded:  desc("outbid_tenant_sweeps_ended_total", "Sweeps of a tenant that ended, by state.", "tenant", "state"),
		sweeps:       desc("outbid_tenant_sweeps", "Sweeps of a tenant that have not ended, by state.", "tenant", "state"),
		trials:       desc("outbid_tenant_trials", "Trials of a tenant that have not ended, by state.", "tenant", "state"),
		held:         desc("outbid_tenant_devices_held", "Devices that a tenant's trials hold, by type.", "tenant", "type"),
		quota:        desc("outbid_tenant_devices_quota", "Devices of all types that a tenant may hold; absent without a quota.", "tenant"),
		typeQuota:    desc("outbid_tenant_type_devices_quota", "Devices of a type that a tenant may hold; absent without a quota.", "tenant", "type"),
		weight:       desc("outbid_tenant_weight", "A tenant's weight relative to other tenants.", "tenant"),
	}
}

// Describe implements prometheus.Collector.
func (m *tenantMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		m.deviceSeconds, m.trialsEnded, m.forkFailures, m.submitted, m.sweepsEnded, m.sweeps, m.trials, m.held, m.quota, m.typeQuota, m.weight,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *tenantMetrics) Collect(ch chan<- prometheus.Metric) {
	out, named := series(ch), map[string]bool{}
	for _, t := range m.control.Totals() {
		named[t.Tenant] = true
		if m.who.owns(t.Tenant) {
			m.counters(out, t)
		}
	}
	now := map[string]*tenantNow{}
	at := func(tenant string, added bool) *tenantNow {
		if !added && !named[tenant] {
			tenant = state.OtherTotals
		}
		if now[tenant] == nil {
			now[tenant] = &tenantNow{sweeps: map[outbidv1.SweepState]int{}, trials: map[string]int32{}, held: map[string]int32{}, weight: 1}
		}
		return now[tenant]
	}
	added := map[string]bool{}
	for _, t := range m.control.TenantStates() {
		added[t.GetTenant().GetName()] = t.GetAdded()
		at(t.GetTenant().GetName(), t.GetAdded()).add(t)
	}
	for _, s := range m.control.Sweeps() {
		tenant := tenantOf(s.GetSpec())
		n := at(tenant, added[tenant])
		n.sweeps[s.GetState()]++
		addCounts(n.trials, s.GetCounts())
	}
	for tenant, n := range now {
		if m.who.owns(tenant) {
			m.gauges(out, tenant, n)
		}
	}
}

// tenantNow is a tenant's state at a scrape.
type tenantNow struct {
	sweeps map[outbidv1.SweepState]int
	trials map[string]int32
	held   map[string]int32
	quota  *outbidv1.TenantQuota
	weight float64
}

func (n *tenantNow) add(t *outbidv1.TenantState) {
	for kind, devices := range t.GetUse().GetHeld() {
		n.held[kind] += devices
	}
	n.quota = t.GetTenant().GetQuota()
	if w := t.GetTenant().GetWeight(); w > 0 {
		n.weight = w
	}
}

// counters exports a tenant's totals. It exports every state and kind from the start, because Prometheus cannot compute
// a series' increase before its second sample.
func (m *tenantMetrics) counters(out series, t *state.Totals) {
	for kind, micros := range t.DeviceMicros {
		out.counter(m.deviceSeconds, seconds(micros), t.Tenant, kind)
	}
	for value, name := range outbidv1.TrialState_name {
		if s := outbidv1.TrialState(value); trialEnded(s) {
			out.counter(m.trialsEnded, float64(t.TrialsEnded[s]), t.Tenant, label(name, trialPrefix))
		}
	}
	for value, name := range outbidv1.FailureKind_name {
		if value != 0 {
			out.counter(m.forkFailures, float64(t.ForkFailures[outbidv1.FailureKind(value)]), t.Tenant, label(name, failurePrefix))
		}
	}
	out.counter(m.submitted, float64(t.SweepsSubmitted), t.Tenant)
	for value, name := range outbidv1.SweepState_name {
		if s := outbidv1.SweepState(value); sweepEnded(s) {
			out.counter(m.sweepsEnded, float64(t.SweepsEnded[s]), t.Tenant, label(name, sweepPrefix))
		}
	}
}

func (m *tenantMetrics) gauges(out series, tenant string, n *tenantNow) {
	for value, name := range outbidv1.SweepState_name {
		if s := outbidv1.SweepState(value); value != 0 && !sweepEnded(s) {
			out.gauge(m.sweeps, float64(n.sweeps[s]), tenant, label(name, sweepPrefix))
		}
	}
	for _, s := range []string{"queued", "running", "paused"} {
		out.gauge(m.trials, float64(n.trials[s]), tenant, s)
	}
	for kind, devices := range n.held {
		out.gauge(m.held, float64(devices), tenant, kind)
	}
	if n.quota != nil && n.quota.Devices != nil {
		out.gauge(m.quota, float64(n.quota.GetDevices()), tenant)
	}
	for kind, devices := range n.quota.GetTypes() {
		out.gauge(m.typeQuota, float64(devices), tenant, kind)
	}
	out.gauge(m.weight, n.weight, tenant)
}
