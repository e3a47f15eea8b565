package oasis

import (
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/policytest"
)

func TestPolicy(t *testing.T) {
	policytest.Run(t, func() policy.Policy { return New(policy.NewOptions(nil)) })
}

func TestPolicyThatLeavesDevicesIdle(t *testing.T) {
	policytest.Run(t, func() policy.Policy {
		return New(policy.NewOptions(map[string]string{"conserve": "false", "slot": "1m", "slots": "20"}))
	}, policytest.MayRefuse)
}
