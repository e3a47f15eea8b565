package control

import (
	"github.com/outbid-dev/outbid/orchestrator/agent"
	"github.com/outbid-dev/outbid/orchestrator/control/rounds"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// CheckAgent returns what is wrong with the agent that a sweep chose, as Submit does.
func (l *Loop) CheckAgent(spec *outbidv1.SweepSpec) error {
	return rounds.CheckAgent(l.cfg.Policy, l.cfg.Settings.Agents, spec)
}

// AgentUp starts a new round, because an agent has become able to answer.
func (l *Loop) AgentUp() {
	select {
	case l.in <- AgentUp{}:
	case <-l.done:
	}
}

// BidsQuestion is a question to external agents.
type BidsQuestion struct {
	// Number counts a core's questions, from 1.
	Number uint64
	Asked  []agent.BidRequest
}

// Ask asks the agents and waits for their answers. It may be called from any goroutine.
func (q *BidsQuestion) Ask(a agent.Agent) BidsAnswer {
	return BidsAnswer{Question: q.Number, Answers: agent.Ask(a, q.Asked)}
}

// askAgents asks external agents concurrently and sends their answer as an input. The pool limits how long they may
// take.
func (l *Loop) askAgents(q *BidsQuestion) {
	if q == nil {
		return
	}
	go func() {
		in := q.Ask(l.cfg.Settings.Agents)
		select {
		case l.in <- in:
		case <-l.leading.Done():
		case <-l.done:
		}
	}()
}
