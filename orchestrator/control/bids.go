package control

import (
	"fmt"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/agent"
	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// A round with external bidders is decided twice, so that the core need not wait for them.
//
// First the policy decides with an agent that only records the requests for bids. If there are any, that round is
// undone: the policy's state is restored, and the recorded requests are sent to the agents. The core continues with
// reports, tuners, commands and nodes. Only rounds wait, for as long as agents may take for a bid. When the answer
// comes back as an input, the policy decides on the current state, with the agents' bids as far as they still fit.
//
// Questions are not in the ledger and need not be. The record of an auction has all answers, and the round was
// decided on the state that it follows in the ledger. So a restore, a replay or the next leader asks no agent about
// the past. The next leader asks open questions again, about its own state.

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

// BidsAnswer is the answer of external agents to a question, or the errors of those that failed. It is ignored unless
// the question is open.
type BidsAnswer struct {
	Question uint64
	Answers  agent.Answers
}

func (in BidsAnswer) apply(c *Core) {
	if c.awaitsBids() && in.Question == c.bids.question {
		c.bids.answers, c.bids.answered, c.scheduleDue = in.Answers, true, true
	}
}

// bids is a round that is decided again when external agents have answered.
type bids struct {
	question uint64
	answered bool
	answers  agent.Answers
}

// awaitsBids reports whether rounds wait for external agents.
func (c *Core) awaitsBids() bool { return c.bids != nil && !c.bids.answered }

// bidders sets who bids for external agents in a round: their answers, or an agent that records the requests.
func (c *Core) bidders(r *round) {
	answered := c.bids
	c.bids = nil
	if _, ok := c.policy.(policy.Bidding); !ok || c.set.Agents == nil || !slices.ContainsFunc(r.view.Apps, bidsOutside) {
		return
	}
	if answered != nil {
		r.outside = answered.answers
		return
	}
	before, err := c.policy.Snapshot()
	if err != nil { // such a policy cannot decide a round twice, so nothing is bid
		r.outside = agent.Answers{}
		return
	}
	r.notes, r.before = &agent.Notes{}, before
	r.outside = r.notes
}

// asksOutside reports whether external agents must be asked before a round. If so, it undoes the round.
func (c *Core) asksOutside(r *round) bool {
	if r.notes == nil || len(r.notes.Requests) == 0 {
		return false
	}
	if err := c.policy.Restore(r.before); err != nil {
		c.err = fmt.Errorf("policy %s cannot restore its own snapshot: %w", c.policy.Name(), err)
		return true
	}
	c.asked++
	c.bids = &bids{question: c.asked}
	c.out.Bids = &BidsQuestion{c.asked, r.notes.Requests}
	return true
}

func bidsOutside(a *policy.App) bool { return a.Spec.GetAgent().GetPlugin() != "" }

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
