package control

import (
	"sync"

	"google.golang.org/protobuf/proto"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// recentRounds and recentBytes limit the rounds that are kept in memory.
const (
	recentRounds = 4096
	recentBytes  = 16 << 20
)

// recent holds the policy's newest rounds, so that they can be read without the ledger. It is safe for concurrent
// use.
type recent struct {
	mu     sync.Mutex
	rounds []*outbidv1.Round // in the order of the ledger
	sizes  []int
	bytes  int
	// from is the first batch whose rounds are all here.
	from uint64
	// fared holds the result of the last auction that concerned each sweep. The values must not be changed.
	fared map[string]*outbidv1.AuctionFairness
}

// begin clears everything. Rounds from a batch on will be added.
func (r *recent) begin(from uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rounds, r.sizes, r.bytes, r.from, r.fared = nil, nil, 0, from, nil
}

// add copies the rounds of the next batch.
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
		for len(r.rounds) > 0 && r.rounds[0].GetSeq() < r.from { // keep or drop the rounds of a batch together
			r.bytes -= r.sizes[0]
			r.rounds[0] = nil
			r.rounds, r.sizes = r.rounds[1:], r.sizes[1:]
		}
	}
}

// fare records the results of an auction for the sweeps in it. The caller holds the lock.
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

// lastFared returns the result of the last auction that concerned a sweep, or nil.
func (r *recent) lastFared(sweep string) *outbidv1.AuctionFairness {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fared[sweep]
}

// forget drops the auction results of a sweep that has ended.
func (r *recent) forget(sweep string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.fared, sweep)
}

// newest calls f with rounds, newest first, until it returns false. The caller must copy a round to keep or change
// it. It returns the first batch whose rounds were all available.
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
