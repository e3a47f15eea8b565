// Package retention deletes sweeps that ended longer ago than their tenant keeps them.
package retention

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Actor is the name under which the server deletes sweeps by itself.
const Actor = "retention"

const (
	// every is how often the server looks for sweeps to delete.
	every = time.Minute
	// perTenant is the maximum number of sweeps of a tenant that the server deletes by itself each time.
	perTenant = 60
	// tenantTime is how long the deletions of one tenant may take each time.
	tenantTime = 10 * time.Second
)

// Sweeps lists sweeps and deletes them.
type Sweeps interface {
	// Sweeps returns every sweep.
	Sweeps() []*outbidv1.Sweep
	// SweepBytes returns the size of a sweep's checkpoints and reports.
	SweepBytes(id string) int64
	// Delete removes a sweep that has ended, and refuses others.
	Delete(ctx context.Context, sweep, actor string) (state.Deleted, error)
}

// Config configures a Keeper.
type Config struct {
	Sweeps Sweeps
	// Limits returns the limits of a tenant. Its RetainSweeps is limits.Unlimited if sweeps never expire.
	Limits func(tenant string) limits.Tenant
	Now    func() time.Time
	// Deleted is called after each deletion; it may be nil.
	Deleted func(e *outbidv1.Expired, actor string)
	Logger  *slog.Logger
}

// Keeper knows which sweeps have expired, and deletes them.
type Keeper struct{ cfg Config }

// New returns a Keeper.
func New(cfg Config) *Keeper { return &Keeper{cfg} }

// Plan returns the expired sweeps of the tenants that sees accepts: those to delete, in the order of deletion, and those
// that are kept. The sweep that ended first is deleted first.
func (k *Keeper) Plan(sees func(tenant string) bool) (expired, kept []*outbidv1.Expired) {
	now := k.cfg.Now()
	for _, s := range k.cfg.Sweeps.Sweeps() {
		tenant := state.TenantOf(s.GetSpec())
		if s.GetEnded() == nil || !sees(tenant) {
			continue
		}
		seconds := k.cfg.Limits(tenant).RetainSweeps
		ended := s.GetEnded().AsTime()
		if seconds == limits.Unlimited || now.Before(ended.Add(time.Duration(seconds)*time.Second)) {
			continue
		}
		retain := limits.Field{Unit: limits.Age}.Format(seconds)
		e := &outbidv1.Expired{Tenant: tenant, Sweep: s.GetId(), Ended: s.GetEnded(), Retain: retain, Bytes: k.cfg.Sweeps.SweepBytes(s.GetId())}
		if n := len(s.GetSoups()); n > 0 {
			e.Reason = fmt.Sprintf("it keeps a soup; 'outbid delete %s' deletes both", s.GetId())
			kept = append(kept, e)
			continue
		}
		e.Reason = fmt.Sprintf("it ended more than %s ago (retain_sweeps of tenant %s)", retain, tenant)
		expired = append(expired, e)
	}
	byEnd := func(a, b *outbidv1.Expired) int {
		return cmp.Or(a.GetEnded().AsTime().Compare(b.GetEnded().AsTime()), strings.Compare(a.GetSweep(), b.GetSweep()))
	}
	slices.SortFunc(expired, byEnd)
	slices.SortFunc(kept, byEnd)
	return expired, kept
}

// Delete deletes sweeps of Plan until ctx ends, and returns them with the errors. The actor is recorded in the ledger.
func (k *Keeper) Delete(ctx context.Context, expired []*outbidv1.Expired, actor string) []*outbidv1.Expired {
	done := make([]*outbidv1.Expired, 0, len(expired))
	for _, e := range expired {
		e = proto.CloneOf(e)
		if _, err := k.cfg.Sweeps.Delete(ctx, e.GetSweep(), actor); err != nil {
			e.Error = err.Error()
		} else if k.cfg.Deleted != nil {
			k.cfg.Deleted(e, actor)
		}
		done = append(done, e)
	}
	return done
}

// Run deletes expired sweeps until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			k.Pass(ctx)
		}
	}
}

// Pass deletes a bounded number of expired sweeps of each tenant. An error or a slow deletion of one tenant's sweeps does
// not affect other tenants.
func (k *Keeper) Pass(ctx context.Context) {
	byTenant := map[string][]*outbidv1.Expired{}
	var tenants []string
	expired, _ := k.Plan(func(string) bool { return true })
	for _, e := range expired {
		if len(byTenant[e.GetTenant()]) == 0 {
			tenants = append(tenants, e.GetTenant())
		}
		byTenant[e.GetTenant()] = append(byTenant[e.GetTenant()], e)
	}
	for _, tenant := range tenants {
		some := byTenant[tenant][:min(perTenant, len(byTenant[tenant]))]
		bound, cancel := context.WithTimeout(ctx, tenantTime)
		for _, e := range k.Delete(bound, some, Actor) {
			if e.GetError() != "" && ctx.Err() == nil {
				k.cfg.Logger.Warn("an expired sweep could not be deleted; retrying", "tenant", tenant, "sweep", e.GetSweep(), "err", e.GetError())
			}
		}
		cancel()
	}
}
