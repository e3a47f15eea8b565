package control_test

import (
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/agent"
	"github.com/outbid-dev/outbid/orchestrator/control"
)

// hear has agents outside answer the open question; some answers come twice, and some to another question before.
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

// bid is what agents outside answer: as the server's own, less some rows, or nothing.
func (l *life) bid() control.BidsAnswer {
	answer := l.question.Ask(agent.BuiltIn{})
	apps := make([]string, 0, len(answer.Answers))
	for app := range answer.Answers {
		apps = append(apps, app)
	}
	slices.Sort(apps)
	for _, app := range apps {
		t := answer.Answers[app]
		switch l.n(4) {
		case 0:
			t = agent.Table{Refused: "not in the mood"}
		case 1:
			t.Rows = slices.DeleteFunc(slices.Clone(t.Rows), func(agent.Row) bool { return l.n(2) == 0 })
			t.Rho *= 2
		}
		answer.Answers[app] = t
	}
	return answer
}

// questions are what was asked, whatever its number.
func questions(q *control.BidsQuestion) []agent.Question {
	if q == nil {
		return nil
	}
	return q.Asked
}
