package experiment

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/registry"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// ServerSeed is the default seed of a server's policies.
const ServerSeed = 1

// ledgerPolicies creates the policies of a ledger with the options in the ledger.
type ledgerPolicies struct {
	from  registry.Registry
	names []string
	// given options override those of the ledger.
	given []string
}

// newLedgerPolicies checks the given options.
func newLedgerPolicies(from registry.Registry, names, given []string) (*ledgerPolicies, error) {
	if _, err := PolicyFactories(from, names, given, 0, ServerSeed, nil); err != nil {
		return nil, err
	}
	return &ledgerPolicies{from, names, given}, nil
}

// make creates a policy.
func (c *ledgerPolicies) make(then *outbidv1.PolicySettings) (policy.Policy, error) {
	p, _, err := c.resolve(then)
	return p, err
}

// resolve creates a policy and returns its options. Without options in the ledger, it uses a server's seed.
func (c *ledgerPolicies) resolve(then *outbidv1.PolicySettings) (policy.Policy, map[string]string, error) {
	values := maps.Clone(then.GetOptions())
	if values == nil {
		values = map[string]string{}
		if c.from.HasOption(then.GetName(), "seed") {
			values["seed"] = strconv.FormatUint(ServerSeed, 10)
		}
	}
	for _, option := range c.given {
		if pair, mine := optionFor(c.from, then.GetName(), option, c.names); mine {
			name, value, _ := strings.Cut(pair, "=")
			values[name] = value
		}
	}
	options := policy.NewOptions(values)
	p, err := c.from.New(then.GetName(), options)
	if err != nil && len(then.GetOptions()) > 0 {
		err = BadInput("%w; the ledger says %s: replay it with the version of outbid that wrote it", err,
			control.PolicyText(then.GetName(), then.GetOptions()))
	}
	if err != nil {
		return nil, nil, err
	}
	return p, options.Resolved(), nil
}

// PolicyPeriod is a part of a ledger in which one policy decided with the same options, as JSON.
type PolicyPeriod struct {
	Policy string `json:"policy"`
	Batch  uint64 `json:"batch"`
	Time   string `json:"time"`
	Rounds int    `json:"rounds"`
	// Recorded is set if the ledger has the options.
	Recorded bool `json:"recorded"`
	// Options are those used in the replay.
	Options map[string]string `json:"options"`
}

// String returns the period as one line.
func (s PolicyPeriod) String() string {
	text := fmt.Sprintf("from batch %d: %s", s.Batch, control.PolicyText(s.Policy, s.Options))
	if !s.Recorded && len(s.Options) > 0 {
		text += "; the ledger does not say its options"
	}
	return text
}

// periods returns the periods of a ledger with decisions, with the options used in the replay.
func (c *ledgerPolicies) periods(seen []control.PolicyPeriod) ([]PolicyPeriod, error) {
	all := []PolicyPeriod{}
	for _, s := range seen {
		if s.Rounds == 0 {
			continue
		}
		_, options, err := c.resolve(&outbidv1.PolicySettings{Name: s.Policy, Options: s.Options})
		if err != nil {
			return nil, err
		}
		all = append(all, PolicyPeriod{
			Policy: s.Policy, Batch: s.First, Time: s.From.UTC().Format(time.RFC3339Nano), Rounds: s.Rounds,
			Recorded: s.Recorded, Options: options,
		})
	}
	return all, nil
}

// ownOptions returns the last options of the ledger's own policy, without those that are given.
func ownOptions(ctx context.Context, l ledger.Ledger, name string, given []string) (map[string]string, error) {
	seen, err := control.Summarise(ctx, l)
	if err != nil {
		return nil, err
	}
	var own map[string]string
	for _, s := range seen.History {
		if s.Recorded && s.Policy == name && s.Rounds > 0 {
			own = maps.Clone(s.Options)
		}
	}
	for _, option := range given {
		key, _, _ := strings.Cut(option, "=")
		delete(own, strings.TrimPrefix(key, name+"."))
	}
	return own, nil
}

// withOwn adds the options of the ledger's own policy to the given ones, and an assumption that they apply throughout.
func withOwn(recording *sim.Recording, own map[string]string, given []string) []string {
	if len(own) == 0 {
		return given
	}
	recording.Assumptions = append(recording.Assumptions, fmt.Sprintf("policy %s has the options that it had last: %s; others have "+
		"their defaults but for what is given", recording.Policy, control.OptionsText(own)))
	all := slices.Clone(given)
	for _, name := range slices.Sorted(maps.Keys(own)) {
		all = append(all, recording.Policy+"."+name+"="+own[name])
	}
	return all
}

// withoutBidders makes the server's own bidder bid for sweeps that had chosen another, because that cannot be called any
// more, and adds an assumption.
func withoutBidders(recording *sim.Recording) {
	n := 0
	for i := range recording.Apps {
		if recording.Apps[i].Spec.GetAgent() != nil {
			recording.Apps[i].Spec.Agent = nil
			n++
		}
	}
	if n > 0 {
		recording.Assumptions = append(recording.Assumptions,
			fmt.Sprintf("%d sweeps had bidders that are programs of their own; here the server's own bids for them", n))
	}
}
