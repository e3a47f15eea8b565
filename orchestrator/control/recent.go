package control

import (
	"sync"

	"google.golang.org/protobuf/proto"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// How much of the newest rounds is kept in memory.
const (
	recentRounds = 4096
	recentBytes  = 16 << 20
)

// recent is the newest rounds of the policy, so that whoever looks at those does not read the ledger. It may be used by
// several goroutines.
type recent struct {
	mu     sync.Mutex
	rounds []*outbidv1.Round // in the order of the ledger
	sizes  []int
	bytes  int
	// from is the first batch whose rounds are all here.
	from uint64
	// fared is how the newest auction that each sweep had a part in left it. The values never change.
	fared map[string]*outbidv1.AuctionFairness
}

// begin forgets everything: rounds are known from a batch on.
func (r *recent) begin(from uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rounds, r.sizes, r.bytes, r.from, r.fared = nil, nil, 0, from, nil
}

// add takes the rounds of a batch, which follows the one before. They are copied.
func (r *recent) add(rounds []*outbidv1.Round) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, round := range rounds {
		round = proto.CloneOf(round)
		r.fare(round)
		size := proto.Size(round)
		r.rounds, r.sizes, r.bytes = append(r.rounds, round), append(r.sizes, size), r.bytes+size
	}
	for len(r.rounds) > recentRounds || r.bytes > recentBytes && len(r.rounds) > 1 {
		r.from = r.rounds[0].GetSeq() + 1
		for len(r.rounds) > 0 && r.rounds[0].GetSeq() < r.from { // a batch is here whole or not at all
			r.bytes -= r.sizes[0]
			r.rounds[0] = nil
			r.rounds, r.sizes = r.rounds[1:], r.sizes[1:]
		}
	}
}

// fare notes how an auction left the sweeps that it asked or gave something. The caller holds the lock.
func (r *recent) fare(round *outbidv1.Round) {
	for _, b := range round.GetAuction().GetBidders() {
		if b.GetRhoAfter() <= 0 {
			continue
		}
		if r.fared == nil {
			r.fared = map[string]*outbidv1.AuctionFairness{}
		}
		r.fared[b.GetSweep()] = &outbidv1.AuctionFairness{
			Round: round.GetRound(), Time: round.GetTime(), Rho: b.GetRhoAfter(), AloneSeconds: b.GetIdealSeconds(),
		}
	}
}

// lastFared is how the newest auction that a sweep had a part in left it; nil if there was none.
func (r *recent) lastFared(sweep string) *outbidv1.AuctionFairness {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fared[sweep]
}

// forget drops how auctions left a sweep that has ended.
func (r *recent) forget(sweep string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.fared, sweep)
}

// newest calls f with rounds, the newest first, until it returns false. The caller may keep and change them. It returns
// the first batch whose rounds were all there.
func (r *recent) newest(f func(*outbidv1.Round) bool) (from uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := len(r.rounds) - 1; i >= 0; i-- {
		if !f(r.rounds[i]) {
			break
		}
	}
	return r.from
}
