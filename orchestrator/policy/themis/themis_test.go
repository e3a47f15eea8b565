package themis_test

import (
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/policytest"
	"github.com/outbid-dev/outbid/orchestrator/policy/themis"
)

func TestThemisKeepsTheRules(t *testing.T) {
	t.Parallel()
	policytest.Run(t, func() policy.Policy { return themis.New(policy.NewOptions(nil)) })
}
