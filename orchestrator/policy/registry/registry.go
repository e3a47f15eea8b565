// Package registry maps names to policies. A Registry is a value that a program chooses and passes on: Product returns the
// policies that servers offer, and other programs add their own with With. A new policy is a new folder and one line in
// Product.
package registry

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/astraea"
	"github.com/outbid-dev/outbid/orchestrator/policy/baseline"
	"github.com/outbid-dev/outbid/orchestrator/policy/hadar"
	"github.com/outbid-dev/outbid/orchestrator/policy/oasis"
	"github.com/outbid-dev/outbid/orchestrator/policy/ogasched"
	"github.com/outbid-dev/outbid/orchestrator/policy/outbid"
	"github.com/outbid-dev/outbid/orchestrator/policy/themis"
)

// Default is the default policy of a server.
const Default = "outbid"

// Maker makes a policy from its options. It reads each of its options; Registry.New reports invalid ones.
type Maker func(*policy.Options) policy.Policy

// Registry is a set of policies by name. The zero Registry has none.
type Registry struct{ makers map[string]Maker }

// Product returns the policies that a server offers.
func Product() Registry {
	return Registry{}.With(map[string]Maker{
		"astraea":  astraea.New,
		"drf":      func(*policy.Options) policy.Policy { return baseline.DRF{} },
		"fifo":     func(*policy.Options) policy.Policy { return baseline.FIFO{} },
		"hadar":    hadar.New,
		"hadare":   hadar.NewForking,
		"las":      func(o *policy.Options) policy.Policy { return baseline.NewLAS(o) },
		"oasis":    oasis.New,
		"ogasched": ogasched.New,
		"outbid":   outbid.New,
		"srtf":     func(o *policy.Options) policy.Policy { return baseline.SRTF{Unit: baseline.UnitOption(o)} },
		"themis":   func(o *policy.Options) policy.Policy { return themis.New(o) },
		"tiresias": func(o *policy.Options) policy.Policy { return baseline.NewTiresias(o) },
	})
}

// With returns a registry with further policies, which replace those of the same name.
func (r Registry) With(more map[string]Maker) Registry {
	all := make(map[string]Maker, len(r.makers)+len(more))
	maps.Copy(all, r.makers)
	maps.Copy(all, more)
	return Registry{all}
}

// Empty reports whether the registry has no policies.
func (r Registry) Empty() bool { return len(r.makers) == 0 }

// Names lists the policies, sorted.
func (r Registry) Names() []string { return slices.Sorted(maps.Keys(r.makers)) }

// Forking lists the policies that train a trial on several forks by default, sorted.
func (r Registry) Forking() []string {
	return slices.DeleteFunc(r.Names(), func(name string) bool {
		return !policy.ForksJobs(r.makers[name](policy.NewOptions(nil)))
	})
}

// New makes a policy by name. options may be nil.
func (r Registry) New(name string, options *policy.Options) (policy.Policy, error) {
	m, ok := r.makers[name]
	if !ok {
		return nil, fmt.Errorf("policy: there is no policy %q; there are %s", name, strings.Join(r.Names(), ", "))
	}
	if options == nil {
		options = policy.NewOptions(nil)
	}
	p := m(options)
	if err := options.Err(); err != nil {
		return nil, fmt.Errorf("policy %s: %w", name, err)
	}
	return p, nil
}

// Options lists the options of a policy for help texts, or nil for an unknown policy.
func (r Registry) Options(name string) []policy.Option {
	m, ok := r.makers[name]
	if !ok {
		return nil
	}
	o := policy.NewOptions(nil)
	m(o)
	return o.Known()
}

// HasOption reports whether a policy has an option.
func (r Registry) HasOption(name, option string) bool {
	return slices.ContainsFunc(r.Options(name), func(o policy.Option) bool { return o.Name == option })
}
