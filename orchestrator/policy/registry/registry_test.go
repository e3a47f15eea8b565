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
			var traits []policytest.Trait
			if name == "rrh" || name == "oasis" { // admission control
				traits = append(traits, policytest.MayRefuse)
			}
			policytest.Run(t, func() policy.Policy {
				p, err := registry.New(name, nil)
				if err != nil {
					t.Fatal(err)
				}
				return p
			}, traits...)
		})
	}
}

func TestUnknownPolicyNamesThoseThereAre(t *testing.T) {
	t.Parallel()
	_, err := registry.New("themes", nil)
	if err == nil || !strings.Contains(err.Error(), `"themes"; there are `) {
		t.Fatalf("error was %v", err)
	}
}
