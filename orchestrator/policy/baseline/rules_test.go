package baseline_test

import (
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/baseline"
	"github.com/outbid-dev/outbid/orchestrator/policy/policytest"
)

// The registry tests every policy with default options; this tests others.
func TestOptionsKeepTheRules(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		make func() policy.Policy
	}{
		"srtf by app": {make: func() policy.Policy { return baseline.SRTF{Unit: baseline.ByApp} }},
		"tiresias by app": {make: func() policy.Policy {
			return &baseline.Tiresias{Thresholds: []float64{100}, Interval: time.Minute, Unit: baseline.ByApp}
		}},
		"tiresias of three queues that promotes": {make: func() policy.Policy {
			return &baseline.Tiresias{Thresholds: []float64{50, 300}, Interval: 10 * time.Second, Promote: 0.5}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			policytest.Run(t, tc.make)
		})
	}
}
