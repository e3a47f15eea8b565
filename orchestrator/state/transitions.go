package state

import (
	"fmt"
	"slices"
	"strings"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// A transition says in which states something may be when an event is folded in, and where that leads. The tables below
// are the whole legal graph: every event is held against them, docs/reference/events.md prints them, and a test tries every
// pair of state and event.
type transition[S ~int32] struct {
	Event string
	From  []S
	// To are the states that it may lead to, each of From to each of them; nil leaves it as it was.
	To []S
}

type (
	sweepState = outbidv1.SweepState
	trialState = outbidv1.TrialState
	nodeState  = outbidv1.NodeState
)

const (
	sweepNone     = outbidv1.SweepState_SWEEP_STATE_UNSPECIFIED
	sweepRunning  = outbidv1.SweepState_SWEEP_STATE_RUNNING
	sweepPaused   = outbidv1.SweepState_SWEEP_STATE_PAUSED
	sweepStopping = outbidv1.SweepState_SWEEP_STATE_STOPPING
	sweepDone     = outbidv1.SweepState_SWEEP_STATE_DONE
	sweepStopped  = outbidv1.SweepState_SWEEP_STATE_STOPPED
	sweepFailed   = outbidv1.SweepState_SWEEP_STATE_FAILED

	trialNone      = outbidv1.TrialState_TRIAL_STATE_UNSPECIFIED
	trialQueued    = outbidv1.TrialState_TRIAL_STATE_QUEUED
	trialRunning   = outbidv1.TrialState_TRIAL_STATE_RUNNING
	trialPaused    = outbidv1.TrialState_TRIAL_STATE_PAUSED
	trialCompleted = outbidv1.TrialState_TRIAL_STATE_COMPLETED
	trialStopped   = outbidv1.TrialState_TRIAL_STATE_STOPPED
	trialFailed    = outbidv1.TrialState_TRIAL_STATE_FAILED
	trialCancelled = outbidv1.TrialState_TRIAL_STATE_CANCELLED

	nodeNone     = outbidv1.NodeState_NODE_STATE_UNSPECIFIED
	nodeUp       = outbidv1.NodeState_NODE_STATE_UP
	nodeDraining = outbidv1.NodeState_NODE_STATE_DRAINING
	nodeLost     = outbidv1.NodeState_NODE_STATE_LOST
	nodeLeft     = outbidv1.NodeState_NODE_STATE_LEFT
)

// leaseState is where a lease is in its life.
type leaseState int32

const (
	leaseNone leaseState = iota
	// leaseStarting: devices are held, and no process has begun.
	leaseStarting
	leaseRunning
	// leasePausing and leaseStopping: the process was asked to end, to save first or not.
	leasePausing
	leaseStopping
)

// state of a lease; leaseNone of none.
func (l *Lease) state() leaseState {
	switch {
	case l == nil:
		return leaseNone
	case l.Revoking == outbidv1.RevokeKind_REVOKE_KIND_PAUSE:
		return leasePausing
	case l.Revoking == outbidv1.RevokeKind_REVOKE_KIND_STOP:
		return leaseStopping
	case l.Started:
		return leaseRunning
	default:
		return leaseStarting
	}
}

// sweepTransitions is the life of a sweep.
func sweepTransitions() []transition[sweepState] {
	return []transition[sweepState]{
		{"submitted", []sweepState{sweepNone}, []sweepState{sweepRunning}},
		{"pause", []sweepState{sweepRunning}, []sweepState{sweepPaused}},
		{"resume", []sweepState{sweepPaused, sweepStopped}, []sweepState{sweepRunning}},
		{"stop or limit", []sweepState{sweepRunning, sweepPaused}, []sweepState{sweepStopping}},
		{"tuner done", []sweepState{sweepRunning}, []sweepState{sweepDone, sweepFailed}},
		{"trials ended", []sweepState{sweepStopping}, []sweepState{sweepDone, sweepStopped, sweepFailed}},
		{"tuner failed", []sweepState{sweepRunning, sweepPaused}, []sweepState{sweepStopping}},
		{Extended, []sweepState{sweepRunning, sweepPaused}, nil},
		{Extended, []sweepState{sweepDone, sweepStopped}, []sweepState{sweepRunning}},
		{"deleted", []sweepState{sweepDone, sweepStopped, sweepFailed}, []sweepState{sweepNone}},
	}
}

// trialTransitions is the life of a trial.
func trialTransitions() []transition[trialState] {
	open := []trialState{trialQueued, trialRunning, trialPaused}
	over := []trialState{trialCompleted, trialStopped, trialFailed, trialCancelled}
	return []transition[trialState]{
		{"created", []trialState{trialNone}, []trialState{trialQueued}},
		{"lease granted", []trialState{trialQueued}, []trialState{trialRunning}},
		// A trial that is trained by several forks holds a lease for each, and runs until the last has ended.
		{"lease granted", []trialState{trialRunning}, nil},
		{"lease ended", []trialState{trialRunning}, []trialState{trialQueued, trialPaused, trialRunning}},
		{"lease ended", over, nil},
		{Targeted, []trialState{trialQueued, trialRunning}, nil},
		{Targeted, []trialState{trialPaused}, []trialState{trialQueued}},
		// A completed trial goes on when its sweep is extended by longer steps: it runs while its process is still ending.
		// Where versions before did not say so, it stays as it was.
		{Targeted, []trialState{trialCompleted}, []trialState{trialQueued, trialRunning, trialCompleted}},
		// One that holds a lease is paused once that has ended.
		{Paused, []trialState{trialQueued}, []trialState{trialPaused}},
		{Paused, []trialState{trialRunning}, nil},
		{Cloned, []trialState{trialQueued, trialRunning}, nil},
		{Cloned, []trialState{trialPaused}, []trialState{trialQueued}},
		// Several forks are to train it in a round; what they saved is put together when all have ended.
		{"forks begin", []trialState{trialQueued}, nil},
		{"forks are consolidated", append([]trialState{trialQueued, trialPaused}, over...), nil},
		{"an average is judged", append(slices.Clone(open), over...), nil},
		// What a person's stop cancelled is again what it was once the sweep is resumed or extended.
		{"resumed", []trialState{trialCancelled}, []trialState{trialQueued, trialPaused}},
		{"ended", open, over},
	}
}

// leaseTransitions is the life of a lease.
func leaseTransitions() []transition[leaseState] {
	held := []leaseState{leaseStarting, leaseRunning, leasePausing, leaseStopping}
	return []transition[leaseState]{
		{"granted", []leaseState{leaseNone}, []leaseState{leaseStarting}},
		{"asked for by a client", []leaseState{leaseNone}, []leaseState{leaseRunning}},
		{ProcessStarted, []leaseState{leaseStarting, leaseRunning}, []leaseState{leaseRunning}},
		{ProcessStarted, []leaseState{leasePausing, leaseStopping}, nil},
		{"reported", held, nil},
		{TargetReached, held, nil},
		{"renewed", held, nil},
		{"revoked", []leaseState{leaseStarting, leaseRunning, leasePausing}, []leaseState{leasePausing, leaseStopping}},
		{"revoked", []leaseState{leaseStopping}, nil},
		{ProcessFailed, held, nil},
		{PlaceEnded, held, nil},
		{"ended", held, []leaseState{leaseNone}},
	}
}

// nodeTransitions is the life of a node.
func nodeTransitions() []transition[nodeState] {
	known := []nodeState{nodeUp, nodeDraining, nodeLost, nodeLeft}
	return []transition[nodeState]{
		{"joined", append([]nodeState{nodeNone}, known...), []nodeState{nodeUp}},
		{"drained", []nodeState{nodeUp}, []nodeState{nodeDraining}},
		{"opened again", []nodeState{nodeDraining}, []nodeState{nodeUp}},
		{"silent", []nodeState{nodeUp, nodeDraining}, []nodeState{nodeLost}},
		{"heard of again", []nodeState{nodeLost}, []nodeState{nodeUp}},
		{"said goodbye", []nodeState{nodeUp, nodeDraining, nodeLost}, []nodeState{nodeLeft}},
		{"heard of", known, nil},
		{FoundAtFault, known, nil},
		{ClearedOfFault, known, nil},
	}
}

// graph says where a state may lead, as bits.
type graph [9]uint16

// graphOf is the part of a table that some events make.
func graphOf[S ~int32](table []transition[S], events ...string) graph {
	var g graph
	for _, t := range table {
		if !slices.Contains(events, t.Event) {
			continue
		}
		for _, from := range t.From {
			for _, to := range t.To {
				g[from] |= 1 << to
			}
			if t.To == nil {
				g[from] |= 1 << from
			}
		}
	}
	return g
}

// A course is what a kind of event does to one of those that have a life of their own.
type course struct {
	of     subject
	what   string
	events []string
	legal  graph
	// node names the node that an event is about; nil if it is about none.
	node func(*outbidv1.Event) string
	// where it is in its life; 0 for one that is not there.
	where func(*folding, *outbidv1.Event) int32
	word  func(int32) string
}

// leaves says whether the event may be folded in, in a state.
func (c *course) leaves(from int32) error {
	if int(from) < len(c.legal) && c.legal[from] != 0 {
		return nil
	}
	return broken("%s: the %s is %s", c.name(), c.what, c.word(from))
}

// leads says whether the event may have led from one state to another.
func (c *course) leads(from, to int32) error {
	if c.legal[from]&(1<<to) != 0 {
		return nil
	}
	return broken("%s: the %s goes from %s to %s", c.name(), c.what, c.word(from), c.word(to))
}

func (c *course) name() string { return strings.Join(c.events, " or ") }

// set makes it a part of a row.
func (c *course) set(k *Kind) {
	k.courses = append(k.courses, c)
	if c.node != nil {
		k.node = c.node
	}
}

func aCourse[S ~int32](
	of subject, what string, table []transition[S], where func(*folding, *outbidv1.Event) S, word func(S) string, events []string,
) *course {
	return &course{
		of: of, what: what, events: events, legal: graphOf(table, events...),
		where: func(f *folding, e *outbidv1.Event) int32 { return int32(where(f, e)) },
		word:  func(s int32) string { return word(S(s)) },
	}
}

func sweepCourse(events ...string) *course {
	return aCourse(subjectSweep, "sweep", sweepTransitions(), func(f *folding, _ *outbidv1.Event) sweepState {
		if f.sweep == nil || f.st.Sweeps[f.sweep.ID] != f.sweep {
			return sweepNone
		}
		return f.sweep.State
	}, SweepWord, events)
}

func trialCourse(events ...string) *course {
	return aCourse(subjectTrial, "trial", trialTransitions(), func(f *folding, _ *outbidv1.Event) trialState {
		if f.trial == nil {
			return trialNone
		}
		return f.trial.State
	}, TrialWord, events)
}

// leaseCourse is of the lease that an event names by its id.
func leaseCourse(events ...string) *course {
	return aCourse(subjectLease, "lease", leaseTransitions(), func(f *folding, e *outbidv1.Event) leaseState {
		id, _ := f.kind.lease(e)
		return f.trial.Held(id).state()
	}, leaseWord, events)
}

// nodeCourse is of the node that an event names.
func nodeCourse(node func(*outbidv1.Event) string, events ...string) *course {
	c := aCourse(subjectNode, "node", nodeTransitions(), func(f *folding, e *outbidv1.Event) nodeState {
		if n := f.st.Nodes[node(e)]; n != nil {
			return n.State
		}
		return nodeNone
	}, NodeWord, events)
	c.node = node
	return c
}

// SweepWord is a sweep's state as people read it: "running".
func SweepWord(s outbidv1.SweepState) string { return word(s.String(), "SWEEP_STATE_") }

// TrialWord is a trial's state as people read it: "queued". A tuner, or a limit, prunes a trial, and a person stops it; the schema
// has older names for the two.
func TrialWord(s outbidv1.TrialState) string {
	switch s {
	case trialStopped:
		return "pruned"
	case trialCancelled:
		return "stopped"
	default:
		return word(s.String(), "TRIAL_STATE_")
	}
}

// NodeWord is a node's state as people read it: "up".
func NodeWord(s outbidv1.NodeState) string { return word(s.String(), "NODE_STATE_") }

func leaseWord(s leaseState) string {
	return [...]string{"unspecified", "starting", "running", "pausing", "stopping"}[s]
}

func word(enum, prefix string) string {
	return strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(enum, prefix), "_", " "))
}

func sweepID(name string, n int64) string { return fmt.Sprintf("%s-%d", name, n) }

func trialName(sweep string, n int32) string { return fmt.Sprintf("%s/%d", sweep, n) }

func notFound(kind, name string) error {
	return fmt.Errorf("%w: there is no %s %q", ErrNotFound, kind, name)
}

func broken(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrBroken, fmt.Sprintf(format, args...))
}
