package server

import (
	"context"
	"fmt"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/api"
	"github.com/outbid-dev/outbid/orchestrator/objects"
	"github.com/outbid-dev/outbid/orchestrator/state"
)

// deletedEvery is how often the server checks for deleted sweeps.
const deletedEvery = time.Second

// clearDeleted deletes the checkpoints and logs of deleted sweeps, and retries until it succeeds. After a start it
// checks all sweeps that were ever deleted, because the previous server may have been killed.
func (s *Server) clearDeleted(ctx context.Context) error {
	cleared, problem := map[string]bool{}, ""
	tick := time.NewTicker(deletedEvery)
	defer tick.Stop()
	for {
		for _, d := range s.loop.Deleted() {
			if cleared[d.ID] || ctx.Err() != nil {
				continue
			}
			n, err := s.deleteSweepData(ctx, d)
			if err != nil {
				if err.Error() != problem && ctx.Err() == nil {
					problem = err.Error()
					s.log.Warn("the data of a deleted sweep could not be deleted; retrying", "sweep", d.ID, "err", err)
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

// tenantName returns a sweep's tenant; sweeps of early versions do not name one.
func tenantName(tenant string) string {
	if tenant == "" {
		return "default"
	}
	return tenant
}

// reserveLogs reserves space for the logs of each tenant according to its limits.
func (s *Server) reserveLogs(ctx context.Context) {
	for _, tenant := range s.loop.Tenants() {
		if err := s.logs.Reserve(ctx, tenantName(tenant), api.LimitOf(s.loop, s.limits, tenantName(tenant)).LogBytes); err != nil && ctx.Err() == nil {
			s.log.Warn("no room is left for the output of trials", "tenant", tenant, "err", err)
		}
	}
}

// deleteSweepData deletes the remaining data of one sweep, and returns the number of deleted objects.
func (s *Server) deleteSweepData(ctx context.Context, d state.Deleted) (int, error) {
	if err := s.logs.Delete(ctx, tenantName(d.Tenant), d.ID); err != nil {
		return 0, err
	}
	var keys []string
	err := s.store.List(ctx, objects.CheckpointsOf(d.ID), func(o objects.Info) bool {
		keys = append(keys, o.Key)
		return true
	})
	if err != nil {
		return 0, fmt.Errorf("list the checkpoints of %s: %w", d.ID, err)
	}
	for _, key := range keys {
		if err := s.store.Delete(ctx, key); err != nil {
			return 0, fmt.Errorf("delete the checkpoints of %s: %w", d.ID, err)
		}
	}
	if d.Blob == "" {
		return len(keys), nil
	}
	return len(keys), s.api.DropBlob(ctx, d.Blob)
}
