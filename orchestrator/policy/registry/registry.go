// Package registry maps names to policies. A new policy is a new folder and one line here.
package registry

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/allox"
	"github.com/outbid-dev/outbid/orchestrator/policy/astraea"
	"github.com/outbid-dev/outbid/orchestrator/policy/baseline"
	"github.com/outbid-dev/outbid/orchestrator/policy/elastic"
	"github.com/outbid-dev/outbid/orchestrator/policy/gandivafair"
	"github.com/outbid-dev/outbid/orchestrator/policy/gavel/rounds"
	"github.com/outbid-dev/outbid/orchestrator/policy/hadar"
	"github.com/outbid-dev/outbid/orchestrator/policy/hived"
	"github.com/outbid-dev/outbid/orchestrator/policy/oasis"
	"github.com/outbid-dev/outbid/orchestrator/policy/ogasched"
	"github.com/outbid-dev/outbid/orchestrator/policy/outbid"
	"github.com/outbid-dev/outbid/orchestrator/policy/rrh"
	"github.com/outbid-dev/outbid/orchestrator/policy/themis"
)

// maker makes a policy from its options. It reads each of its options; New reports invalid ones.
type maker func(*policy.Options) policy.Policy

func makers() map[string]maker {
	return map[string]maker{
		"optimus":                  elastic.NewOptimus,
		"slaq":                     elastic.NewSLAQ,
		"dorm":                     elastic.NewDorm,
		"allox":                    allox.New,
		"astraea":                  astraea.New,
		"gandiva-fair":             gandivafair.New,
		"hadar":                    hadar.New,
		"hadare":                   hadar.NewForking,
		"hived":                    hived.New,
		"oasis":                    oasis.New,
		"ogasched":                 ogasched.New,
		"outbid":                   outbid.New,
		"rrh":                      rrh.New,
		"themis":                   func(o *policy.Options) policy.Policy { return themis.New(o) },
		"fifo-perf":                func(o *policy.Options) policy.Policy { return rounds.New("fifo-perf", o) },
		"gavel-fifo":               func(o *policy.Options) policy.Policy { return rounds.New("gavel-fifo", o) },
		"gavel-ftf":                func(o *policy.Options) policy.Policy { return rounds.New("gavel-ftf", o) },
		"gavel-ftf-perf":           func(o *policy.Options) policy.Policy { return rounds.New("gavel-ftf-perf", o) },
		"gavel-las":                func(o *policy.Options) policy.Policy { return rounds.New("gavel-las", o) },
		"gavel-las-perf":           func(o *policy.Options) policy.Policy { return rounds.New("gavel-las-perf", o) },
		"gavel-makespan-perf":      func(o *policy.Options) policy.Policy { return rounds.New("gavel-makespan-perf", o) },
		"gavel-throughput-perf":    func(o *policy.Options) policy.Policy { return rounds.New("gavel-throughput-perf", o) },
		"gavel-water-filling-perf": func(o *policy.Options) policy.Policy { return rounds.New("gavel-water-filling-perf", o) },
		"isolated":                 func(o *policy.Options) policy.Policy { return rounds.New("isolated", o) },
		"fifo":                     newFIFO,
		"drf":                      func(*policy.Options) policy.Policy { return baseline.DRF{} },
		"srtf":                     func(o *policy.Options) policy.Policy { return baseline.SRTF{Unit: baseline.UnitOption(o)} },
		"srsf":                     func(o *policy.Options) policy.Policy { return baseline.SRSF{Unit: baseline.UnitOption(o)} },
		"yarn-cs":                  func(o *policy.Options) policy.Policy { return baseline.NewYARN(o) },
		"tiresias":                 func(o *policy.Options) policy.Policy { return baseline.NewTiresias(o) },
		"gandiva":                  func(o *policy.Options) policy.Policy { return baseline.NewGandiva(o) },
		"gandiva-sliced":           func(o *policy.Options) policy.Policy { return baseline.NewGandivaSliced(o) },
		"las":                      func(o *policy.Options) policy.Policy { return baseline.NewLAS(o) },
		"binpack":                  func(*policy.Options) policy.Policy { return baseline.BinPack{} },
		"spread":                   func(*policy.Options) policy.Policy { return baseline.Spread{} },
		"proportional":             func(*policy.Options) policy.Policy { return baseline.Proportional{} },
	}
}

// newFIFO makes Outbid's FIFO, or Gavel's under the same name where the two are compared.
func newFIFO(o *policy.Options) policy.Policy {
	const help = "outbid; or gavel, as in Gavel's simulator: in rounds and with the options of gavel-fifo"
	if o.Text("rules", "outbid", help, "outbid", "gavel") == "gavel" {
		return rounds.New("fifo", o)
	}
	return baseline.FIFO{Workers: o.Int("workers", 0, 0, 1<<20,
		"how many times its minimum a trial gets, over several nodes if it may spread; 0 for as many devices as are free on one node")}
}

// Default is the default policy of a server.
const Default = "themis"

// Names lists the policies, sorted.
func Names() []string { return slices.Sorted(maps.Keys(makers())) }

// Forking lists the policies that train a trial on several forks by default, sorted.
func Forking() []string {
	all := makers()
	return slices.DeleteFunc(Names(), func(name string) bool {
		return !policy.ForksJobs(all[name](policy.NewOptions(nil)))
	})
}

// New makes a policy by name. options may be nil.
func New(name string, options *policy.Options) (policy.Policy, error) {
	m, ok := makers()[name]
	if !ok {
		return nil, fmt.Errorf("policy: there is no policy %q; there are %s", name, strings.Join(Names(), ", "))
	}
	if options == nil {
		options = policy.NewOptions(nil)
	}
	p := m(options)
	if err := options.Err(); err != nil {
		return nil, fmt.Errorf("policy %s: %w", name, err)
	}
	return p, nil
}

// Options lists the options of a policy for help texts, or nil for an unknown policy.
func Options(name string) []policy.Option {
	m, ok := makers()[name]
	if !ok {
		return nil
	}
	o := policy.NewOptions(nil)
	m(o)
	return o.Known()
}
