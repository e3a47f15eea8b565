package ablation

import (
	"github.com/outbid-dev/outbid/orchestrator/lab/policy/gavel/rounds"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/astraea"
	"github.com/outbid-dev/outbid/orchestrator/policy/baseline"
	"github.com/outbid-dev/outbid/orchestrator/policy/hadar"
	"github.com/outbid-dev/outbid/orchestrator/policy/oasis"
	"github.com/outbid-dev/outbid/orchestrator/policy/ogasched"
	"github.com/outbid-dev/outbid/orchestrator/policy/ogasched/ascent"
)

// FIFO makes Outbid's FIFO, or Gavel's under the same name where the two are compared.
func FIFO(o *policy.Options) policy.Policy {
	const help = "outbid; or gavel, as in Gavel's simulator: in rounds and with the options of gavel-fifo"
	if o.Text("rules", "outbid", help, "outbid", "gavel") == "gavel" {
		return rounds.New("fifo", o)
	}
	return baseline.FIFO{Workers: o.Int("workers", 0, 0, 1<<20,
		"how many times its minimum a trial gets, over several nodes if it may spread; 0 for as many devices as are free on one node")}
}

// Astraea makes policy astraea.
func Astraea(o *policy.Options) policy.Policy {
	return astraea.NewVariant(o, astraea.Variant{
		Weights: o.Weights("weights", "weights of tenants, such as vision=2,speech=1; others have their configured weight, or 1"),
		ByDemand: o.Text("share", "quota", "a tenant's fair share: quota, its quota (equation 16); or demand, at most what it asks for (equation 8)",
			"quota", "demand") == "demand",
		NewFirst: o.Bool("new-first", true, "within a tenant, trials that have held nothing yet come first"),
		SkipTenant: o.Text("blocked", "tenant", "what to skip for a round if a trial finds no place: tenant or job",
			"tenant", "job") == "tenant",
		Together: o.Text("terms", "own", "when terms end: own, each lease's term after its grant; or together",
			"own", "together") == "together",
	})
}

// Hadar makes policy hadar.
func Hadar(o *policy.Options) policy.Policy { return hadar.NewVariant(o, hadarVariant(o)) }

// HadarE makes policy hadare.
func HadarE(o *policy.Options) policy.Policy { return hadar.NewForkingVariant(o, hadarVariant(o)) }

func hadarVariant(o *policy.Options) hadar.Variant {
	return hadar.Variant{
		Window: o.Int("window", 8, 1, 16, "number of trials that the dynamic program decides about at once"),
		Relative: o.Text("utility", "throughput",
			"a trial's utility: throughput, its steps per second since it was submitted; or relative, that over its rate on its fastest devices",
			"throughput", "relative") == "relative",
		Cheapest: o.Text("choose", "payoff", "which allocation a trial gets: payoff, the one with the largest payoff (eq. 4); or cost, the cheapest "+
			"(algorithm 2)", "payoff", "cost") == "cost",
		Charge: o.Text("charge", "round", "the devices' price in a payoff: round, for one round (algorithm 2); or schedule, for all rounds until the "+
			"trial would end (equations 3a and 8)", "round", "schedule") == "schedule",
		Conserve: o.Bool("conserve", true, "give devices that prices would leave idle to waiting trials"),
		Always: o.Text("anew", "changed", "when to allocate running trials again: changed, in rounds before which trials or nodes have changed; or "+
			"always, in every round", "changed", "always") == "always",
	}
}

// OASiS makes policy oasis.
func OASiS(o *policy.Options) policy.Policy {
	return oasis.NewVariant(o, oasis.Variant{
		History: o.Int("history", 100, 1, 10_000, "number of latest sweeps that prices are learnt from"),
		Ratio:   o.Float("ratio", 1, 1e-6, 1e6, "factor on the learnt ratio of the highest to the lowest price, for wrong prices"),
		LeastWorth: o.Float("least-worth", 0.01, 1e-300, 1,
			"least worth of a sweep's end for learning prices, relative to the worth of an end at once; 1e-100 is close to the paper, which has none"),
		Conserve: o.Bool("conserve", true, "give devices without a promise for the slot to waiting trials until they are promised"),
	})
}

// OGASched makes policy ogasched.
func OGASched(o *policy.Options) policy.Policy {
	return ogasched.NewVariant(o, ogasched.Variant{
		Utility: ascentUtility(o),
		Rate:    o.Float("rate", 2, 1e-6, 1e6, "length of the first step up the gradient"),
		Decay:   o.Float("decay", 0.9999, 0.5, 1, "length of each later step as a fraction of the previous one"),
	})
}

func ascentUtility(o *policy.Options) ascent.Utility {
	switch o.Text("utility", "log", "form of a sweep's gain from the number of its devices on a node", "linear", "log", "reciprocal", "poly") {
	case "linear":
		return ascent.Linear
	case "reciprocal":
		return ascent.Reciprocal
	case "poly":
		return ascent.Poly
	default:
		return ascent.Log
	}
}
