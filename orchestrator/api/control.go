package api

import (
	"context"
	"math"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Control is what decides: the loop behind the API. Errors wrap state.ErrNotFound, state.ErrInvalid or
// state.ErrConflict where the caller is to blame. Every method may be called concurrently, and what it returns is
// not changed any more.
type Control interface {
	// Submit starts a sweep whose spec has been checked. The same key gives the same sweep.
	Submit(ctx context.Context, spec *outbidv1.SweepSpec, actor, key string) (id string, err error)
	// Impossible says why no trial of a spec could ever run on the nodes that are up; "" if one could.
	Impossible(spec *outbidv1.SweepSpec) string
	// CheckAgent says what is wrong with the agent that a sweep chose, as Submit does.
	CheckAgent(spec *outbidv1.SweepSpec) error
	// Command pauses, resumes or stops a sweep.
	Command(ctx context.Context, sweep string, cmd outbidv1.SweepCommand, actor string) error
	// Delete forgets a sweep that has ended, and says when that was and who did it; one that is forgotten already is no
	// error. A *state.EndingError says that its last processes are ending.
	Delete(ctx context.Context, sweep, actor string) (state.Deleted, error)
	// Extend gives a sweep more trials, longer steps or a wider space, and says what is trained again, as its checkpoint was
	// dropped. A preview changes nothing.
	Extend(ctx context.Context, req *outbidv1.ExtendSweepRequest, actor string) ([]*outbidv1.TrainedAgain, error)
	// PublishSoup makes a soup that is in the store one of a sweep's, and returns it with its number.
	PublishSoup(ctx context.Context, sweep string, soup *outbidv1.Soup) (*outbidv1.Soup, error)
	// Ask gives a client of an external sweep something to train.
	Ask(ctx context.Context, sweep, client string) (*outbidv1.AskTrialResponse, error)
	// Tell takes in what that client measured.
	Tell(ctx context.Context, req *outbidv1.TellTrialRequest) (*outbidv1.TellTrialResponse, error)
	// Sweeps returns every sweep, newest first.
	Sweeps() []*outbidv1.Sweep
	// Sweep returns one sweep.
	Sweep(id string) (*outbidv1.Sweep, error)
	// Trials returns at most n trials of a sweep by number, beginning with number from.
	Trials(sweep string, from int32, n int) ([]*outbidv1.Trial, error)
	// BestTrials returns at most n trials by metric, best first and those without one last, after offset others.
	BestTrials(sweep string, n, offset int) ([]*outbidv1.Trial, error)
	// Trial returns one trial.
	Trial(sweep string, n int32) (*outbidv1.Trial, error)
	// Nodes returns every node, by name.
	Nodes() []*outbidv1.Node
	// Changes returns the sweep's trials changed after version since (0: all; JustVersion: none), the new version, and
	// a channel closed at the next change of the sweep or of one of its trials.
	Changes(sweep string, since uint64) (trials []*outbidv1.Trial, version uint64, next <-chan struct{}, err error)
	// Reports calls f for every report of the sweep, or of one trial, oldest first.
	Reports(ctx context.Context, sweep string, trial *int32, f func(trial int32, r *outbidv1.Report) error) error
	// ReportsAfter calls f for the reports of the sweep after the first n, oldest first.
	ReportsAfter(ctx context.Context, sweep string, n int64, f func(trial int32, r *outbidv1.Report) error) error
	// Superseded returns what says of a sweep's reports whether their trial was started again from before them since.
	Superseded(sweep string) (func(trial int32, r *outbidv1.Report) bool, error)
	// Ledger calls f for every batch from sequence from to the last one.
	Ledger(ctx context.Context, from uint64, f func(*outbidv1.Batch) error) error
	// Blobs says which functions sweeps use, by SHA-256, and of which tenants those are.
	Blobs() map[string][]string
	// Round returns one round of the policy, 0 for the newest that gave or took something; Rounds the newest before one (0:
	// any), newest first, with a sweep only those that it had a part in.
	Round(ctx context.Context, number uint64) (*outbidv1.Round, error)
	Rounds(ctx context.Context, before uint64, sweep string, limit int) ([]*outbidv1.Round, error)
	// Prices of the policy; nil if it has made none.
	Prices() *outbidv1.Prices
	// SetTenant adds a tenant, which must be new then, or changes one; RemoveTenant forgets what was set for one.
	SetTenant(ctx context.Context, t *outbidv1.Tenant, add bool, actor string) error
	RemoveTenant(ctx context.Context, tenant, actor string) error
	// TenantStates are the tenants that were added or have sweeps, by name.
	TenantStates() []*outbidv1.TenantState
	// Tenant is what was set for a tenant, nil if nobody added it; MemberOf the tenants that name a member.
	Tenant(name string) *outbidv1.Tenant
	MemberOf(member string) []string
	// Totals are the cumulative counts of every tenant that ever had a sweep, by name. None of them ever falls.
	Totals() []*state.Totals
	// Info says what the server is and how it fares.
	Info() *outbidv1.GetServerInfoResponse
}

// JustVersion asks Control.Changes for no trials, however many there are.
const JustVersion = math.MaxUint64

// Logs reads what trials printed; bus.Logs does.
type Logs interface {
	// Reserve makes room for so many bytes of what a tenant's trials print.
	Reserve(ctx context.Context, tenant string, bytes int64) error
	// Read calls f with the output of a tenant's sweep, or of one trial, oldest first, from a place that Tail returned or from
	// the first (0). It ends with the last there is, or with follow when ctx ends or f fails.
	Read(ctx context.Context, tenant, sweep string, trial *int32, from uint64, follow bool,
		f func(*outbidv1.LogChunk) error) error
	// Tail returns the last chunks that hold at least so many lines, and where to read on after them.
	Tail(ctx context.Context, tenant, sweep string, trial *int32, lines int) ([]*outbidv1.LogChunk, uint64, error)
}
