package control

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/objects"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// lister is the part of a store that DeleteOrphans needs.
type lister interface {
	List(ctx context.Context, prefix string, f func(objects.Info) bool) error
}

// DeleteOrphans deletes checkpoints and soups of this ledger's sweeps that the ledger does not name. A crash leaves
// them between dropping and deleting an object, or between storing and reporting it. It keeps objects newer than
// before; those of running forks, because their report may be on its way from a worker that waits for a server; and
// everything of sweeps that this ledger does not know.
func (a *Access) DeleteOrphans(ctx context.Context, store lister, before time.Time) (int, error) {
	var orphans []string
	err := store.List(ctx, objects.Checkpoints, func(o objects.Info) bool {
		if o.Modified.Before(before) && a.orphan(o.Key) {
			orphans = append(orphans, o.Key)
		}
		return true
	})
	if err != nil {
		return 0, fmt.Errorf("listing unneeded checkpoints: %w", err)
	}
	a.deletes.add(orphans)
	return len(orphans), nil
}

func (a *Access) orphan(key string) bool {
	if sweep, ok := objects.SoupAt(key); ok {
		s, err := a.views.load().Sweep(sweep)
		return err == nil && !slices.ContainsFunc(s.Sweep().Soups, func(o *outbidv1.Soup) bool { return o.GetKey() == key })
	}
	ck, ok := objects.CheckpointAt(key)
	if !ok {
		return false
	}
	s, err := a.views.load().Sweep(ck.Sweep)
	if err != nil {
		return false
	}
	t, err := s.Trial(ck.Trial)
	if err != nil || t.Held(ck.LeaseID) != nil || inRound(t, ck) {
		return false
	}
	return !slices.ContainsFunc(t.Checkpoints, func(c *outbidv1.Checkpoint) bool { return c.GetKey() == ck.Key() })
}

// inRound reports whether a checkpoint may be used by an average that is about to be made.
func inRound(t *state.Trial, ck objects.Checkpoint) bool {
	part, _ := t.Slot.Part(ck.LeaseID)
	return part != nil
}
