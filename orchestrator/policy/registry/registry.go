// Package registry names every policy. A new policy is one new folder and one line here.
package registry

import (
	"fmt"
	"slices"
	"strings"

	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/baseline"
)

type maker func() policy.Policy

func makers() map[string]maker {
	return map[string]maker{
		"fifo": func() policy.Policy { return baseline.FIFO{} },
		"drf":  func() policy.Policy { return baseline.DRF{} },
	}
}

// Default is the policy of a server that was not told another.
const Default = "drf"

// Names lists the policies, sorted.
func Names() []string {
	var names []string
	for name := range makers() {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// New makes a policy by name.
func New(name string) (policy.Policy, error) {
	m, ok := makers()[name]
	if !ok {
		return nil, fmt.Errorf("policy: there is no policy %q; there are %s", name, strings.Join(Names(), ", "))
	}
	return m(), nil
}
