package api

import (
	"context"
	"math"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Control is the control loop behind the API. Its errors wrap state.ErrNotFound, state.ErrInvalid or state.ErrConflict
// if the request is at fault. Every method is safe for concurrent use, and returned values do not change.
type Control interface {
	// Submit starts a sweep whose spec has been checked. Calls with the same key return the same sweep.
	Submit(ctx context.Context, spec *outbidv1.SweepSpec, actor, key string) (id string, err error)
	// Impossible returns why no trial of a spec could run on the nodes that are up, or "" if one could.
	Impossible(spec *outbidv1.SweepSpec) string
	// CheckBidder returns what is wrong with the bidder that a sweep chose. Submit checks the same.
	CheckBidder(spec *outbidv1.SweepSpec) error
	// Command pauses, resumes or stops a sweep.
	Command(ctx context.Context, sweep string, cmd outbidv1.SweepCommand, actor string) error
	// Delete removes a sweep that has ended, and returns the time of the deletion and its caller. Deleting it again is
	// not an error. A
	// *state.EndingError means that the sweep's last processes are still ending.
	Delete(ctx context.Context, sweep, actor string) (state.Deleted, error)
	// Extend adds trials or limits, lengthens the steps or widens the space of a sweep. It returns the trials that are
	// trained again because their checkpoints were dropped. A preview changes nothing.
	Extend(ctx context.Context, req *outbidv1.ExtendSweepRequest, actor string) ([]*outbidv1.TrainedAgain, error)
	// Annotate changes the description and the tags of a sweep.
	Annotate(ctx context.Context, req *outbidv1.AnnotateSweepRequest, actor string) error
	// PublishSoup adds a stored soup to a sweep, and returns it with its number.
	PublishSoup(ctx context.Context, sweep string, soup *outbidv1.Soup) (*outbidv1.Soup, error)
	// Ask returns a trial for a client of an external sweep.
	Ask(ctx context.Context, sweep, client string) (*outbidv1.AskTrialResponse, error)
	// Tell records that client's reports.
	Tell(ctx context.Context, req *outbidv1.TellTrialRequest) (*outbidv1.TellTrialResponse, error)
	// Sweeps returns every sweep, newest first.
	Sweeps() []*outbidv1.Sweep
	// Sweep returns one sweep.
	Sweep(id string) (*outbidv1.Sweep, error)
	// Trials returns at most n trials of a sweep by number, starting with number from.
	Trials(sweep string, from int32, n int) ([]*outbidv1.Trial, error)
	// BestTrials returns at most n trials after skipping offset. They are ordered by metric, the best first; trials
	// without a metric come last.
	BestTrials(sweep string, n, offset int) ([]*outbidv1.Trial, error)
	// Trial returns one trial.
	Trial(sweep string, n int32) (*outbidv1.Trial, error)
	// Nodes returns every node, by name.
	Nodes() []*outbidv1.Node
	// Changes returns the sweep's trials that changed after version since (0: all; JustVersion: none), the new version,
	// and a channel that is closed at the next change of the sweep or of one of its trials.
	Changes(sweep string, since uint64) (trials []*outbidv1.Trial, version uint64, next <-chan struct{}, err error)
	// EachChange calls f for each trial that Changes would return, without the field config, which is faster.
	EachChange(sweep string, since uint64, f func(*outbidv1.Trial)) (version uint64, next <-chan struct{}, err error)
	// Reports calls f for every report of the sweep, or of one trial, oldest first.
	Reports(ctx context.Context, sweep string, trial *int32, f func(trial int32, r *outbidv1.Report) error) error
	// ReportsAfter skips the sweep's first n reports and calls f for the others, oldest first.
	ReportsAfter(ctx context.Context, sweep string, n int64, f func(trial int32, r *outbidv1.Report) error) error
	// Superseded returns a function that reports whether a report was superseded: its trial restarted from an earlier
	// step.
	Superseded(sweep string) (func(trial int32, r *outbidv1.Report) bool, error)
	// Ledger calls f for every batch from sequence from to the last one.
	Ledger(ctx context.Context, from uint64, f func(*outbidv1.Batch) error) error
	// Blobs returns the tenants whose sweeps use each function, by its SHA-256.
	Blobs() map[string][]string
	// Round returns one round of the policy; 0 is the newest that changed an allocation. Rounds returns the newest
	// rounds before one (0: any), newest first. With a sweep it returns only rounds in which the sweep took part.
	Round(ctx context.Context, number uint64) (*outbidv1.Round, error)
	Rounds(ctx context.Context, before uint64, sweep string, limit int) ([]*outbidv1.Round, error)
	// Prices returns the policy's prices, or nil if it does not have any.
	Prices() *outbidv1.Prices
	// DevicePrices returns the prices of devices, or nil without a file of prices.
	DevicePrices() *outbidv1.DevicePrices
	// StopTrial saves and ends one trial.
	StopTrial(ctx context.Context, sweep string, trial int32, reason, actor string) error
	// RetryTrial runs a failed trial again.
	RetryTrial(ctx context.Context, sweep string, trial int32, reason, actor string) error
	// ControlNode keeps new trials off a node, moves its trials away too, or opens it again.
	ControlNode(ctx context.Context, node string, command outbidv1.NodeCommand, reason, actor string) error
	// SetTenant adds a tenant, which must be new if add is set, or changes one. RemoveTenant removes a tenant's
	// settings.
	SetTenant(ctx context.Context, t *outbidv1.Tenant, add bool, actor string) error
	RemoveTenant(ctx context.Context, tenant, actor string) error
	// TenantStates returns the tenants that were added or have sweeps, by name.
	TenantStates() []*outbidv1.TenantState
	// Tenant returns a tenant's settings, or nil if it was never added. MemberOf returns the tenants that list a
	// member.
	Tenant(name string) *outbidv1.Tenant
	MemberOf(member string) []string
	// Totals returns the cumulative counters of every tenant that ever had a sweep, by name. They never decrease.
	Totals() []*state.Totals
	// Info returns the server's version, settings and health.
	Info() *outbidv1.GetServerInfoResponse
}

// JustVersion makes Control.Changes return no trials.
const JustVersion = math.MaxUint64

// Logs reads what trials printed. bus.Logs implements it.
type Logs interface {
	// Reserve makes room for the given number of bytes of a tenant's logs.
	Reserve(ctx context.Context, tenant string, bytes int64) error
	// Read calls f with the output of a tenant's sweep, or of one trial, oldest first. It starts at a position that
	// Tail returned, or at 0 for the first. It returns after the last chunk, or with follow when ctx ends or f fails.
	Read(ctx context.Context, tenant, sweep string, trial *int32, from uint64, follow bool,
		f func(*outbidv1.LogChunk) error) error
	// Tail returns the last chunks that contain at least the given number of lines, and the position after them for
	// Read.
	Tail(ctx context.Context, tenant, sweep string, trial *int32, lines int) ([]*outbidv1.LogChunk, uint64, error)
}
