package server

import (
	"log/slog"

	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/registry"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func (c *Config) makePolicy(name string, options *policy.Options) (policy.Policy, error) {
	if c.Policies != nil {
		return c.Policies(name, options)
	}
	return registry.New(name, options)
}

// newPolicy makes the policy, and says which options it has now, given or not.
func (c *Config) newPolicy() (policy.Policy, map[string]string, error) {
	options := policy.NewOptions(c.PolicyOptions)
	rules, err := c.makePolicy(c.Policy, options)
	if err != nil {
		return nil, nil, badField("Policy", "%w", err)
	}
	return rules, options.Resolved(), nil
}

// earlierPolicy makes the policy of an earlier start of this server, so that it remembers what it knew then. One that
// this version cannot make any more must not keep the server from starting: today's takes its place.
func (c *Config) earlierPolicy(log *slog.Logger) func(*outbidv1.PolicySettings) (policy.Policy, error) {
	return func(then *outbidv1.PolicySettings) (policy.Policy, error) {
		rules, err := c.makePolicy(then.GetName(), policy.NewOptions(then.GetOptions()))
		if err == nil {
			return rules, nil
		}
		log.Warn("the policy cannot be made as it was at an earlier start; what it remembers is worked out with today's options",
			"policy", then.GetName(), "options", control.OptionsText(then.GetOptions()), "err", err)
		rules, _, err = c.newPolicy()
		return rules, err
	}
}

// warnUnasked says that agents were named that nobody will ask.
func (s *Server) warnUnasked(rules policy.Policy) {
	if _, ok := rules.(policy.Bidding); !ok && len(s.cfg.Agents) > 0 {
		s.log.Warn("the policy holds no auctions, so agents outside are never asked; sweeps that choose one are refused",
			"policy", rules.Name())
	}
}
