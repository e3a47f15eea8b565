package control

import (
	"fmt"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/agent"
	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// A round in which agents outside the binary bid is gone through twice, as nobody waits for them.
//
// First the policy decides with an agent that only notes what it is asked. If it asks for bids, that round did not happen: the
// policy's memory is put back, and what was noted is the question to the agents. The core goes on without their answer: reports,
// tuners, commands, nodes. Only rounds wait, for as long as agents may take for a bid. When the answer comes back, as
// an input, the policy decides on what there is by then, with the agents' bids as far as they still fit.
//
// So nothing of a question is in the ledger, nor need it be: a round has all that was answered in its auction's record, and was
// decided on the state that it follows in the ledger. Who restores, replays, or leads next asks nobody about the past; a
// question that was open when its leader ended is asked anew by the next one, about what there is then.

// BidsQuestion is what agents outside the binary are to be asked.
type BidsQuestion struct {
	// Number counts a core's questions, from 1.
	Number uint64
	Asked  []agent.BidRequest
}

// Ask asks the agents, and may take as long as they do. It may be called from any goroutine.
func (q *BidsQuestion) Ask(a agent.Agent) BidsAnswer {
	return BidsAnswer{Question: q.Number, Answers: agent.Ask(a, q.Asked)}
}

// BidsAnswer is what agents outside the binary answered to a question, or why one of them did not. It counts if the question is open:
// what comes twice or too late is dropped.
type BidsAnswer struct {
	Question uint64
	Answers  agent.Answers
}

func (in BidsAnswer) apply(c *Core) {
	if c.awaitsBids() && in.Question == c.bids.question {
		c.bids.answers, c.bids.answered, c.scheduleDue = in.Answers, true, true
	}
}

// bids is a round that is gone through again when agents outside have answered.
type bids struct {
	question uint64
	answered bool
	answers  agent.Answers
}

// awaitsBids says whether no round can be decided until agents outside have answered.
func (c *Core) awaitsBids() bool { return c.bids != nil && !c.bids.answered }

// bidders says who bids for agents outside in a round: their answers, or one who notes what they are to be asked.
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
	if err != nil { // it cannot go through a round twice, so nobody bids
		r.outside = agent.Answers{}
		return
	}
	r.notes, r.before = &agent.Notes{}, before
	r.outside = r.notes
}

// asksOutside says whether agents outside are to be asked before a round. Then that was none.
func (c *Core) asksOutside(r *round) bool {
	if r.notes == nil || len(r.notes.Requests) == 0 {
		return false
	}
	if err := c.policy.Restore(r.before); err != nil {
		c.err = fmt.Errorf("policy %s does not go on from its own snapshot: %w", c.policy.Name(), err)
		return true
	}
	c.asked++
	c.bids = &bids{question: c.asked}
	c.out.Bids = &BidsQuestion{c.asked, r.notes.Requests}
	return true
}

func bidsOutside(a *policy.App) bool { return a.Spec.GetAgent().GetPlugin() != "" }

// askAgents has agents outside asked beside the loop, and brings their answer back as an input. The pool bounds how long they
// may take.
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
