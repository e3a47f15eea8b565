package control_test

import (
	"context"
	"fmt"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/bidder"
	"github.com/outbid-dev/outbid/orchestrator/control"
)

// hear makes external bidders answer the open question. Some answers come twice, and some are for an earlier question.
func (l *life) hear() {
	answer := l.bid()
	if l.n(4) == 0 {
		other := answer
		other.Question--
		l.step(other)
	}
	l.question = nil
	l.step(answer)
	l.kinds["bids"]++
	if l.n(4) == 0 {
		l.step(answer)
	}
}

// bid returns the answer of external bidders: like the built-in bidder's, with fewer rows or none.
func (l *life) bid() control.BidsAnswer {
	answer := l.question.Ask(bidder.BuiltIn{})
	apps := make([]string, 0, len(answer.Answers))
	for app := range answer.Answers {
		apps = append(apps, app)
	}
	slices.Sort(apps)
	for _, app := range apps {
		t := answer.Answers[app]
		switch l.n(4) {
		case 0:
			t = bidder.Table{Refused: "not in the mood"}
		case 1:
			t.Rows = slices.DeleteFunc(slices.Clone(t.Rows), func(bidder.Row) bool { return l.n(2) == 0 })
			t.Rho *= 2
		}
		answer.Answers[app] = t
	}
	return answer
}

// questions returns the requests of a question, whatever its number.
func questions(q *control.BidsQuestion) []bidder.BidRequest {
	if q == nil {
		return nil
	}
	return q.Asked
}

// beside leaves some decisions for later.
func (l *life) beside(decide func()) (over bool) {
	if !l.slow || l.calm || l.n(4) > 0 {
		decide()
		return true
	}
	l.deciding = decide
	return false
}

// conclude finishes a decision that was left for later, on the view of that time.
func (l *life) conclude() {
	if decide := l.deciding; decide != nil {
		decide()
		l.deciding = nil
		l.kinds["rounds beside"]++
		calm := l.calm
		l.calm = true
		l.step(control.PolicyDone{})
		l.calm = calm
	}
}

// audit replays the ledger and fails if a decision differs.
func (l *life) audit() {
	l.Helper()
	audit, _, err := control.Replay(context.Background(), l.settings(), l.newPolicy(), l.whole.Another())
	l.must(err)
	if audit.Differing > 0 {
		l.Fatal(fmt.Sprintf("of %d decisions %d come out otherwise: %+v", audit.Decisions, audit.Differing, audit.Differences))
	}
	l.kinds["decisions again"] += audit.Decisions
}
