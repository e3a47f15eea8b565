// Package state is the fold of the ledger's events: sweeps, trials, leases and nodes as they stand. Fold is its only
// way to change. It has no clock, does no I/O and draws nothing at random, so that the same events always give the
// same state, live, after a restart, in the simulator and in replay.
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

// State is everything the ledger says.
type State struct {
	// Seq and Hash are those of the last batch folded in; Time is when it was decided.
	Seq  uint64
	Hash []byte
	Time time.Time
	// NextLease is the id of the next lease; NextRound the number of the policy's next round.
	NextLease uint64
	NextRound uint64
	// Decider is the policy of the newest orchestrator; nil if that did not write it down.
	Decider *outbidv1.PolicySettings

	// Nodes by name; NodeNames are sorted.
	Nodes     map[string]*Node
	NodeNames []string
	// Sweeps by id; SweepIDs in order of submission.
	Sweeps   map[string]*Sweep
	SweepIDs []string
	// Live are the sweeps that have not ended, in order of submission.
	Live []*Sweep

	// deleted sweeps, by id; nextOrder is the order of the next sweep.
	deleted   map[string]Deleted
	nextOrder int

	names map[string]int64
	keys  map[string]string
	sharing
	tenancy
	counting
	pricing
	suspects map[*Trial]*Sweep
	// avoiding are the trials that keep off a node, and faulty the names of the nodes that trials keep off, sorted.
	avoiding map[*Trial]*Sweep
	faulty   []string
	forked   map[*Sweep]bool

	table Table
}

// New returns the state before the first event.
func New() *State {
	return &State{
		NextLease: 1,
		NextRound: 1,
		Nodes:     map[string]*Node{},
		Sweeps:    map[string]*Sweep{},
		names:     map[string]int64{},
		deleted:   map[string]Deleted{},
		keys:      map[string]string{},
		suspects:  map[*Trial]*Sweep{},
		avoiding:  map[*Trial]*Sweep{},
		forked:    map[*Sweep]bool{},
		table:     NewTable(),
	}
}

// Node is a machine with a worker on it.
type Node struct {
	Info    *outbidv1.NodeInfo
	State   outbidv1.NodeState
	Reason  string
	Changed time.Time
	// SeenSeq is the last uplink message of this boot that the ledger holds.
	SeenSeq uint64
	// Shape is the node as policies see it.
	Shape cluster.Node
	// Holders says which lease holds each device, by index; nil for none.
	Holders []*Lease
	// Leases on this node, by lease id.
	Leases []*Lease
	// Faults keep new trials off it. Slice and faults never change.
	Faults []*outbidv1.NodeFault
}

// Sweep is one hyperparameter exploration: an app.
type Sweep struct {
	ID   string
	Spec *outbidv1.SweepSpec
	// Terms are the spec compiled.
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
	// Queued are the trials that want a device, first come first; Running those with a lease, by lease id.
	Queued  []int32
	Running []int32
	Counts  [8]int32
	// Forked are the trials that have a round of forks, by number.
	Forked []int32
	// Best is the number of the best trial by the metric, -1 before the first report.
	Best int32
	// Steps trained over all trials, repeated ones counted once.
	Steps int64
	// DeviceSeconds of leases that have ended.
	DeviceSeconds float64
	// SpecBytes is what its spec takes, CheckpointBytes what its trials' checkpoints take in the store, and ReportBytes what all
	// reports of its trials took.
	SpecBytes, CheckpointBytes, ReportBytes int64
	// Order counts sweeps by submission. AppSecondsBefore is the state's AppSeconds at that time.
	Order            int
	AppSecondsBefore float64
	// Fairness is how it fared by sharing the cluster, once it has ended.
	Fairness *outbidv1.Fairness
	// Measured is how fast its trials trained on average.
	Measured []cluster.Speed
	Notes    []*outbidv1.SweepNote
	// Soups that it keeps, oldest first. The list never changes.
	Soups []*outbidv1.Soup
	// Admission is what a policy with admission answered it last; nil under others.
	Admission *outbidv1.Admission
	// Waiting and Exhausted are what the tuner said last.
	Waiting, Exhausted bool
	// LackNoted: a report lacked the metric before any held it.
	LackNoted bool

	// Version grows with every change; changes says which trials changed at which version.
	Version uint64
	changes []change
	ranking ranking
	refs    map[string]int
	// started has the boots of the nodes on which a trial of it has started, by node, and trained those on which one has
	// trained well.
	started, trained map[string]string
	// countedAs is the tenant whose totals count it.
	countedAs string
}

type change struct {
	version uint64
	trial   int32
}

// maxNotes bounds the notes kept of a sweep; the ledger holds them all.
const maxNotes = 50

// Trial is one configuration being trained: a job.
type Trial struct {
	Number  int32
	State   outbidv1.TrialState
	Reason  string
	Config  string
	Bracket int32
	Seed    uint64
	// Step done, and the step to train until (0: until the code ends).
	Step, UntilStep int64
	// MaxStep ever done, which Step falls behind after a restart.
	MaxStep int64
	// Last report; nil before the first.
	Last *outbidv1.Report
	// Attributes are what the training code noted: values as JSON by name. The map never changes.
	Attributes map[string]string
	// Metric is the newest value of the sweep's metric, Best the best one and BestStep its step; NaN before any.
	Metric, Best float64
	BestStep     int64
	// MetricStep is the furthest step that the metric was reported at: what a restarted fork says again is not new.
	MetricStep    int64
	Created       time.Time
	Queued        time.Time
	Ended         time.Time
	Restarts      int32
	Resumes       int32
	DeviceSeconds float64
	// Checkpoints in the store, oldest first.
	Checkpoints []*outbidv1.Checkpoint
	// Start is another trial's checkpoint that a clone goes on from until it has saved one of its own; nil otherwise.
	Start *outbidv1.Checkpoint
	// Leases it holds, by their ids: see Lead. An ended trial may still hold some for a moment.
	Leases []*Lease
	// Round is that of its forks: several train it, or what they saved is still to be put together; nil for none. ForkAgain
	// says whether it may have another one.
	Round     *fork.Round
	ForkAgain outbidv1.ForkAgain
	// Rounds counts its rounds of forks that have ended, and Merges are the newest of them, oldest first.
	Rounds int32
	Merges []*outbidv1.TrialMerge
	// Probation is the average that it goes on from, where that is still to be judged, and what by; nil for none. DroppedMerges
	// are the averages that were dropped in a row.
	Probation     *outbidv1.MergeJudged
	DroppedMerges int32
	// AtTarget: the fork that leads did UntilStep and waits for word.
	AtTarget bool
	// Pausing: it is to be paused once its lease has ended.
	Pausing bool
	// NaNNoted: the user was told that it reported NaN or an infinity.
	NaNNoted bool
	// LeaseCount counts the leases that it has had.
	LeaseCount int32
	// NodeLosses counts the nodes that were lost under it since it last got further than LostStep, the furthest step it
	// had done when one was. Suspected: it runs alone on a node until it gets further.
	NodeLosses int32
	LostStep   int64
	Suspected  bool
	// LastFailure is the newest failure of its process of which the step is known; nil for none.
	LastFailure *outbidv1.ForkFailed
	// Avoided are nodes that it keeps off after failures there. The slice never changes.
	Avoided []Avoided
	// ResumesAs is what it is again once its sweep, which a person stopped, goes on; unspecified if it does not.
	ResumesAs outbidv1.TrialState
	// Rollbacks are its newest forks that went back behind what it had done, oldest first.
	Rollbacks []*outbidv1.Rollback
	// FailedOtherwise: it failed, and not as its process did once more.
	FailedOtherwise bool
	// Measured is how fast it trained, and Curve its metric over steps, thinned.
	Measured []cluster.Speed
	Curve    []Point

	version uint64
	// forkFailed: its process failed, and it has had no lease since.
	forkFailed bool
}

// Lease is a grant of devices to a trial until it ends.
type Lease struct {
	Sweep string
	Trial int32
	ID    uint64
	// Holder trains under it; Client is the name that it gave, if it is a client.
	Holder Holder
	Client string
	// Places are where its processes run, in the order of their ranks: rank 0 is on the first. A client's lease has none.
	Places  []Place
	Granted time.Time
	TermEnd time.Time
	Reason  string
	// Revoking says how the fork was asked to end; unspecified while it was not.
	Revoking outbidv1.RevokeKind
	// Started: the training process runs, from FromStep.
	Started  bool
	FromStep int64
	// Step is how far its fork is; AtTarget that this did the trial's UntilStep and waits for word. Training is when Step
	// was true and the fork trains on; zero while it does not.
	Step     int64
	AtTarget bool
	Training time.Time
	// Void: what is done under it counts for nothing, as the average that it began with was dropped.
	Void bool
	// LastReportSeq is the number of the newest report said under it.
	LastReportSeq uint64
	// Version of the assignment: grows with whatever the fork must be told.
	Version uint64

	// trainedWell: it has lasted for long enough to show that its nodes can train.
	trainedWell bool
	kind        string
	spread      cluster.Locality
	// types of the devices of each place, as kind.
	types []string
	// metered are its devices by type, as its tenant's totals count them. The map never changes.
	metered map[string]int32
}

// Done says whether the sweep has ended for good, unless it is extended.
func (s *Sweep) Done() bool { return sweepOver(s.State) }

func sweepOver(s sweepState) bool { return s == sweepDone || s == sweepStopped || s == sweepFailed }

// Maximise says whether the sweep's metric is to be large.
func (s *Sweep) Maximise() bool { return s.Spec.GetMode() == "max" }

// Done says whether the trial has ended for good.
func (t *Trial) Done() bool { return t.State >= outbidv1.TrialState_TRIAL_STATE_COMPLETED }

// Newest is the trial's newest checkpoint that can be read, nil if there is none.
func (t *Trial) Newest() *outbidv1.Checkpoint {
	for _, c := range slices.Backward(t.Checkpoints) {
		if !c.GetUnreadable() {
			return c
		}
	}
	return nil
}

// From is the checkpoint that the trial's next fork starts from, nil for a fresh start.
func (t *Trial) From() *outbidv1.Checkpoint {
	if t.Start != nil {
		return t.Start
	}
	return t.Newest()
}

// Sweep returns a sweep by id; a *DeletedError if it was deleted.
func (st *State) Sweep(id string) (*Sweep, error) {
	if s, ok := st.Sweeps[id]; ok {
		return s, nil
	}
	if d, ok := st.deleted[id]; ok {
		return nil, &DeletedError{d}
	}
	return nil, notFound("sweep", id)
}

// Trial returns a trial by number.
func (s *Sweep) Trial(n int32) (*Trial, error) {
	if n < 0 || int(n) >= len(s.Trials) {
		return nil, notFound("trial", trialName(s.ID, n))
	}
	return s.Trials[n], nil
}

// ByKey returns the id of the sweep that was submitted with an idempotency key, "" if none was.
func (st *State) ByKey(key string) string {
	if key == "" {
		return ""
	}
	return st.keys[key]
}

// NextID is the id that the next sweep of a name gets.
func (st *State) NextID(name string) string { return sweepID(name, st.names[name]+1) }

// FreeDevices are the indexes of a node's devices that no lease holds.
func (n *Node) FreeDevices() []int32 {
	var free []int32
	for i, l := range n.Holders {
		if l == nil {
			free = append(free, int32(i))
		}
	}
	return free
}

// Up says whether the node can be counted on.
func (n *Node) Up() bool {
	return n.State == outbidv1.NodeState_NODE_STATE_UP || n.State == outbidv1.NodeState_NODE_STATE_DRAINING
}

// better says whether a is better than b. What is no number is worst, and an infinity is none: a loss of -Inf is an
// overflow, never the best there is.
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

// Finite says whether a value is a number that can be compared.
func Finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
