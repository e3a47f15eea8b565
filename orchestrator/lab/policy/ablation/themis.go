package ablation

import (
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/outbid"
	"github.com/outbid-dev/outbid/orchestrator/policy/themis"
)

// Themis makes policy themis.
func Themis(o *policy.Options) policy.Policy { return themis.NewVariant(o, themisVariant(o)) }

// Outbid makes policy outbid.
func Outbid(o *policy.Options) policy.Policy {
	return outbid.NewVariant(o, outbid.Variant{
		Arbiter: themisVariant(o),
		ByTenant: o.Text("tenants", "share", "how the offer is divided among tenants: share, by their long-term share; or none, all sweeps bid "+
			"for all of it as in Themis", "share", "none") == "share",
		BySweep: o.Text("sweeps", "share", "how the offer is divided among the sweeps if one tenant has them all: share, by their long-term share; or "+
			"none, all bid for all of it as in Themis", "share", "none") == "share",
		AskAll: o.Text("asked", "all", "which sweeps bid for their tenant's part: all; or worst, the tenant's worst 1-f as in Themis",
			"all", "worst") == "all",
		ByRate: o.Text("types", "measured", "which leftover devices a trial gets if types differ: measured, those on which it was measured to be fastest; "+
			"or any as in Themis", "measured", "any") == "measured",
		ForksFill: o.Text("forks", "fill", "which devices forks get: fill, those that would idle; or bid, sweeps also bid for them as in Themis",
			"fill", "bid") == "fill",
	})
}

// themisVariant reads the options of Themis's arbiter.
func themisVariant(o *policy.Options) themis.Variant {
	return themis.Variant{
		Rank: o.Text("rank", "rho", "how sweeps are ranked: rho, by the cached rho as in the paper; or passed-over, by "+
			"the rho that the sweep would have if it got nothing in this round and all it can use afterwards", "rho", "passed-over"),
		Idle: o.Text("idle", "unbounded", "how rank=rho ranks a sweep that holds nothing: unbounded, before all that hold "+
			"something, by its waiting time in units of its T_id; or cached, by its cached rho like the others", "unbounded", "cached"),
		Cover: o.Float("cover", 0, 0, 1e9, "ask at most as many sweeps as could use this many times the devices on offer; 0 for no bound"),
		Nothing: o.Float("nothing", 1, 1, 1e12, "rho in the auction of a sweep that would hold nothing, relative to its rho at a "+
			"quarter of its smallest gang's speed"),
		Grid: o.Float("grid", 1, 0, 1, "leases end together, on a grid of this fraction of a lease; 0 to end each separately"),
		KeepOne: o.Text("rounding", "lottery", "how a winner's devices are rounded to gangs: lottery, at random; or keep-one, to at least one gang",
			"lottery", "keep-one") == "keep-one",
		Leftover: o.Text("leftover", "random", "which sweeps get leftovers first among those not asked: random; keep, which first lets each "+
			"keep what it held; gangs, which does so for trials that need several devices; worst, by rho; or all, which includes "+
			"those that were asked in the same random order",
			"random", "keep", "gangs", "worst", "all"),
		OwnWeights: o.Text("weights", "tenant", "what a sweep's weight changes: tenant, its part of its tenant's share; or own, the share itself, without bound",
			"tenant", "own") == "own",
		Stagger:   o.Bool("stagger", false, "leases end node by node, each node on its own grid, not all at once"),
		Newcomers: o.Bool("newcomers", false, "also ask sweeps that never held anything"),
		Short:     o.Bool("short", false, "also ask sweeps that could end within a lease"),
		Distortion: &distortion{
			errors: o.Float("error", 0, 0, 1, "largest relative error of every sweep's estimates"),
			liars:  o.Float("liars", 0, 0, 1, "fraction of the sweeps that over-report their slowdown"),
			lie:    o.Float("lie", 0.3, 0, 100, "relative size of their over-report"),
		},
	}
}
