package rounds

import (
	"fmt"
	"slices"
	"strings"

	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Check returns what the policy and the agents of this server do not support of a spec.
func (rs *Rounds) Check(spec *outbidv1.SweepSpec) error {
	if err := CheckAgent(rs.policy, rs.set.Agents, spec); err != nil {
		return err
	}
	return checkForks(rs.policy, spec)
}

// CheckAgent returns what is wrong with the agent that a sweep chose.
func CheckAgent(p policy.Policy, agents Agents, spec *outbidv1.SweepSpec) error {
	name := spec.GetAgent().GetPlugin()
	if name == "" {
		return nil
	}
	if _, ok := p.(policy.Bidding); !ok {
		return fmt.Errorf("%w: agent.plugin: policy %s of this server does not hold auctions, so agent %q would never be asked; "+
			"leave agent out, or submit to a server with a policy that does, such as themis", state.ErrInvalid, p.Name(), name)
	}
	var names []string
	if agents != nil {
		names = agents.Names()
	}
	if slices.Contains(names, name) {
		return nil
	}
	has := "it has none"
	if len(names) > 0 {
		has = "it has " + strings.Join(names, ", ")
	}
	return fmt.Errorf("%w: agent.plugin: this server has no agent %q; %s", state.ErrInvalid, name, has)
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
