package rounds_test

import (
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/lab/policy/gavel/rounds"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/policytest"
)

// The registry's tests run all of them without whole-steps.
func TestTheRulesAreKeptWithWholeSteps(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"gavel-las", "gavel-fifo", "gavel-ftf-perf"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			policytest.Run(t, func() policy.Policy {
				return rounds.New(name, policy.NewOptions(map[string]string{"whole-steps": "true"}))
			})
		})
	}
}
