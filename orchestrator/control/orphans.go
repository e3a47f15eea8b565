package control

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/objects"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// lister is what DeleteOrphans needs of a store.
type lister interface {
	List(ctx context.Context, prefix string, f func(objects.Info) bool) error
}

// DeleteOrphans deletes checkpoints of this ledger's sweeps that the ledger does not name: those of a crash between
// letting a checkpoint go and deleting it, or between storing one and reporting it. Objects newer than before are left
// alone, and those of forks that go on, as their report may be under way: a worker keeps it while there is no
// orchestrator. So is everything of sweeps that this ledger does not know.
func (l *Loop) DeleteOrphans(ctx context.Context, store lister, before time.Time) (int, error) {
	var orphans []string
	err := store.List(ctx, "checkpoints/", func(o objects.Info) bool {
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
	t := l.view.Load().trialOf(key)
	if t == nil || t.Lease != nil && strings.Contains(key, fmt.Sprintf("-%d.", t.Lease.ID)) {
		return false
	}
	named := func(c *outbidv1.Checkpoint) bool { return key == c.GetKey() || strings.HasPrefix(key, c.GetKey()+"/") }
	return !slices.ContainsFunc(t.Checkpoints, named)
}

// trialOf is the trial that a checkpoint's key belongs to, nil if the ledger does not know it.
func (v *view) trialOf(key string) *state.Trial {
	parts := strings.Split(key, "/")
	if len(parts) < 4 {
		return nil
	}
	n, err := strconv.ParseInt(parts[2], 10, 32)
	if err != nil {
		return nil
	}
	s, err := v.Sweep(parts[1])
	if err != nil {
		return nil
	}
	t, err := s.Trial(int32(n))
	if err != nil {
		return nil
	}
	return t
}
