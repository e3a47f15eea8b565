package registry_test

import (
	"strings"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/policytest"
	"github.com/outbid-dev/outbid/orchestrator/policy/registry"
)

func TestEveryPolicyKeepsTheRules(t *testing.T) {
	t.Parallel()
	for _, name := range registry.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			policytest.Run(t, func() policy.Policy {
				p, err := registry.New(name)
				if err != nil {
					t.Fatal(err)
				}
				return p
			})
		})
	}
}

func TestUnknownPolicyNamesThoseThereAre(t *testing.T) {
	t.Parallel()
	_, err := registry.New("themes")
	if err == nil || !strings.Contains(err.Error(), `"themes"; there are drf, fifo`) {
		t.Fatalf("error was %v", err)
	}
}
