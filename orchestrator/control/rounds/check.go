package rounds

import (
	"fmt"
	"slices"
	"strings"

	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Check returns what the policy and the bidders of this server do not support of a spec.
func (rs *Rounds) Check(spec *outbidv1.SweepSpec) error {
	if err := CheckBidder(rs.policy, rs.set.Bidders, spec); err != nil {
		return err
	}
	return checkForks(rs.policy, spec)
}

// CheckBidder returns what is wrong with the bidder that a sweep chose.
func CheckBidder(p policy.Policy, bidders Bidders, spec *outbidv1.SweepSpec) error {
	name := spec.GetAgent().GetPlugin()
	if name == "" {
		return nil
	}
	if _, ok := p.(policy.Bidding); !ok {
		return fmt.Errorf("%w: agent.plugin: policy %s of this server does not hold auctions, so bidder %q would never be asked; "+
			"leave agent out, or submit to a server with a policy that does, such as themis", state.ErrInvalid, p.Name(), name)
	}
	var names []string
	if bidders != nil {
		names = bidders.Names()
	}
	if slices.Contains(names, name) {
		return nil
	}
	has := "it has none"
	if len(names) > 0 {
		has = "it has " + strings.Join(names, ", ")
	}
	return fmt.Errorf("%w: agent.plugin: this server has no bidder %q; %s", state.ErrInvalid, name, has)
}

// checkForks returns an error if a sweep asks for forks and the policy does not support them.
func checkForks(p policy.Policy, sp *outbidv1.SweepSpec) error {
	if sp.GetResources().GetForks() == "" || policy.ForksJobs(p) {
		return nil
	}
	return fmt.Errorf("%w: resources.forks: policy %s of this server does not fork trials; "+
		"leave forks out, or submit to a server with a policy that does, such as themis",
		state.ErrInvalid, p.Name())
}
