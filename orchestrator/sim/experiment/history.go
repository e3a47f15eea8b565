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

// ServerSeed is the seed of a server's policies unless an option says another.
const ServerSeed = 1

// ledgerPolicies makes the policies of a ledger anew, with the options that it says they had.
type ledgerPolicies struct {
	names []string
	// given options take precedence over the ledger's.
	given []string
}

// newLedgerPolicies checks the options that were given.
func newLedgerPolicies(names, given []string) (*ledgerPolicies, error) {
	if _, err := PolicyFactories(names, given, 0, ServerSeed, false); err != nil {
		return nil, err
	}
	return &ledgerPolicies{names, given}, nil
}

// make makes a policy.
func (c *ledgerPolicies) make(then *outbidv1.PolicySettings) (policy.Policy, error) {
	p, _, err := c.resolve(then)
	return p, err
}

// resolve makes a policy and says which options it has. Where the ledger says none it has a server's seed.
func (c *ledgerPolicies) resolve(then *outbidv1.PolicySettings) (policy.Policy, map[string]string, error) {
	values := maps.Clone(then.GetOptions())
	if values == nil {
		values = map[string]string{}
		if hasOption(then.GetName(), "seed") {
			values["seed"] = strconv.FormatUint(ServerSeed, 10)
		}
	}
	for _, option := range c.given {
		if pair, mine := optionFor(then.GetName(), option, c.names); mine {
			name, value, _ := strings.Cut(pair, "=")
			values[name] = value
		}
	}
	options := policy.NewOptions(values)
	p, err := registry.New(then.GetName(), options)
	if err != nil && len(then.GetOptions()) > 0 {
		err = badInput("%w; the ledger says %s: replay it with the version of outbid that wrote it", err,
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
	// Recorded says that the ledger holds the options.
	Recorded bool `json:"recorded"`
	// Options that it is replayed with.
	Options map[string]string `json:"options"`
}

// String is the period as one line.
func (s PolicyPeriod) String() string {
	text := fmt.Sprintf("from batch %d: %s", s.Batch, control.PolicyText(s.Policy, s.Options))
	if !s.Recorded && len(s.Options) > 0 {
		text += "; the ledger does not say its options"
	}
	return text
}

// periods are those of a ledger in which something was decided, with the options that they are replayed with.
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

// ownOptions are those that the ledger's own policy had last, but for those that were given.
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

// withOwn adds the ledger's own policy's options to those that were given, and says that they hold throughout.
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

// withoutAgents lets the server's own agent bid for sweeps that had chosen another, which cannot be asked any more, and
// says so.
func withoutAgents(recording *sim.Recording) {
	n := 0
	for i := range recording.Apps {
		if recording.Apps[i].Spec.GetAgent() != nil {
			recording.Apps[i].Spec.Agent = nil
			n++
		}
	}
	if n > 0 {
		recording.Assumptions = append(recording.Assumptions,
			fmt.Sprintf("%d sweeps had agents that are programs of their own; here the server's own bids for them", n))
	}
}
