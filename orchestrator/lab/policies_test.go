package lab_test

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outbid-dev/outbid/orchestrator/lab"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/policytest"
)

func TestEveryPolicyKeepsTheRules(t *testing.T) {
	t.Parallel()
	for _, name := range lab.Policies().Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var traits []policytest.Trait
			if name == "rrh" || name == "oasis" { // admission control
				traits = append(traits, policytest.MayRefuse)
			}
			policytest.Run(t, func() policy.Policy {
				p, err := lab.Policies().New(name, nil)
				if err != nil {
					t.Fatal(err)
				}
				return p
			}, traits...)
		})
	}
}

// A ledger records a policy's name and all its options, default ones included, and an equal policy can be made from
// them.
func TestPoliciesAreMadeAgainFromTheirResolvedOptions(t *testing.T) {
	t.Parallel()
	insides := []cmp.Option{
		cmp.Exporter(func(reflect.Type) bool { return true }),
		cmp.FilterPath(func(p cmp.Path) bool { return p.Last().Type().Kind() == reflect.Func }, cmp.Ignore()),
	}
	for _, name := range lab.Policies().Names() {
		for _, given := range []map[string]string{nil, {"rules": "gavel"}, {"seed": "7"}} {
			for option := range given {
				if !lab.Policies().HasOption(name, option) {
					given = nil
				}
			}
			first := policy.NewOptions(given)
			p, err := lab.Policies().New(name, first)
			if err != nil {
				t.Fatal(err)
			}
			if p.Name() != name {
				t.Errorf("policy %s calls itself %s: a ledger's policy is looked for by that name", name, p.Name())
			}
			second := policy.NewOptions(first.Resolved())
			again, err := lab.Policies().New(name, second)
			if err != nil {
				t.Errorf("%s from %v: %v", name, first.Resolved(), err)
				continue
			}
			if diff := cmp.Diff(p, again, insides...); diff != "" {
				t.Errorf("%s from %v is another (-first +second):\n%s", name, first.Resolved(), diff)
			}
			if diff := cmp.Diff(first.Resolved(), second.Resolved()); diff != "" {
				t.Errorf("%s has other options then (-first +second):\n%s", name, diff)
			}
		}
	}
}
