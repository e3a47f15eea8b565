// Package state computes the state of sweeps, trials, leases and nodes from the ledger's events. It changes only by
// Fold. It has no clock, does no I/O and uses no randomness, so the same events always give the same state: live,
// after a restart, in the simulator and in replay.
package state

import (
	"math"
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/fork"
	"github.com/outbid-dev/outbid/orchestrator/spec/terms"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// State is everything that the ledger says.
type State struct {
	// Seq and Hash are those of the last applied batch. Time is when it was decided.
	Seq  uint64
	Hash []byte
	Time time.Time
	// NextLease is the ID of the next lease, and NextRound the number of the policy's next round.
	NextLease uint64
	NextRound uint64
	// Decider is the policy of the newest server, or nil if that did not record it.
	Decider *outbidv1.PolicySettings

	nodeIndex
	sweepIndex
	trialWatch
	forkSlots
	sharing
	tenancy
	counting
	pricing
	tariff

	table Table
}

// New returns the state before the first event.
func New() *State {
	return &State{
		NextLease:  1,
		NextRound:  1,
		nodeIndex:  nodeIndex{Nodes: map[string]*Node{}},
		sweepIndex: sweepIndex{Sweeps: map[string]*Sweep{}, deleted: map[string]Deleted{}, names: map[string]int64{}, keys: map[string]string{}},
		trialWatch: trialWatch{suspects: map[*Trial]*Sweep{}, avoiding: map[*Trial]*Sweep{}},
		forkSlots:  forkSlots{forked: map[*Sweep]bool{}},
		table:      NewTable(),
	}
}

// Sweep is a search over configurations.
type Sweep struct {
	ID   string
	Spec *outbidv1.SweepSpec
	// Terms are the compiled spec.
	Terms          *terms.Terms
	State          outbidv1.SweepState
	Reason         string
	Actor          string
	StopActor      string
	IdempotencyKey string
	Submitted      time.Time
	Ended          time.Time

	// Trials by number.
	Trials []*Trial
	trialStates
	// Forked are the trials in a fork slot, by number.
	Forked []int32
	// Best is the number of the best trial by the metric, or -1 before the first report.
	Best int32
	// Steps trained over all trials. Repeated steps count once.
	Steps int64
	// DeviceSeconds and Cost of leases that have ended.
	DeviceSeconds, Cost float64
	// SpecBytes is the size of the spec, CheckpointBytes that of the trials' checkpoints in the store, and
	// ReportBytes that of all reports.
	SpecBytes, CheckpointBytes, ReportBytes int64
	// Order numbers sweeps by submission. AppSecondsBefore is the state's AppSeconds at that time.
	Order            int
	AppSecondsBefore float64
	// Fairness is how the sweep fared by sharing the cluster, once it has ended.
	Fairness *outbidv1.Fairness
	// Measured is how fast the trials trained on average.
	Measured []cluster.Speed
	Notes    []*outbidv1.SweepNote
	// Annotation is its description and its tags, or nil. It must not be changed.
	Annotation *outbidv1.Annotation
	soups
	// Admission is the last answer of a policy with admission, or nil under other policies.
	Admission *outbidv1.Admission
	// Memory is what the sampler started from, or nil. It must not be changed.
	Memory *outbidv1.Memory
	tunerStatus
	// LackNoted reports that a report lacked the metric before any had it.
	LackNoted bool
	// FailedBefore is how many trials had failed when one was last retried.
	FailedBefore int32

	changeLog
	ranking ranking
	refs    map[string]int
	// started holds the boots of the nodes on which a trial of the sweep has started, by node. trained holds those on
	// which one has trained well.
	started, trained map[string]string
	// countedAs is the tenant whose totals include the sweep.
	countedAs string
}

// maxNotes limits the notes of a sweep; the ledger has all of them.
const maxNotes = 50

// Trial is a configuration that is trained.
type Trial struct {
	Number  int32
	State   outbidv1.TrialState
	Reason  string
	Config  string
	Bracket int32
	Seed    uint64
	// Step is the last step, and UntilStep the target (0: until the code ends).
	Step, UntilStep int64
	// MaxStep is the highest step so far. Step is lower after a restart.
	MaxStep int64
	// Last is the last report, or nil.
	Last *outbidv1.Report
	// Attributes are values set by the training code, as JSON by name. The map must not be changed.
	Attributes map[string]string
	// Metric is the newest value of the sweep's metric, Best the best one and BestStep its step. They are NaN before
	// the first.
	Metric, Best float64
	BestStep     int64
	// MetricStep is the highest step with a reported metric. A restarted fork repeats reports up to it.
	MetricStep int64
	Created    time.Time
	Queued     time.Time
	Ended      time.Time
	Restarts   int32
	Resumes    int32
	// Retries counts how often the trial was retried after it had failed. From the first time on its tuner is not
	// notified about it.
	Retries int32
	// CopiedFrom is the other trial from whose checkpoint its tuner continued it last, or nil.
	CopiedFrom    *int32
	DeviceSeconds float64
	// Checkpoints in the store, oldest first.
	Checkpoints []*outbidv1.Checkpoint
	// Start is the checkpoint of another trial that a clone starts from until it has saved a checkpoint, or nil.
	Start *outbidv1.Checkpoint
	// Leases that the trial holds, by ID: see Lead. An ended trial may still hold some for a moment.
	Leases []*Lease
	// Slot is the fork slot in which forks train the trial or are being averaged, or nil. ForkAgain restricts
	// further fork slots.
	Slot      *fork.Slot
	ForkAgain outbidv1.ForkAgain
	// Slots counts the fork slots that have ended. Merges are the newest of them, oldest first.
	Slots  int32
	Merges []*outbidv1.TrialMerge
	// Probation is the average that the trial continued from while it is not judged yet, or nil. DroppedMerges counts
	// the averages that were dropped in a row.
	Probation     *outbidv1.MergeJudged
	DroppedMerges int32
	// AtTarget reports that the leading fork reached UntilStep and waits.
	AtTarget bool
	// Pausing reports that the trial will be paused once its lease has ended.
	Pausing bool
	// NaNNoted reports that the user was warned about a metric of NaN or infinity.
	NaNNoted bool
	// LeaseCount counts the leases that the trial has had.
	LeaseCount int32
	// NodeLosses counts the nodes that were lost while they ran the trial, since it last got beyond LostStep, the
	// highest step at such a loss. A Suspected trial runs alone on a node until it gets further.
	NodeLosses int32
	LostStep   int64
	Suspected  bool
	// LastFailure is the newest failure of the trial's process at a known step, or nil.
	LastFailure *outbidv1.ForkFailed
	// Avoided are nodes that the trial avoids after failures there. The slice must not be changed.
	Avoided []Avoided
	// ResumesAs is the state that the trial returns to when its sweep, which a person stopped, continues; unspecified
	// if it does not.
	ResumesAs outbidv1.TrialState
	// Rollbacks are the newest forks that started behind the highest step, oldest first.
	Rollbacks []*outbidv1.Rollback
	// FailedOtherwise reports that the trial failed for a reason other than another failure of its process.
	FailedOtherwise bool
	// Measured is how fast the trial trained, and Curve its metric over steps, thinned.
	Measured []cluster.Speed
	Curve    []Point

	version uint64
	// forkFailed reports that the process failed and no lease has been granted since.
	forkFailed bool
}

// Lease is a grant of devices to a trial until it ends.
type Lease struct {
	Sweep string
	Trial int32
	ID    uint64
	// Holder trains under the lease. Client is the name of a client.
	Holder Holder
	Client string
	// Places are where the processes run, in the order of their ranks: rank 0 is on the first. A client's lease has
	// no places.
	Places  []Place
	Granted time.Time
	TermEnd time.Time
	Reason  string
	// Revoking is how the fork was asked to end, or unspecified.
	Revoking outbidv1.RevokeKind
	// Started reports that the training process runs, from FromStep.
	Started  bool
	FromStep int64
	// Step is the fork's step. AtTarget reports that it reached the trial's UntilStep and waits. Training is when the
	// fork reached Step if it is training, or zero.
	Step     int64
	AtTarget bool
	Training time.Time
	// Void reports that the fork's work does not count, because the average that it started from was dropped.
	Void bool
	// LastReportSeq is the number of the newest report under this lease.
	LastReportSeq uint64
	// Version of the assignment. It grows with every change that the fork must learn.
	Version uint64
	// Shards has the newest stored shard of each rank whose checkpoint is not complete, by rank. The slice must not be
	// changed.
	Shards []*outbidv1.SavedShard

	// trainedWell reports that the lease has lasted long enough to show that its nodes can train.
	trainedWell bool
	kind        string
	spread      cluster.Locality
	// types of the devices of each place, like kind.
	types []string
	// hourPrice is the price of the devices for an hour, at the prices of the grant.
	hourPrice float64
	// metered are the devices by type as in the totals of the tenant. The map must not be changed.
	metered map[string]int32
}

// Done reports whether the sweep has ended. It may still be extended.
func (s *Sweep) Done() bool { return sweepOver(s.State) }

func sweepOver(s sweepState) bool { return s == sweepDone || s == sweepStopped || s == sweepFailed }

// Maximise reports whether the sweep maximises its metric.
func (s *Sweep) Maximise() bool { return s.Spec.GetMode() == "max" }

// Done reports whether the trial has ended.
func (t *Trial) Done() bool { return t.State >= outbidv1.TrialState_TRIAL_STATE_COMPLETED }

// Newest returns the trial's newest readable checkpoint, or nil.
func (t *Trial) Newest() *outbidv1.Checkpoint {
	for _, c := range slices.Backward(t.Checkpoints) {
		if !c.GetUnreadable() {
			return c
		}
	}
	return nil
}

// From returns the checkpoint that the trial's next fork starts from, or nil to start from the beginning.
func (t *Trial) From() *outbidv1.Checkpoint {
	if t.Start != nil {
		return t.Start
	}
	return t.Newest()
}

// Trial returns a trial by number.
func (s *Sweep) Trial(n int32) (*Trial, error) {
	if n < 0 || int(n) >= len(s.Trials) {
		return nil, notFound("trial", trialName(s.ID, n))
	}
	return s.Trials[n], nil
}

// better reports whether a is better than b. Values that are not finite are worst, because a loss of -Inf is an
// overflow and not a good result.
func better(a, b float64, maximise bool) bool {
	switch {
	case !Finite(a):
		return false
	case !Finite(b):
		return true
	case maximise:
		return a > b
	default:
		return a < b
	}
}

// Finite reports whether a value is neither NaN nor infinite.
func Finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
