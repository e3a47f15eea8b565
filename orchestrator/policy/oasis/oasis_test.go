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
		return NewVariant(policy.NewOptions(map[string]string{"slot": "1m", "slots": "20"}), unconserving())
	}, policytest.MayRefuse)
}
