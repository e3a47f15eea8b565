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

// PolicyFactories checks the names and options of policies. The round and the seed become options of the policies that
// have these, unless their options set them. With gavel, Gavel's policies count steps as Gavel's simulator does.
func PolicyFactories(names, options []string, round time.Duration, seed uint64, gavel bool) ([]PolicyFactory, error) {
	if len(names) == 0 {
		return nil, badInput("--policy is empty: want names from %s", strings.Join(registry.Names(), ", "))
	}
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			return nil, badInput("--policy names %s twice", name)
		}
	}
	used := make([]bool, len(options))
	var factories []PolicyFactory
	for _, name := range names {
		var pairs []string
		for i, option := range options {
			pair, mine := optionFor(name, option, names)
			if mine {
				used[i] = true
				pairs = append(pairs, pair)
			}
		}
		if round > 0 {
			pairs = unlessGiven(pairs, name, "round", round.String())
		}
		pairs = unlessGiven(pairs, name, "seed", strconv.FormatUint(seed, 10))
		if gavel {
			pairs = unlessGiven(pairs, name, "whole-steps", "true")
			pairs = gavelFIFO(pairs, name, round)
		}
		fresh := func() (policy.Policy, error) {
			o, err := policy.ParseOptions(pairs)
			if err != nil {
				return nil, err
			}
			return registry.New(name, o)
		}
		o, err := policy.ParseOptions(pairs)
		if err == nil {
			_, err = registry.New(name, o)
		}
		if err != nil {
			return nil, badInput("%w", err)
		}
		factories = append(factories, PolicyFactory{Name: name, Options: o.Resolved(), New: fresh})
	}
	if i := slices.Index(used, false); i >= 0 {
		return nil, badInput("--option %s: none of the policies %s has it%s", options[i], strings.Join(names, ", "),
			optionsOf(names))
	}
	return factories, nil
}

// gavelFIFO makes fifo behave like Gavel's, unless it has options.
func gavelFIFO(pairs []string, name string, round time.Duration) []string {
	if name != "fifo" || len(pairs) > 0 {
		return pairs
	}
	pairs = append(pairs, "rules=gavel", "whole-steps=true")
	if round > 0 {
		pairs = append(pairs, "round="+round.String())
	}
	return pairs
}

// unlessGiven adds an option that the policy has and that is not set.
func unlessGiven(pairs []string, policy, option, value string) []string {
	given := slices.ContainsFunc(pairs, func(pair string) bool { return strings.HasPrefix(pair, option+"=") })
	if given || !hasOption(policy, option) {
		return pairs
	}
	return append(pairs, option+"="+value)
}

// optionFor reports whether an option applies to a policy, and returns it without the policy's name. An option without
// a name applies to every policy that has it. If there is only one policy, all apply, so that it reports unknown ones.
func optionFor(name, option string, names []string) (pair string, mine bool) {
	key, _, _ := strings.Cut(option, "=")
	if prefix, _, ok := strings.Cut(key, "."); ok && slices.Contains(registry.Names(), prefix) {
		return strings.TrimPrefix(option, prefix+"."), prefix == name
	}
	return option, len(names) == 1 || hasOption(name, key)
}

func hasOption(name, option string) bool {
	return slices.ContainsFunc(registry.Options(name), func(o policy.Option) bool { return o.Name == option })
}

// optionsOf lists the valid options.
func optionsOf(names []string) string {
	var all []string
	for _, name := range names {
		for _, o := range registry.Options(name) {
			all = append(all, name+"."+o.Name)
		}
	}
	if len(all) == 0 {
		return ": they have no options"
	}
	return "; there are " + strings.Join(all, ", ")
}
