package control

import (
	"context"
	"log/slog"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Config configures a Loop.
type Config struct {
	Settings Settings
	Policy   policy.Policy
	// PolicyOptions are all the options that Policy was made with; the ledger records them.
	PolicyOptions map[string]string
	Ledger        ledger.Ledger
	History       History
	// Send sends orders to a node. Lost orders are sent again when the node is next seen.
	Send func(*outbidv1.Orders) error
	// Delete removes an object from the store. It is retried until it succeeds.
	Delete func(ctx context.Context, key string) error
	Now    func() time.Time
	// Uptime is a monotonic clock of this machine, or nil.
	Uptime Uptime
	Logger *slog.Logger
	// Fairness is called concurrently for readers. It defaults to Settings.Fairness.
	Fairness func(v *policy.View, a *policy.App, over bool) *outbidv1.Fairness
	// Info describes the server for the API.
	Info func() *outbidv1.GetServerInfoResponse
	// Seen is called after each batch has been appended to the ledger. It may be nil.
	Seen func(seq uint64, hash []byte) error
	// Observe is called with the durations of each step's decisions and append, and its number of reports. It may be
	// nil.
	Observe func(Observation)
	// Changed, if not nil, is called with a step's changes once its events are in the ledger. The changes are valid
	// during the call.
	Changed func(now time.Time, changes []state.Change, o Observation)
	// AppendPatience is how long one append is retried before the loop ends; 0 means a minute. After a full disk,
	// JetStream accepts nothing until it is restarted, and readers wait as long as an append does.
	AppendPatience time.Duration
	// Confirm returns once no other server can lead yet. The loop calls it before answers of a step that appends nothing;
	// an append confirms it by itself. It may be nil.
	Confirm func(ctx context.Context) error
	// Samplers is the maximum number of tuners that run in processes at the same time; 0 means 16.
	Samplers int
	// SnapshotEvery is the minimum number of events between two snapshots; 0 means 50,000.
	SnapshotEvery int
}

// History stores every report of a sweep.
type History interface {
	Append(seq uint64, events []*outbidv1.Event) error
	Flush() error
	Read(ctx context.Context, sweep string, trial *int32, f func(trial int32, r *outbidv1.Report) error) error
	// ReadAfter calls f for the reports of a sweep after the first n.
	ReadAfter(ctx context.Context, sweep string, n int64, f func(trial int32, r *outbidv1.Report) error) error
}
