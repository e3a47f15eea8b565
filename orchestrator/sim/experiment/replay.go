package experiment

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/registry"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	"github.com/outbid-dev/outbid/orchestrator/sim/measure"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Decided is the result of letting a ledger's policies decide their rounds again.
type Decided struct {
	Batches     int            `json:"batches"`
	Events      int            `json:"events"`
	Rounds      int            `json:"rounds"`
	Decisions   int            `json:"decisions"`
	Differing   int            `json:"differing"`
	Policies    map[string]int `json:"policies"`
	History     []PolicyPeriod `json:"stretches"`
	Differences []Difference   `json:"differences"`
}

// Difference is a decision that differed.
type Difference struct {
	Policy string `json:"policy"`
	Batch  uint64 `json:"batch"`
	Time   string `json:"time"`
	Round  uint64 `json:"round"`
	Then   string `json:"then"`
	Now    string `json:"now"`
}

// DecideAgain lets each policy of the ledger decide its own rounds again. Given options, as [POLICY.]NAME=VALUE,
// override those of the ledger. from has the policies that there are.
func DecideAgain(ctx context.Context, from registry.Registry, l ledger.Ledger, given []string) (*Decided, error) {
	seen, err := control.Summarise(ctx, l)
	if err != nil {
		return nil, err
	}
	found := &Decided{Batches: seen.Batches, Events: seen.Events, Policies: seen.Rounds, Differences: []Difference{}}
	names := slices.Sorted(maps.Keys(seen.Rounds))
	if len(names) == 0 {
		names = []string{registry.Default}
	}
	policies, err := newLedgerPolicies(from, names, given)
	if err != nil {
		return nil, err
	}
	if found.History, err = policies.periods(seen.History); err != nil {
		return nil, err
	}
	set := settings()
	set.NewPolicy = policies.make
	for _, name := range names {
		p, err := policies.make(&outbidv1.PolicySettings{Name: name})
		if err != nil {
			return nil, err
		}
		audit, _, err := control.Replay(ctx, set, p, l)
		if err != nil {
			return nil, err
		}
		found.take(name, audit)
	}
	return found, nil
}

func (r *Decided) take(policy string, a *control.Audit) {
	r.Rounds += a.Rounds
	r.Decisions += a.Decisions
	r.Differing += a.Differing
	for _, d := range a.Differences {
		r.Differences = append(r.Differences, Difference{
			Policy: policy, Batch: d.Seq, Time: d.At.UTC().Format(time.RFC3339Nano), Round: d.Round, Then: d.Then, Now: d.Now,
		})
	}
}

// Rerun is a recording of a ledger to be simulated under its own policy and others.
type Rerun struct {
	// Assumptions describe the differences between the simulation and the actual run.
	Assumptions []string
	recording   *sim.Recording
	factories   []PolicyFactory
}

// NewRerun reads a ledger and checks the policies. The ledger's own policy comes first, with its last options, for a
// fair comparison. from has the policies that there are.
func NewRerun(ctx context.Context, from registry.Registry, l ledger.Ledger, policies, options []string) (*Rerun, error) {
	recording, err := sim.ReadRecording(ctx, l)
	if errors.Is(err, sim.ErrNothingRan) {
		return nil, BadInput("%w", err)
	}
	if err != nil {
		return nil, err
	}
	names := slices.Clone(policies)
	if recording.Policy != "" && !slices.Contains(names, recording.Policy) {
		names = slices.Insert(names, 0, recording.Policy)
	}
	own, err := ownOptions(ctx, l, recording.Policy, options)
	if err != nil {
		return nil, err
	}
	factories, err := PolicyFactories(from, names, withOwn(recording, own, options), 0, ServerSeed, nil)
	if err != nil {
		return nil, err
	}
	withoutBidders(recording)
	return &Rerun{Assumptions: recording.Assumptions, recording: recording, factories: factories}, nil
}

// Run simulates the recording under each policy and calls told with each result. clock returns real time.
func (r *Rerun) Run(ctx context.Context, clock func() time.Time, told func(measure.Result) error) error {
	for _, f := range r.factories {
		p, err := f.New()
		if err != nil {
			return err
		}
		set := r.recording.Setup(p)
		set.Policy, set.Control, set.Clock = func() policy.Policy { return p }, settings(), clock
		got, err := sim.Run(ctx, set)
		if err != nil {
			return fmt.Errorf("policy %s: %w", f.Name, err)
		}
		if err := told(got.Result); err != nil {
			return err
		}
	}
	return nil
}
