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

// Decided is what a ledger's policies decide when each decides its own rounds again.
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

// Difference is one decision that came out otherwise.
type Difference struct {
	Policy string `json:"policy"`
	Batch  uint64 `json:"batch"`
	Time   string `json:"time"`
	Round  uint64 `json:"round"`
	Then   string `json:"then"`
	Now    string `json:"now"`
}

// DecideAgain lets each policy of the ledger decide its own rounds again. Options that are given, as [POLICY.]NAME=VALUE,
// take the place of the ledger's.
func DecideAgain(ctx context.Context, l ledger.Ledger, given []string) (*Decided, error) {
	seen, err := control.Summarise(ctx, l)
	if err != nil {
		return nil, err
	}
	found := &Decided{Batches: seen.Batches, Events: seen.Events, Policies: seen.Rounds, Differences: []Difference{}}
	names := slices.Sorted(maps.Keys(seen.Rounds))
	if len(names) == 0 {
		names = []string{registry.Default}
	}
	policies, err := newLedgerPolicies(names, given)
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

// Rerun is what a ledger says happened, to be run again under its own policy and others.
type Rerun struct {
	// Assumptions say in what the runs are not what happened, or would have happened.
	Assumptions []string
	recording   *sim.Recording
	factories   []PolicyFactory
}

// NewRerun reads a ledger and checks the policies that it is to be run under. The ledger's own comes first, with the
// options that it had last, so that like is compared with like.
func NewRerun(ctx context.Context, l ledger.Ledger, policies, options []string) (*Rerun, error) {
	recording, err := sim.ReadRecording(ctx, l)
	if errors.Is(err, sim.ErrNothingRan) {
		return nil, badInput("%w", err)
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
	factories, err := PolicyFactories(names, withOwn(recording, own, options), 0, ServerSeed, false)
	if err != nil {
		return nil, err
	}
	withoutAgents(recording)
	return &Rerun{Assumptions: recording.Assumptions, recording: recording, factories: factories}, nil
}

// Run runs what happened again under each policy, and tells each result as soon as it is there. clock tells real time.
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
