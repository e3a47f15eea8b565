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

// Setup is what a simulated cluster is made of, and what happens on it.
type Setup struct {
	Nodes []cluster.Node
	// Apps arrive over time. More can be submitted to a World.
	Apps []App
	// Policy makes the policy, anew after each crash of the orchestrator.
	Policy func() policy.Policy
	// Options are all that the policy was made with, for whoever replays the ledger; nil leaves them out of it.
	Options map[string]string
	// Stays say when nodes are there; one that is not named always is.
	Stays []Stay
	// Tenants with their weights, which are added at the beginning, and which the figures count; those not named weigh 1.
	Tenants []measure.Tenant
	// Control is the control loop's settings; NewTuner must be set. Term and Trust are the simulator's own.
	Control control.Settings
	// Seed of everything random in the run itself: faults, and what the model draws.
	Seed uint64
	// Transport carries messages; nil is Perfect.
	Transport Transport
	// Model says how trials train; nil is Curves, for which each App needs Jobs. Their trials may end without a report.
	Model Model
	// RestartDelay is how long a trial that had devices before takes to restore its checkpoint before it trains again.
	RestartDelay time.Duration
	// Forks is what rounds of forks take beside training.
	Forks ForkCosts
	// SaveEvery is how often a running trial saves of its own accord; what it did since is lost when it fails. 0 is 30 minutes.
	SaveEvery time.Duration
	// SnapshotEvery is the number of batches between two snapshots of the orchestrator; 0 for none.
	SnapshotEvery int
	// Mishaps are what goes wrong beside messages.
	Mishaps Mishaps
	// Bad are nodes on which trials fail because of the node.
	Bad []BadNode
	// Bars is how many leases are kept for a Gantt chart.
	Bars int
	// Ledger takes every batch. Nil is one that forgets them, or one in memory where the orchestrator can crash.
	Ledger ledger.Ledger
	// Progress is told now and then how far the run is; nil for nobody.
	Progress func(at time.Duration, done, jobs int)
	// Clock tells real time, for the cost of decisions; nil leaves that out of the result.
	Clock func() time.Time
}

// App is a sweep that arrives.
type App struct {
	Spec   *outbidv1.SweepSpec
	Submit time.Duration
	// Jobs says how its trials behave, by number. Trials beyond the last behave as the last.
	Jobs []Job
	// Commands of people, in order of time.
	Commands []Command
}

// job is how a trial behaves; nil if the app does not say.
func (a *App) job(trial int32) *Job {
	if len(a.Jobs) == 0 {
		return nil
	}
	return &a.Jobs[min(int(trial), len(a.Jobs)-1)]
}

// Job says how a trial behaves: what a policy learns of it, it learns by reports.
type Job struct {
	// Speeds are the steps per second that it really makes.
	Speeds *cluster.Speeds
	// Steps after which its code ends by itself; 0 for never.
	Steps int64
	// Loss is what it reports at a step; nil reports nothing. Reports is how often it does on its way to Steps; Every is
	// the steps between two reports instead.
	Loss    func(step float64) float64
	Reports int
	Every   float64
	// Isolated is the seconds that it takes alone and undisturbed.
	Isolated float64
	// Utility is what its end so many seconds after its arrival is worth; nil for nothing.
	Utility func(seconds float64) float64
	// Target is the seconds from its arrival in which it should end, and Decay how fast lateness hurts, per second; 0 for none.
	Target, Decay float64
}

// Stay is a time in which a node is there; To is 0 if it stays to the end.
type Stay struct {
	Node     string
	From, To time.Duration
}

// Command is what a person asks for at some time.
type Command struct {
	At      time.Duration
	Command outbidv1.SweepCommand
}

// Mishaps are mean times between things going wrong, exponentially distributed; 0 for never.
type Mishaps struct {
	// NodeFails per node, and NodeBack until it is up again.
	NodeFails, NodeBack time.Duration
	// JobFails per running job.
	JobFails time.Duration
	// AverageFails is the chance, from 0 to 1, that a worker cannot average what forks saved; one time in four no other could.
	AverageFails float64
	// AppPauses per app, by a person, and AppGoesOn until the same person lets it go on.
	AppPauses, AppGoesOn time.Duration
	// OrchestratorFails: between two steps, and sometimes within one, before or after what was decided is in the ledger. It
	// is started again at once. Workers notice only under a transport that is not perfect.
	OrchestratorFails time.Duration
}

// Result is how a run went.
type Result struct {
	measure.Result
	// State at the end.
	State *state.State
}
