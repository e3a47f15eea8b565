package sim_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/lab"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// The state published after each batch of random runs equals the state, and does not change when the state does.
func TestPublishedIsTheState(t *testing.T) {
	t.Parallel()
	names := lab.Policies().Names()
	seeds := uint64(len(names))
	for seed := range seeds {
		t.Run(names[seed], func(t *testing.T) {
			t.Parallel()
			set := dice{rand.New(rand.NewPCG(seed, 99))}.setup(seed)
			kept := ledger.NewMemory()
			set.Policy, set.Ledger = policyOf(t, names[seed]), kept
			if _, err := sim.Run(t.Context(), set); err != nil {
				t.Fatal(err)
			}
			if err := publishAgain(t.Context(), kept); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// publishAgain folds a ledger and publishes after each batch.
func publishAgain(ctx context.Context, kept *ledger.Memory) error {
	st := state.New()
	now := st.Publish()
	// held are some published states, with their contents at that time.
	type shown struct {
		published *state.Published
		text      []proto.Message
	}
	var held []shown
	err := kept.Read(ctx, 1, func(b *outbidv1.Batch) error {
		events, err := ledger.Decode(b)
		if err != nil {
			return err
		}
		var changes []state.Change
		for _, e := range events {
			change, err := st.Fold(b.GetTime().AsTime(), e)
			if err != nil {
				return err
			}
			changes = append(changes, change)
		}
		st.Seq = b.GetSeq()
		var waits []<-chan struct{}
		for _, c := range changes {
			if c.Sweep == nil {
				continue
			}
			if s, err := now.Sweep(c.Sweep.ID); err == nil {
				waits = append(waits, s.Changed())
			}
		}
		next, tell := now.After(st, changes)
		tell()
		for _, ch := range waits {
			select {
			case <-ch:
			default:
				return fmt.Errorf("batch %d: nobody was told", b.GetSeq())
			}
		}
		now = next
		if b.GetSeq()%97 == 1 || b.GetSeq() < 50 {
			text := showPublished(now)
			if err := same(text, showState(st)); err != nil {
				return fmt.Errorf("batch %d: published and state: %w", b.GetSeq(), err)
			}
			held = append(held, shown{now, text})
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := same(showPublished(now), showState(st)); err != nil {
		return fmt.Errorf("at the end: %w", err)
	}
	if err := same(showPublished(st.Publish()), showState(st)); err != nil {
		return fmt.Errorf("published afresh: %w", err)
	}
	for _, h := range held {
		if err := same(showPublished(h.published), h.text); err != nil {
			return fmt.Errorf("what was published after batch %d has changed: %w", h.published.Seq, err)
		}
	}
	return nil
}

func showPublished(p *state.Published) []proto.Message {
	var all []proto.Message
	for _, id := range p.SweepIDs {
		s, err := p.Sweep(id)
		if err != nil {
			return []proto.Message{&outbidv1.Note{Text: err.Error()}}
		}
		all = append(all, s.View(p.Time))
		for n := range int32(s.Len()) {
			all = append(all, s.TrialView(p.Time, s.At(n)))
		}
		for _, t := range s.Best() {
			all = append(all, s.TrialView(p.Time, t))
		}
		for _, version := range []uint64{0, s.Sweep().Version / 2, s.Sweep().Version, math.MaxUint64} {
			all = append(all, &outbidv1.Note{Text: fmt.Sprint(s.ChangedSince(version))})
		}
		all = append(all, hidden(s.Sweep(), s.Len(), s.At))
	}
	p.Nodes(func(_ string, n *state.PublishedNode) { all = append(all, proto.CloneOf(n.View)) })
	return append(all, &outbidv1.Note{Text: fmt.Sprint(p.Inventory.Nodes, p.Held(), p.Deleted(), p.AppSeconds(p.Time))})
}

func showState(st *state.State) []proto.Message {
	var all []proto.Message
	for _, id := range st.SweepIDs {
		s := st.Sweeps[id]
		all = append(all, st.View(s))
		for _, t := range s.Trials {
			all = append(all, st.TrialView(s, t))
		}
		for _, t := range s.BestTrials(len(s.Trials), 0) {
			all = append(all, st.TrialView(s, t))
		}
		for _, version := range []uint64{0, s.Version / 2, s.Version, math.MaxUint64} {
			all = append(all, &outbidv1.Note{Text: fmt.Sprint(s.ChangedSince(version))})
		}
		all = append(all, hidden(s, len(s.Trials), func(n int32) *state.Trial { return s.Trials[n] }))
	}
	var up []any
	held := 0
	for _, name := range st.NodeNames {
		all = append(all, st.Nodes[name].NodeView())
		if n := st.Nodes[name]; n.Up() {
			up = append(up, n.Shape)
			held += len(n.NodeView().GetUses())
		}
	}
	return append(all, &outbidv1.Note{Text: fmt.Sprint(up, held, st.Deleted(), st.AppSeconds(st.Time))})
}

// hidden returns the data of a sweep that readers see only through forecasts.
func hidden(s *state.Sweep, trials int, at func(int32) *state.Trial) proto.Message {
	text := fmt.Sprint(s.Queued, s.Running, s.Measured, s.Steps, s.AppSecondsBefore)
	for n := range int32(trials) {
		t := at(n)
		text += fmt.Sprint(t.Curve, t.Measured, t.Metric, t.Rollbacks, t.Queued)
		if t.Lead() != nil {
			text += fmt.Sprint(*t.Lead())
		}
	}
	return &outbidv1.Note{Text: text}
}

func same(got, want []proto.Message) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d messages, want %d", len(got), len(want))
	}
	for i := range got {
		if !proto.Equal(got[i], want[i]) {
			return fmt.Errorf("got\n%v\nwant\n%v", got[i], want[i])
		}
	}
	return nil
}
