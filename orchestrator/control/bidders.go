package control

import (
	"github.com/outbid-dev/outbid/orchestrator/bidder"
)

// BidsQuestion is a question to external bidders.
type BidsQuestion struct {
	// Number counts a core's questions, from 1.
	Number uint64
	Asked  []bidder.BidRequest
}

// Ask asks the bidders and waits for their answers. It may be called from any goroutine.
func (q *BidsQuestion) Ask(a bidder.Bidder) BidsAnswer {
	return BidsAnswer{Question: q.Number, Answers: bidder.Ask(a, q.Asked)}
}

// askBidders asks external bidders concurrently and sends their answer as an input. The pool limits how long they may
// take.
func (l *Loop) askBidders(q *BidsQuestion) {
	if q != nil {
		go func() { l.queue.put(q.Ask(l.cfg.Settings.Bidders)) }()
	}
}
