package control

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/objects"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// lister is what DeleteOrphans needs of a store.
type lister interface {
	List(ctx context.Context, prefix string, f func(objects.Info) bool) error
}

// DeleteOrphans deletes checkpoints and soups of this ledger's sweeps that the ledger does not name: those of a crash between
// letting one go and deleting it, or between storing one and reporting it. Objects newer than before are left
// alone, and those of forks that go on, as their report may be under way: a worker keeps it while there is no
// orchestrator. So is everything of sweeps that this ledger does not know.
func (l *Loop) DeleteOrphans(ctx context.Context, store lister, before time.Time) (int, error) {
	var orphans []string
	err := store.List(ctx, objects.Checkpoints, func(o objects.Info) bool {
		if o.Modified.Before(before) && l.orphan(o.Key) {
			orphans = append(orphans, o.Key)
		}
		return true
	})
	if err != nil {
		return 0, fmt.Errorf("looking for checkpoints that nothing needs: %w", err)
	}
	l.deletes.add(orphans)
	return len(orphans), nil
}

func (l *Loop) orphan(key string) bool {
	if sweep, ok := objects.SoupAt(key); ok {
		s, err := l.view.Load().Sweep(sweep)
		return err == nil && !slices.ContainsFunc(s.Sweep().Soups, func(o *outbidv1.Soup) bool { return o.GetKey() == key })
	}
	ck, ok := objects.CheckpointAt(key)
	if !ok {
		return false
	}
	s, err := l.view.Load().Sweep(ck.Sweep)
	if err != nil {
		return false
	}
	t, err := s.Trial(ck.Trial)
	if err != nil || t.Held(ck.LeaseID) != nil || inRound(t, ck) {
		return false
	}
	return !slices.ContainsFunc(t.Checkpoints, func(c *outbidv1.Checkpoint) bool { return c.GetKey() == ck.Key() })
}
