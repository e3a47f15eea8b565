package control

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Audit is the result of deciding a ledger's rounds again.
type Audit struct {
	// Batches and Events that were read.
	Batches, Events int
	// Rounds of the policy that were decided again. Others are rounds of another policy.
	Rounds, Others int
	// Decisions that were compared: grants, renewals and revocations.
	Decisions int
	// Differences are the first maxDifferences differences.
	Differences []Difference
	// Differing is the number of all differences.
	Differing int
	// Policies are the names of the policies, with their numbers of rounds.
	Policies map[string]int

	table state.Table
}

// Difference is a decision that differs.
type Difference struct {
	Seq   uint64
	At    time.Time
	Round uint64
	// Then and Now are the decisions as text; an empty text stands for no decision.
	Then, Now string
}

const maxDifferences = 100

// Replay reads a ledger from its start and makes the policy decide each of its rounds again. The decisions must equal
// those in the ledger, which must reach back to its first batch.
func Replay(ctx context.Context, set Settings, p policy.Policy, l ledger.Ledger) (*Audit, *state.State, error) {
	a := &Audit{Policies: map[string]int{}, table: state.NewTable()}
	c := NewCore(set, p, state.New())
	var seq uint64
	c.rounds.OnReplay(func(at time.Time, round *outbidv1.RoundDecided, now, then []*outbidv1.Event) {
		a.compare(seq, at, round, now, a.ofPolicy(c.engine.st, then))
	})
	err := l.Read(ctx, 1, func(b *outbidv1.Batch) error {
		events, err := ledger.Decode(b)
		if err != nil {
			return err
		}
		seq = b.GetSeq()
		a.Batches++
		a.Events += len(events)
		for _, e := range events {
			if round := a.table.Round(e); round != nil {
				a.Policies[round.GetPolicy()]++
				if round.GetPolicy() != p.Name() {
					a.Others++
				}
			}
		}
		if err := c.Replay(b.GetTime().AsTime(), events); err != nil {
			return fmt.Errorf("ledger batch %d: %w", b.GetSeq(), err)
		}
		c.Appended(b)
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("replaying: %w", err)
	}
	return a, c.engine.st, nil
}

// ofPolicy returns the events that follow a round, without grants to trials that must run alone. Control makes these
// itself, perhaps in the step in which a concurrent round ends, and policies do not see such trials.
func (a *Audit) ofPolicy(st *state.State, then []*outbidv1.Event) []*outbidv1.Event {
	return slices.DeleteFunc(slices.Clone(then), func(e *outbidv1.Event) bool {
		if a.decision(e).GetKind() != state.DecisionGrant {
			return false
		}
		ref := st.TrialOf(e)
		return slices.ContainsFunc(st.Suspects(), func(s state.Suspect) bool {
			return s.Sweep.ID == ref.GetSweep() && s.Trial.Number == ref.GetTrial()
		})
	})
}

// compare compares a round's decisions with the recorded ones, in order.
func (a *Audit) compare(seq uint64, at time.Time, round *outbidv1.RoundDecided, now, then []*outbidv1.Event) {
	a.Rounds++
	// The start of a fork slot follows from its grants, and is not a decision.
	now = slices.DeleteFunc(slices.Clone(now), func(e *outbidv1.Event) bool { return a.decision(e) == nil })
	var before []*outbidv1.Event
	for _, e := range then {
		if a.table.Round(e) != nil {
			break // a batch may hold another round
		}
		d, _ := a.table.Decision(e)
		if d == nil {
			continue
		}
		// Revocations because of failures and tuners may follow the round too.
		if !takes(d) || len(before) < len(now) && takes(a.decision(now[len(before)])) {
			before = append(before, e)
		}
	}
	for i := range max(len(now), len(before)) {
		var n, b *outbidv1.Event
		if i < len(now) {
			n = now[i]
		}
		if i < len(before) {
			b = before[i]
		}
		a.Decisions++
		if proto.Equal(n, b) {
			continue
		}
		if a.Differing++; len(a.Differences) < maxDifferences {
			a.Differences = append(a.Differences, Difference{seq, at, round.GetRound(), text(b), text(n)})
		}
	}
}

func (a *Audit) decision(e *outbidv1.Event) *outbidv1.Decision {
	d, _ := a.table.Decision(e)
	return d
}

// takes reports whether a decision revokes devices of a trial.
func takes(d *outbidv1.Decision) bool { return d.GetKind() == state.DecisionRevoke }

func text(e *outbidv1.Event) string {
	if e == nil {
		return ""
	}
	return prototext.MarshalOptions{}.Format(e)
}
