package control

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/agent"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Restore returns the core from a ledger's newest snapshot and the batches after it. seen is called with every batch
// that was applied; it may be nil.
func Restore(
	ctx context.Context, set Settings, p policy.Policy, l ledger.Ledger, seen func(b *outbidv1.Batch, events []*outbidv1.Event) error,
) (*Core, error) {
	_, data, err := l.LoadSnapshot(ctx)
	if err != nil {
		return nil, fmt.Errorf("loading the newest snapshot: %w", err)
	}
	c := NewCore(set, p, state.New())
	if data != nil {
		if err := c.load(data); err != nil {
			return nil, err
		}
	}
	err = l.Read(ctx, c.st.Seq+1, func(b *outbidv1.Batch) error {
		events, err := ledger.Decode(b)
		if err != nil {
			return err
		}
		if err := c.Replay(b.GetTime().AsTime(), events); err != nil {
			return fmt.Errorf("ledger batch %d: %w", b.GetSeq(), err)
		}
		c.Appended(b)
		if seen != nil {
			return seen(b, events)
		}
		return nil
	})
	if err == nil {
		err = c.installConfigured()
	}
	if err != nil {
		return nil, err
	}
	l.Resume(c.st.Seq, c.st.Hash)
	return c, nil
}

// Appended records that the core's newest events are in the ledger as a batch.
func (c *Core) Appended(b *outbidv1.Batch) { c.st.Seq, c.st.Hash = b.GetSeq(), b.GetHash() }

// Replay applies events of a batch that was decided before. Tuners and the policy get the same questions as they did
// then; their answers are ignored, because the events contain them.
func (c *Core) Replay(at time.Time, events []*outbidv1.Event) error {
	c.replaying = true
	defer func() { c.replaying, c.following = false, nil }()
	for i, e := range events {
		c.following = events[i+1:]
		if _, _, err := c.fold(at, e); err != nil {
			return err
		}
	}
	return nil
}

// redecide makes a stateful policy decide a past round again. The result is ignored, because the events contain it.
func (c *Core) redecide(then *outbidv1.RoundDecided) {
	r := &round{view: c.begun, beside: then.GetBegunBefore()}
	c.begun = nil
	if c.policy == nil || then.GetPolicy() != c.policy.Name() || !c.stateful && c.audit == nil {
		return
	}
	c.hasHistory = true
	if !r.beside {
		r.view = c.views.refresh(c)
	} else if r.view == nil {
		return // it was begun under another policy
	}
	r.plan = c.decide(r.view, agent.Recorded(then.GetAuction()))
	if c.audit != nil {
		c.audit(c.now, then, c.decisions(r), c.following)
	}
}

func (c *Core) load(data []byte) error {
	var snap outbidv1.StateSnapshot
	if err := proto.Unmarshal(data, &snap); err != nil {
		return fmt.Errorf("decoding the snapshot: %w", err)
	}
	st, err := state.Restore(&snap)
	if err != nil {
		return err
	}
	c.st = st
	for _, r := range snap.GetSweeps() {
		if err := c.loadTuner(r); err != nil {
			return err
		}
	}
	if st.Decider != nil {
		if err := c.installPast(st.Decider); err != nil {
			return err
		}
	}
	if c.policy != nil && snap.GetPolicyName() == c.policy.Name() && snap.GetPolicy() != nil {
		if err := c.policy.Restore(snap.GetPolicy()); err != nil {
			return fmt.Errorf("policy %s: %w", c.policy.Name(), err)
		}
		c.hasHistory = true
	}
	return nil
}
