package server

import (
	"log/slog"

	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// newPolicy returns the policy, and all of its options with their values.
func (c *Config) newPolicy() (policy.Policy, map[string]string, error) {
	options := policy.NewOptions(c.PolicyOptions)
	rules, err := c.Policies.New(c.Policy, options)
	if err != nil {
		return nil, nil, badField("Policy", "%w", err)
	}
	return rules, options.Resolved(), nil
}

// earlierPolicy returns a function that creates the policy of an earlier start of this server, so that it can rebuild
// that policy's state. If this version cannot create it, the current policy is used instead, so that the server still
// starts.
func (c *Config) earlierPolicy(log *slog.Logger) func(*outbidv1.PolicySettings) (policy.Policy, error) {
	return func(then *outbidv1.PolicySettings) (policy.Policy, error) {
		rules, err := c.Policies.New(then.GetName(), policy.NewOptions(then.GetOptions()))
		if err == nil {
			return rules, nil
		}
		log.Warn("the policy of an earlier start cannot be created; its state is computed with the current options",
			"policy", then.GetName(), "options", control.OptionsText(then.GetOptions()), "err", err)
		rules, _, err = c.newPolicy()
		return rules, err
	}
}

// warnUnasked warns if bidders are configured but the policy does not hold auctions.
func (s *Server) warnUnasked(rules policy.Policy) {
	if _, ok := rules.(policy.Bidding); !ok && len(s.cfg.Bidders) > 0 {
		s.log.Warn("the policy does not hold auctions, so bidders are never asked; sweeps that choose one are rejected",
			"policy", rules.Name())
	}
}
