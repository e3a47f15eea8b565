package themis

import "github.com/outbid-dev/outbid/orchestrator/bidder"

// Variant selects rules that differ from the default ones, for comparisons. No option of the product changes them; the
// lab (orchestrator/lab/policy/ablation) has options for them.
type Variant struct {
	// Rank is how sweeps are ranked: "rho", by the cached rho as in the paper; or "passed-over", by the rho that the
	// sweep would have if it got nothing in this round and all it can use afterwards.
	Rank string
	// Idle is how Rank "rho" ranks a sweep that holds nothing: "unbounded", before all that hold something, by its
	// waiting time in units of its T_id; or "cached", by its cached rho like the others.
	Idle string
	// Cover limits the sweeps that are asked to those that could use this many times the devices on offer; 0 for no
	// limit.
	Cover float64
	// Nothing is the rho in the auction of a sweep that would hold nothing, relative to its rho at a quarter of its
	// smallest gang's speed.
	Nothing float64
	// Grid makes leases end together, on a grid of this fraction of a lease; 0 to end each separately.
	Grid float64
	// KeepOne leaves a winner at least one gang; otherwise its devices are rounded to gangs at random.
	KeepOne bool
	// Leftover selects which sweeps get leftovers first among those not asked: "random"; "keep", which first lets each
	// keep what it held; "gangs", which does so for trials that need several devices; "worst", by rho; or "all", which
	// includes those that were asked in the same random order.
	Leftover string
	// OwnWeights makes a sweep's weight change the share itself, without bound, not only its part of its tenant's share.
	OwnWeights bool
	// Stagger ends leases node by node, each node on its own grid.
	Stagger bool
	// Newcomers also asks sweeps that never held anything, and Short those that could end within a lease.
	Newcomers, Short bool
	// Distortion distorts what sweeps estimate and bid, or is nil.
	Distortion Distortion
}

// Distortion distorts estimates and bids, to measure how much the mechanism depends on the truth. seed is that of the
// policy.
type Distortion interface {
	// Work distorts a sweep's estimate of its remaining work.
	Work(seed uint64, state *bidder.AppState)
	// Table distorts the bids of a sweep. It must not modify the rows of the given table.
	Table(seed uint64, sweep string, t *bidder.Table)
}

// Default returns the variant that the product uses.
func Default() Variant {
	return Variant{Rank: "rho", Idle: "unbounded", Nothing: 1, Grid: 1, Leftover: "random"}
}

// distortWork calls Distortion.Work, if there is a distortion.
func (s *settings) distortWork(state *bidder.AppState) {
	if s.Distortion != nil {
		s.Distortion.Work(s.seed, state)
	}
}

// distortTable calls Distortion.Table, if there is a distortion.
func (s *settings) distortTable(sweep string, t *bidder.Table) {
	if s.Distortion != nil {
		s.Distortion.Table(s.seed, sweep, t)
	}
}
