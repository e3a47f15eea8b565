package rounds

import (
	"fmt"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/bidder"
	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// A round with external bidders is decided twice, so that the core need not wait for them.
//
// First the policy decides with a bidder that only records the requests for bids. If there are any, that round is
// undone: the policy's state is restored, and the recorded requests are sent to the bidders. The core continues with
// reports, tuners, commands and nodes. Only rounds wait, for as long as bidders may take for a bid. When the answer
// comes back as an input, the policy decides on the current state, with the bidders' bids as far as they still fit.
//
// Questions are not in the ledger and need not be. The record of an auction has all answers, and the round was
// decided on the state that it follows in the ledger. So a restore, a replay or the next leader asks no bidder about
// the past. The next leader asks open questions again, about its own state.

// Bidders bid for the sweeps that chose one of them.
type Bidders interface {
	bidder.Bidder
	// Names returns the sorted names of the bidders.
	Names() []string
}

// Question is a question to external bidders.
type Question struct {
	// Number counts a core's questions, from 1.
	Number uint64
	Asked  []bidder.BidRequest
}

// TakeQuestion returns what external bidders are to be asked, once, or nil.
func (rs *Rounds) TakeQuestion() *Question {
	q := rs.question
	rs.question = nil
	return q
}

// Bid takes the answer of external bidders to a question, if it is the open one.
func (rs *Rounds) Bid(question uint64, answers bidder.Answers) {
	if rs.awaitsBids() && question == rs.bids.question {
		rs.bids.answers, rs.bids.answered = answers, true
		rs.core.AskPolicy()
	}
}

// bids is a round that is decided again when external bidders have answered.
type bids struct {
	question uint64
	answered bool
	answers  bidder.Answers
}

// awaitsBids reports whether rounds wait for external bidders.
func (rs *Rounds) awaitsBids() bool { return rs.bids != nil && !rs.bids.answered }

// setBids sets the bids of external bidders in a round: their answers, or a bidder that records the requests.
func (rs *Rounds) setBids(r *round) {
	answered := rs.bids
	rs.bids = nil
	if _, ok := rs.policy.(policy.Bidding); !ok || rs.set.Bidders == nil || !slices.ContainsFunc(r.view.Apps, bidsOutside) {
		return
	}
	if answered != nil {
		r.outside = answered.answers
		return
	}
	before, err := rs.policy.Snapshot()
	if err != nil { // such a policy cannot decide a round twice, so nothing is bid
		r.outside = bidder.Answers{}
		return
	}
	r.notes, r.before = &bidder.Notes{}, before
	r.outside = r.notes
}

// asksOutside reports whether external bidders must be asked before a round. If so, it undoes the round.
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
