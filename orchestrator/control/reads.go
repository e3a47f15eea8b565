package control

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/control/rounds"
	"github.com/outbid-dev/outbid/orchestrator/spec/terms"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Reports calls f for every report of the sweep, or of one trial, oldest first.
func (r *Reads) Reports(
	ctx context.Context, sweep string, trial *int32, f func(trial int32, report *outbidv1.Report) error,
) error {
	if err := r.exists(sweep, trial); err != nil {
		return err
	}
	if err := r.cfg.History.Read(ctx, sweep, trial, f); err != nil {
		return fmt.Errorf("reading the reports of %s: %w", sweep, err)
	}
	return nil
}

// ReportsAfter calls f for the reports of a sweep after the first n, oldest first.
func (r *Reads) ReportsAfter(
	ctx context.Context, sweep string, n int64, f func(trial int32, report *outbidv1.Report) error,
) error {
	if err := r.exists(sweep, nil); err != nil {
		return err
	}
	if err := r.cfg.History.ReadAfter(ctx, sweep, n, f); err != nil {
		return fmt.Errorf("reading the reports of %s: %w", sweep, err)
	}
	return nil
}

// Ledger calls f for every batch from a sequence number to the last one.
func (r *Reads) Ledger(ctx context.Context, from uint64, f func(*outbidv1.Batch) error) error {
	return r.cfg.Ledger.Read(ctx, max(1, from), f)
}

// Now returns the ledger's time.
func (r *Reads) Now() time.Time { return r.time.now() }

// TenantStates returns the tenants that were added or have sweeps, by name.
func (r *Reads) TenantStates() []*outbidv1.TenantState {
	all := r.views.load().TenantViews(r.time.now())
	rates := r.rates.Load()
	for _, t := range all {
		name, use := t.GetTenant().GetName(), t.GetUse()
		use.Samplers = int32(r.samplers.held(name))
		if rates != nil {
			use.ReportRate = (*rates)[name]
		}
	}
	return all
}

// Tenant returns the settings of a tenant, or nil if it was not added.
func (r *Reads) Tenant(name string) *outbidv1.Tenant { return r.views.load().Tenant(name) }

// MemberOf returns the tenants that name a member.
func (r *Reads) MemberOf(member string) []string {
	var all []string
	for _, t := range r.views.load().Tenants() {
		if slices.Contains(t.GetMembers(), member) {
			all = append(all, t.GetName())
		}
	}
	return all
}

// Totals returns the cumulative counts of every tenant that ever had a sweep, by name.
func (r *Reads) Totals() []*state.Totals { return r.views.load().Totals() }

// Impossible returns why no trial of a spec could ever run on the nodes that are up, even if they were idle. It
// returns "" if one could, if the trials run elsewhere, or if no node is up.
func (r *Reads) Impossible(spec *outbidv1.SweepSpec) string {
	nodes := slices.Clone(r.views.load().Inventory.Nodes)
	if spec.GetExternal() != nil || len(nodes) == 0 {
		return ""
	}
	for i := range nodes {
		nodes[i].Draining = false // it may be opened again
	}
	compiled, err := terms.Of(spec)
	if err != nil { // Submit returns this error
		return ""
	}
	return cluster.Impossible(nodes, compiled.Demand)
}

// CheckBidder returns what is wrong with the bidder that a sweep chose, as Submit does.
func (r *Reads) CheckBidder(spec *outbidv1.SweepSpec) error {
	return rounds.CheckBidder(r.cfg.Policy, r.cfg.Settings.Bidders, spec)
}

// Round returns one round from the ledger. 0 means the newest that granted or revoked something.
func (r *Reads) Round(ctx context.Context, number uint64) (*outbidv1.Round, error) {
	return r.rounds.round(ctx, number)
}

// Rounds returns at most limit rounds that granted or revoked something, newest first, from before a round, or the
// newest if before is 0. With a sweep, it returns only those that concern it.
func (r *Reads) Rounds(ctx context.Context, before uint64, sweep string, limit int) ([]*outbidv1.Round, error) {
	return r.rounds.list(ctx, before, sweep, limit)
}

// Skew returns how far this machine's clock is ahead of the ledger's time.
func (r *Reads) Skew() time.Duration { return r.time.skew() }
