package experiment

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/registry"
)

// PolicyFactory creates a policy for each run.
type PolicyFactory struct {
	Name string
	// Options are all its options, for the ledger.
	Options map[string]string
	// Mixed allows jobs to mix device types under this policy, regardless of the plan.
	Mixed bool
	New   func() (policy.Policy, error)
}

// Preset adds options NAME=VALUE to those of a policy.
type Preset func(policy string, pairs []string) []string

// PolicyFactories checks the names and options of policies. The round and the seed become options of the policies that
// have these, unless their options set them. preset may add further options, or is nil.
func PolicyFactories(from registry.Registry, names, options []string, round time.Duration, seed uint64, preset Preset) ([]PolicyFactory, error) {
	if len(names) == 0 {
		return nil, BadInput("--policy is empty: want names from %s", strings.Join(from.Names(), ", "))
	}
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			return nil, BadInput("--policy names %s twice", name)
		}
	}
	used := make([]bool, len(options))
	var factories []PolicyFactory
	for _, name := range names {
		var pairs []string
		for i, option := range options {
			pair, mine := optionFor(from, name, option, names)
			if mine {
				used[i] = true
				pairs = append(pairs, pair)
			}
		}
		if round > 0 {
			pairs = UnlessGiven(from, pairs, name, "round", round.String())
		}
		pairs = UnlessGiven(from, pairs, name, "seed", strconv.FormatUint(seed, 10))
		if preset != nil {
			pairs = preset(name, pairs)
		}
		fresh := func() (policy.Policy, error) {
			o, err := policy.ParseOptions(pairs)
			if err != nil {
				return nil, err
			}
			return from.New(name, o)
		}
		o, err := policy.ParseOptions(pairs)
		if err == nil {
			_, err = from.New(name, o)
		}
		if err != nil {
			return nil, BadInput("%w", err)
		}
		factories = append(factories, PolicyFactory{Name: name, Options: o.Resolved(), New: fresh})
	}
	if i := slices.Index(used, false); i >= 0 {
		return nil, BadInput("--option %s: none of the policies %s has it%s", options[i], strings.Join(names, ", "),
			optionsOf(from, names))
	}
	return factories, nil
}

// UnlessGiven adds an option that the policy has and that is not set.
func UnlessGiven(from registry.Registry, pairs []string, policy, option, value string) []string {
	given := slices.ContainsFunc(pairs, func(pair string) bool { return strings.HasPrefix(pair, option+"=") })
	if given || !from.HasOption(policy, option) {
		return pairs
	}
	return append(pairs, option+"="+value)
}

// optionFor reports whether an option applies to a policy, and returns it without the policy's name. An option without
// a name applies to every policy that has it. If there is only one policy, all apply, so that it reports unknown ones.
func optionFor(from registry.Registry, name, option string, names []string) (pair string, mine bool) {
	key, _, _ := strings.Cut(option, "=")
	if prefix, _, ok := strings.Cut(key, "."); ok && slices.Contains(from.Names(), prefix) {
		return strings.TrimPrefix(option, prefix+"."), prefix == name
	}
	return option, len(names) == 1 || from.HasOption(name, key)
}

// optionsOf lists the valid options.
func optionsOf(from registry.Registry, names []string) string {
	var all []string
	for _, name := range names {
		for _, o := range from.Options(name) {
			all = append(all, name+"."+o.Name)
		}
	}
	if len(all) == 0 {
		return ": they have no options"
	}
	return "; there are " + strings.Join(all, ", ")
}
