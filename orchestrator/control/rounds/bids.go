package rounds

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

// Agents bid for the sweeps that chose one of them.
type Agents interface {
	agent.Agent
	// Names returns the sorted names of the agents.
	Names() []string
}

// Question is a question to external agents.
type Question struct {
	// Number counts a core's questions, from 1.
	Number uint64
	Asked  []agent.BidRequest
}

// TakeQuestion returns what external agents are to be asked, once, or nil.
func (rs *Rounds) TakeQuestion() *Question {
	q := rs.question
	rs.question = nil
	return q
}

// Bid takes the answer of external agents to a question, if it is the open one.
func (rs *Rounds) Bid(question uint64, answers agent.Answers) {
	if rs.awaitsBids() && question == rs.bids.question {
		rs.bids.answers, rs.bids.answered = answers, true
		rs.core.AskPolicy()
	}
}

// bids is a round that is decided again when external agents have answered.
type bids struct {
	question uint64
	answered bool
	answers  agent.Answers
}

// awaitsBids reports whether rounds wait for external agents.
func (rs *Rounds) awaitsBids() bool { return rs.bids != nil && !rs.bids.answered }

// bidders sets who bids for external agents in a round: their answers, or an agent that records the requests.
func (rs *Rounds) bidders(r *round) {
	answered := rs.bids
	rs.bids = nil
	if _, ok := rs.policy.(policy.Bidding); !ok || rs.set.Agents == nil || !slices.ContainsFunc(r.view.Apps, bidsOutside) {
		return
	}
	if answered != nil {
		r.outside = answered.answers
		return
	}
	before, err := rs.policy.Snapshot()
	if err != nil { // such a policy cannot decide a round twice, so nothing is bid
		r.outside = agent.Answers{}
		return
	}
	r.notes, r.before = &agent.Notes{}, before
	r.outside = r.notes
}

// asksOutside reports whether external agents must be asked before a round. If so, it undoes the round.
func (rs *Rounds) asksOutside(r *round) bool {
	if r.notes == nil || len(r.notes.Requests) == 0 {
		return false
	}
	if err := rs.policy.Restore(r.before); err != nil {
		rs.core.Fail(fmt.Errorf("policy %s cannot restore its own snapshot: %w", rs.policy.Name(), err))
		return true
	}
	rs.asked++
	rs.bids = &bids{question: rs.asked}
	rs.question = &Question{rs.asked, r.notes.Requests}
	return true
}

func bidsOutside(a *policy.App) bool { return a.Spec.GetAgent().GetPlugin() != "" }
