package server

import (
	"context"
	"fmt"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/api"
	"github.com/outbid-dev/outbid/orchestrator/objects"
	"github.com/outbid-dev/outbid/orchestrator/state"
)

// deletedEvery is how often sweeps that were deleted are looked for.
const deletedEvery = time.Second

// clearDeleted deletes what is left of deleted sweeps: their checkpoints and what their trials printed. It tries again
// until all is gone; a server that starts looks at every sweep that was ever deleted, for the one before may have been
// killed.
func (s *Server) clearDeleted(ctx context.Context) error {
	cleared, problem := map[string]bool{}, ""
	tick := time.NewTicker(deletedEvery)
	defer tick.Stop()
	for {
		for _, d := range s.loop.Deleted() {
			if cleared[d.ID] || ctx.Err() != nil {
				continue
			}
			n, err := s.clear(ctx, d)
			if err != nil {
				if err.Error() != problem && ctx.Err() == nil {
					problem = err.Error()
					s.log.Warn("what is left of a deleted sweep cannot be deleted yet; it is tried again", "sweep", d.ID, "err", err)
				}
				continue
			}
			cleared[d.ID] = true
			if d.At.After(s.health.started) || n > 0 {
				s.log.Info("a sweep was deleted", "sweep", d.ID, "tenant", d.Tenant, "actor", d.Actor, "objects", n)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// tenantName is a sweep's tenant; sweeps of early versions say none.
func tenantName(tenant string) string {
	if tenant == "" {
		return "default"
	}
	return tenant
}

// reserveLogs makes room for what the trials of each tenant print, as its limits say.
func (s *Server) reserveLogs(ctx context.Context) {
	for _, tenant := range s.loop.Tenants() {
		if err := s.logs.Reserve(ctx, tenantName(tenant), api.LimitOf(s.loop, s.limits, tenantName(tenant)).LogBytes); err != nil && ctx.Err() == nil {
			s.log.Warn("there is no room for what trials print", "tenant", tenant, "err", err)
		}
	}
}

// clear deletes what is left of one sweep, and says how many objects that were.
func (s *Server) clear(ctx context.Context, d state.Deleted) (int, error) {
	if err := s.logs.Delete(ctx, tenantName(d.Tenant), d.ID); err != nil {
		return 0, err
	}
	var keys []string
	err := s.store.List(ctx, objects.CheckpointsOf(d.ID), func(o objects.Info) bool {
		keys = append(keys, o.Key)
		return true
	})
	if err != nil {
		return 0, fmt.Errorf("looking for the checkpoints of %s: %w", d.ID, err)
	}
	for _, key := range keys {
		if err := s.store.Delete(ctx, key); err != nil {
			return 0, fmt.Errorf("deleting the checkpoints of %s: %w", d.ID, err)
		}
	}
	if d.Blob == "" {
		return len(keys), nil
	}
	return len(keys), s.api.DropBlob(ctx, d.Blob)
}
