package control

import (
	"github.com/outbid-dev/outbid/orchestrator/agent"
)

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
	if q != nil {
		go func() { l.queue.put(q.Ask(l.cfg.Settings.Agents)) }()
	}
}
