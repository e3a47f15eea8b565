package sim

import (
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/sim/measure"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Setup describes a simulated cluster and the events on it.
type Setup struct {
	Nodes []cluster.Node
	// Apps arrive over time. More can be submitted to a World.
	Apps []App
	// Policy creates the policy, again after each crash of the orchestrator.
	Policy func() policy.Policy
	// Options are the policy's options, recorded in the ledger for replays, or nil to omit them.
	Options map[string]string
	// Stays are the times when nodes are present. A node without a stay is always present.
	Stays []Stay
	// Tenants are added at the beginning with their weights. Tenants that are not listed have weight 1.
	Tenants []measure.Tenant
	// Prices are the prices of devices, in order of time.
	Prices []PriceChange
	// Control is the control loop's settings. NewTuner must be set. The simulator sets Term, Trust and Prices.
	Control control.Settings
	// Seed is the seed of everything random in the run: faults, and the model's draws.
	Seed uint64
	// Transport carries messages; nil is Perfect.
	Transport Transport
	// Model determines how trials train. nil is Curves, which needs Jobs in each App; its trials may end without a
	// report.
	Model Model
	// RestartDelay is the time to restore the checkpoint of a trial that had devices before.
	RestartDelay time.Duration
	// Forks are the costs of fork slots in addition to training.
	Forks ForkCosts
	// SaveEvery is the interval of a running trial's periodic saves; steps since the last save are lost in a failure. 0
	// is 30 minutes.
	SaveEvery time.Duration
	// SnapshotEvery is the number of batches between two snapshots of the orchestrator; 0 for none.
	SnapshotEvery int
	// Mishaps are faults other than those of messages.
	Mishaps Mishaps
	// Bad are nodes on which trials fail because of the node.
	Bad []BadNode
	// Bars is the number of leases that are kept for a Gantt chart.
	Bars int
	// Ledger receives every batch. With nil, batches are discarded, or kept in memory if the orchestrator can crash.
	Ledger ledger.Ledger
	// Progress is called at intervals with the progress of the run, if not nil.
	Progress func(at time.Duration, done, jobs int)
	// Clock returns real time to measure the cost of decisions; without it the result does not have that cost.
	Clock func() time.Time
}

// App is a sweep that arrives.
type App struct {
	Spec   *outbidv1.SweepSpec
	Submit time.Duration
	// Jobs are the behaviours of its trials, by number. Further trials behave like the last.
	Jobs []Job
	// Commands are people's commands, in order of time.
	Commands []Command
}

// job returns the behaviour of a trial, or nil if the app does not have it.
func (a *App) job(trial int32) *Job {
	if len(a.Jobs) == 0 {
		return nil
	}
	return &a.Jobs[min(int(trial), len(a.Jobs)-1)]
}

// Job is the behaviour of a trial. Policies learn about it only through reports.
type Job struct {
	// Speeds are the actual steps per second.
	Speeds *cluster.Speeds
	// Steps is the number of steps after which its code ends; 0 for never.
	Steps int64
	// Loss returns the metric reported at a step; nil reports nothing. Reports is the number of reports before Steps;
	// alternatively, Every is the number of steps between two reports.
	Loss    func(step float64) float64
	Reports int
	Every   float64
	// Isolated is the time in seconds that it takes alone and undisturbed.
	Isolated float64
	// Utility returns the worth of its end this many seconds after its arrival, or is nil.
	Utility func(seconds float64) float64
	// Target is the time in seconds from its arrival until it should end. Decay is the cost of lateness per second; 0
	// for none.
	Target, Decay float64
}

// Stay is a time when a node is present; To is 0 if it stays to the end.
type Stay struct {
	Node     string
	From, To time.Duration
}

// PriceChange are the prices of devices from a time on.
type PriceChange struct {
	At     time.Duration
	Prices *outbidv1.DevicePrices
}

// Command is a person's command at a time: Command, or another weight if that is not 0.
type Command struct {
	At      time.Duration
	Command outbidv1.SweepCommand
	Weight  float64
}

// Mishaps are mean times between faults, exponentially distributed; 0 for never.
type Mishaps struct {
	// NodeFails is per node, and NodeBack the time until it is up again.
	NodeFails, NodeBack time.Duration
	// JobFails is per running job.
	JobFails time.Duration
	// AverageFails is the probability that a worker cannot average what forks saved. One time in four, other workers
	// could not either.
	AverageFails float64
	// AppPauses is per app, by a person, and AppGoesOn the time until the person resumes it.
	AppPauses, AppGoesOn time.Duration
	// OrchestratorFails is the mean time between crashes. They occur between two steps, and sometimes within one,
	// before or after its decisions are in the ledger. The orchestrator restarts at once. Workers notice only with a
	// transport that is not perfect.
	OrchestratorFails time.Duration
}

// Result is the result of a run.
type Result struct {
	measure.Result
	// State is the final state.
	State *state.State
}
