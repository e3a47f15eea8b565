// Package lab holds what only comparisons of schedulers need: policies that the product does not offer, options that
// switch off parts of those that it offers, generators of workloads, studies and plots. The command outbid-lab is the
// product with all of it. Product code never imports the lab; a test of package orchestrator enforces that.
package lab

import (
	"github.com/outbid-dev/outbid/orchestrator/lab/policy/ablation"
	"github.com/outbid-dev/outbid/orchestrator/lab/policy/allox"
	"github.com/outbid-dev/outbid/orchestrator/lab/policy/baseline"
	"github.com/outbid-dev/outbid/orchestrator/lab/policy/elastic"
	"github.com/outbid-dev/outbid/orchestrator/lab/policy/gandivafair"
	"github.com/outbid-dev/outbid/orchestrator/lab/policy/gavel/rounds"
	"github.com/outbid-dev/outbid/orchestrator/lab/policy/hived"
	"github.com/outbid-dev/outbid/orchestrator/lab/policy/lottery"
	"github.com/outbid-dev/outbid/orchestrator/lab/policy/rrh"
	"github.com/outbid-dev/outbid/orchestrator/lab/policy/shockwave"
	"github.com/outbid-dev/outbid/orchestrator/lab/policy/sia"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	simple "github.com/outbid-dev/outbid/orchestrator/policy/baseline"
	"github.com/outbid-dev/outbid/orchestrator/policy/registry"
)

// Policies returns the product's policies, with their options for comparisons, and the lab's own.
func Policies() registry.Registry {
	return registry.Product().With(ablations()).With(gavel()).With(map[string]registry.Maker{
		"allox":          allox.New,
		"binpack":        func(*policy.Options) policy.Policy { return baseline.BinPack{} },
		"dorm":           elastic.NewDorm,
		"gandiva":        func(o *policy.Options) policy.Policy { return baseline.NewGandiva(o) },
		"gandiva-fair":   gandivafair.New,
		"gandiva-sliced": func(o *policy.Options) policy.Policy { return baseline.NewGandivaSliced(o) },
		"hived":          hived.New,
		"lottery":        lottery.New,
		"optimus":        elastic.NewOptimus,
		"proportional":   func(*policy.Options) policy.Policy { return baseline.Proportional{} },
		"rrh":            rrh.New,
		"shockwave":      shockwave.New,
		"sia":            sia.New,
		"slaq":           elastic.NewSLAQ,
		"spread":         func(*policy.Options) policy.Policy { return baseline.Spread{} },
		"srsf":           func(o *policy.Options) policy.Policy { return baseline.SRSF{Unit: simple.UnitOption(o)} },
		"yarn-cs":        func(o *policy.Options) policy.Policy { return baseline.NewYARN(o) },
	})
}

// ablations returns the product's policies with further options.
func ablations() map[string]registry.Maker {
	return map[string]registry.Maker{
		"astraea":  ablation.Astraea,
		"fifo":     ablation.FIFO,
		"hadar":    ablation.Hadar,
		"hadare":   ablation.HadarE,
		"oasis":    ablation.OASiS,
		"ogasched": ablation.OGASched,
		"outbid":   ablation.Outbid,
		"themis":   ablation.Themis,
	}
}

// gavel returns Gavel's policies.
func gavel() map[string]registry.Maker {
	all := map[string]registry.Maker{}
	for _, name := range []string{
		"fifo-perf", "gavel-fifo", "gavel-ftf", "gavel-ftf-perf", "gavel-las", "gavel-las-perf", "gavel-makespan-perf",
		"gavel-throughput-perf", "gavel-water-filling-perf", "isolated",
	} {
		all[name] = func(o *policy.Options) policy.Policy { return rounds.New(name, o) }
	}
	return all
}
