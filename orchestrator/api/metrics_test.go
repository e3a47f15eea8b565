package api

import (
	"cmp"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Totals returns 1.5 device-seconds and a failed trial for each tenant with a sweep. Only the first two tenants have
// their own totals.
func (c *fakeControl) Totals() []*state.Totals {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[string]*state.Totals{}
	for _, id := range c.order {
		tenant := tenantOf(c.sweeps[id].view.GetSpec())
		if all[tenant] == nil && len(all) >= 2 {
			tenant = state.OtherTotals
		}
		all[tenant] = &state.Totals{
			Tenant: tenant, DeviceMicros: map[string]int64{"v100": 1_500_000}, SweepsSubmitted: 1,
			TrialsEnded: map[outbidv1.TrialState]int64{outbidv1.TrialState_TRIAL_STATE_FAILED: 1},
		}
	}
	return slices.SortedFunc(maps.Values(all), func(a, b *state.Totals) int { return cmp.Compare(a.Tenant, b.Tenant) })
}

// scrape returns the lines of /metrics that start with outbid_ and that a caller may see.
func (h *testServer) scrape(t *testing.T, token string) []string {
	t.Helper()
	var headers []string
	if token != "" {
		headers = []string{"Authorization", "Bearer " + token}
	}
	resp, b := h.call(t, http.MethodGet, "/metrics", "", headers...)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("/metrics: %s: %s", resp.Status, b)
	}
	return slices.DeleteFunc(strings.Split(string(b), "\n"), func(line string) bool { return !strings.HasPrefix(line, "outbid_") })
}

// TestMetricsOfTenants checks that /metrics shows a caller only the tenants that it may see elsewhere.
func TestMetricsOfTenants(t *testing.T) {
	t.Parallel()
	h := serve(t, func(c *Config) { c.Tokens = testTokens(t) })
	h.control.add("digits-1", "vision", 1)
	h.control.add("words-1", "speech", 1)
	h.control.add("more-1", "crowd1", 1)
	h.control.add("more-2", "crowd2", 1)
	h.control.tenants = map[string]*outbidv1.Tenant{"vision": {
		Name: "vision", Weight: 2, Quota: &outbidv1.TenantQuota{Devices: proto.Int32(4), Types: map[string]int32{"v100": 1}},
	}}
	vision := []string{
		`outbid_tenant_device_seconds_total{tenant="vision",type="v100"} 1.5`,
		`outbid_tenant_trials_ended_total{state="failed",tenant="vision"} 1`,
		`outbid_tenant_trials_ended_total{state="completed",tenant="vision"} 0`,
		`outbid_tenant_fork_failures_total{kind="signal",tenant="vision"} 0`,
		`outbid_tenant_sweeps_submitted_total{tenant="vision"} 1`,
		`outbid_tenant_sweeps_ended_total{state="done",tenant="vision"} 0`,
		`outbid_tenant_sweeps{state="running",tenant="vision"} 1`,
		`outbid_tenant_trials{state="queued",tenant="vision"} 0`,
		`outbid_tenant_devices_quota{tenant="vision"} 4`,
		`outbid_tenant_type_devices_quota{tenant="vision",type="v100"} 1`,
		`outbid_tenant_weight{tenant="vision"} 2`,
	}
	others := []string{
		`outbid_tenant_device_seconds_total{tenant="speech",type="v100"} 1.5`,
		`outbid_tenant_device_seconds_total{tenant="(others)",type="v100"} 1.5`,
		`outbid_tenant_sweeps{state="running",tenant="(others)"} 2`,
	}
	for caller, want := range map[string]struct{ sees, not []string }{
		"eve": {vision, others}, "bob": {others[:1], slices.Concat(vision, others[1:])}, "all": {slices.Concat(vision, others), nil},
	} {
		got := h.scrape(t, token(caller))
		if !slices.Contains(got, "outbid_device_seconds_total 4.5") {
			t.Errorf("%s does not see what all tenants used", caller)
		}
		for _, line := range want.sees {
			if !slices.Contains(got, line) {
				t.Errorf("%s does not see %s", caller, line)
			}
		}
		for _, line := range want.not {
			if slices.Contains(got, line) {
				t.Errorf("%s sees %s", caller, line)
			}
		}
		if slices.ContainsFunc(got, func(line string) bool { return strings.Contains(line, "crowd") }) {
			t.Errorf("%s sees a tenant that is counted with the others on its own", caller)
		}
	}
}

func TestMetricsOfNodes(t *testing.T) {
	t.Parallel()
	h := serve(t, nil)
	node := func(name string, in outbidv1.NodeState) *outbidv1.Node {
		return &outbidv1.Node{Info: &outbidv1.NodeInfo{
			Name: name, Devices: []*outbidv1.Device{{Index: 0, Type: "v100"}, {Index: 1, Type: "v100"}},
		}, State: in, Uses: []*outbidv1.DeviceUse{{Device: 1, Fork: &outbidv1.ForkRef{Sweep: "digits-1"}}}}
	}
	h.control.nodes = []*outbidv1.Node{
		node("n1", outbidv1.NodeState_NODE_STATE_UP), node("n2", outbidv1.NodeState_NODE_STATE_DRAINING),
		node("n3", outbidv1.NodeState_NODE_STATE_LOST), node("n4", outbidv1.NodeState_NODE_STATE_LEFT),
	}
	soon := timestamppb.New(time.Now().Add(time.Hour))
	h.control.nodes[0].Faults = []*outbidv1.NodeFault{{Unfit: true}, {Sweep: "digits-1", Until: soon}}
	h.control.nodes[1].Faults = []*outbidv1.NodeFault{{Cordoned: true, Until: timestamppb.New(time.Unix(9, 0))}, {AfterStart: true, Until: soon}}
	got := h.scrape(t, "")
	for _, line := range []string{
		`outbid_node_kept_off{cause="unfit",node="n1"} 1`, `outbid_node_kept_off{cause="failures",node="n1"} 0`,
		`outbid_node_kept_off{cause="cordoned",node="n2"} 1`, `outbid_node_kept_off{cause="failures",node="n2"} 1`,
		`outbid_node_kept_off{cause="unfit",node="n3"} 0`,
		`outbid_node_state{node="n1",state="up"} 1`, `outbid_node_state{node="n1",state="lost"} 0`,
		`outbid_node_state{node="n2",state="draining"} 1`, `outbid_node_state{node="n3",state="lost"} 1`,
		`outbid_node_devices{node="n3",type="v100"} 2`, `outbid_node_devices_held{node="n3",type="v100"} 1`,
		`outbid_devices{type="v100",use="free"} 1`, `outbid_devices{type="v100",use="held"} 3`,
		`outbid_devices{type="v100",use="draining"} 1`, `outbid_devices{type="v100",use="away"} 1`,
	} {
		if !slices.Contains(got, line) {
			t.Errorf("/metrics lacks %s", line)
		}
	}
	if slices.ContainsFunc(got, func(line string) bool { return strings.Contains(line, `"n4"`) }) {
		t.Error("a node that has left is exported")
	}
}

// TestMetricsOfAStandby checks that a standby serves its own metrics to callers with a token.
func TestMetricsOfAStandby(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "outbid_leader"}, func() float64 { return 0 }))
	handler := StandbyMetrics(registry, testTokens(t), nil)
	for tok, want := range map[string]int{"": http.StatusUnauthorized, token("eve"): http.StatusOK} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://outbid.example/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		if tok != "" {
			req.Header.Set("Authorization", "Bearer "+tok)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, req)
		if w.Code != want || strings.Contains(w.Body.String(), "\noutbid_leader 0\n") != (want == http.StatusOK) {
			t.Errorf("token %.3q: %d: %s", tok, w.Code, w.Body)
		}
	}
}
