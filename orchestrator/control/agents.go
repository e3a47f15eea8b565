package control

import (
	"fmt"
	"slices"
	"strings"

	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// checkAgent returns what is wrong with the agent that a sweep chose.
func checkAgent(p policy.Policy, agents Agents, spec *outbidv1.SweepSpec) error {
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

// CheckAgent returns what is wrong with the agent that a sweep chose, as Submit does.
func (l *Loop) CheckAgent(spec *outbidv1.SweepSpec) error {
	return checkAgent(l.cfg.Policy, l.cfg.Settings.Agents, spec)
}

// AgentUp reports that an external agent has become able to answer.
type AgentUp struct{}

func (AgentUp) apply(c *Core) { c.scheduleDue = true }

// AgentUp starts a new round, because an agent has become able to answer.
func (l *Loop) AgentUp() {
	select {
	case l.in <- AgentUp{}:
	case <-l.done:
	}
}
