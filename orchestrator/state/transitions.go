package state

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// A transition gives the states in which an event may occur, and those that it leads to. The tables below are the
// complete graph of legal transitions: every event is checked against them, docs/reference/events.md prints them, and a
// test tries every pair of state and event.
type transition[S ~int32] struct {
	Event string
	From  []S
	// To are the states that each of From may lead to. If nil, the state is unchanged.
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

// leaseState is the state of a lease.
type leaseState int32

const (
	leaseNone leaseState = iota
	// leaseStarting means that devices are held and no process has started.
	leaseStarting
	leaseRunning
	// leasePausing and leaseStopping mean that the process was asked to end, with or without saving first.
	leasePausing
	leaseStopping
)

// state returns the state of a lease, or leaseNone for nil.
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

// sweepTransitions returns the transitions of a sweep.
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
		{Retried, []sweepState{sweepRunning, sweepPaused}, nil},
		{Retried, []sweepState{sweepDone, sweepFailed}, []sweepState{sweepRunning}},
		{"deleted", []sweepState{sweepDone, sweepStopped, sweepFailed}, []sweepState{sweepNone}},
	}
}

// trialTransitions returns the transitions of a trial.
func trialTransitions() []transition[trialState] {
	open := []trialState{trialQueued, trialRunning, trialPaused}
	over := []trialState{trialCompleted, trialStopped, trialFailed, trialCancelled}
	return []transition[trialState]{
		{"created", []trialState{trialNone}, []trialState{trialQueued}},
		{"lease granted", []trialState{trialQueued}, []trialState{trialRunning}},
		// A trial that is trained by several forks holds a lease for each, and runs until the last one has ended.
		{"lease granted", []trialState{trialRunning}, nil},
		{"lease ended", []trialState{trialRunning}, []trialState{trialQueued, trialPaused, trialRunning}},
		{"lease ended", over, nil},
		{Targeted, []trialState{trialQueued, trialRunning}, nil},
		{Targeted, []trialState{trialPaused}, []trialState{trialQueued}},
		// A completed trial continues when its sweep is extended with longer training. It runs while its process is
		// still ending.
		{Targeted, []trialState{trialCompleted}, []trialState{trialQueued, trialRunning}},
		// A trial that holds a lease is paused once the lease has ended.
		{Paused, []trialState{trialQueued}, []trialState{trialPaused}},
		{Paused, []trialState{trialRunning}, nil},
		{Cloned, []trialState{trialQueued, trialRunning}, nil},
		{Cloned, []trialState{trialPaused}, []trialState{trialQueued}},
		// A fork slot begins; when all forks have ended, they are averaged.
		{"forks begin", []trialState{trialQueued}, nil},
		{"forks are averaged", append([]trialState{trialQueued, trialPaused}, over...), nil},
		{"an average is judged", append(slices.Clone(open), over...), nil},
		// A trial that was cancelled by a person's stop returns to its earlier state when the sweep is resumed or
		// extended.
		{"resumed", []trialState{trialCancelled}, []trialState{trialQueued, trialPaused}},
		{Retried, []trialState{trialFailed}, []trialState{trialQueued}},
		{"ended", open, over},
	}
}

// leaseTransitions returns the transitions of a lease.
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

// nodeTransitions returns the transitions of a node.
func nodeTransitions() []transition[nodeState] {
	known := []nodeState{nodeUp, nodeDraining, nodeLost, nodeLeft}
	return []transition[nodeState]{
		{"joined", append([]nodeState{nodeNone}, known...), []nodeState{nodeUp}},
		{"drained", []nodeState{nodeUp}, []nodeState{nodeDraining}},
		{"opened again", []nodeState{nodeDraining}, []nodeState{nodeUp}},
		{"silent", []nodeState{nodeUp, nodeDraining}, []nodeState{nodeLost}},
		{"seen again", []nodeState{nodeLost}, []nodeState{nodeUp}},
		{"left", []nodeState{nodeUp, nodeDraining, nodeLost}, []nodeState{nodeLeft}},
		{"seen", known, nil},
		{FoundAtFault, known, nil},
		{ClearedOfFault, known, nil},
	}
}

// graph holds the states that a state may lead to, as bits.
type graph [9]uint16

// graphOf returns the part of a table that belongs to some events.
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

// A lifecycle describes what a kind of event does to a sweep, trial, lease or node.
type lifecycle struct {
	of     subject
	what   string
	events []string
	legal  graph
	// node returns the node that an event is about. It is nil if the event is not about a node.
	node func(*outbidv1.Event) string
	// where returns the current state, or 0 if the subject does not exist.
	where func(*foldContext, *outbidv1.Event) int32
	word  func(int32) string
}

// explain adds the lease or node of an event to an error.
func (l *lifecycle) explain(f *foldContext, e *outbidv1.Event, err error) error {
	switch l.of {
	case subjectLease:
		id, _ := f.kind.lease(e)
		return fmt.Errorf("%w (lease %d)", err, id)
	case subjectNode:
		return fmt.Errorf("%w (node %q)", err, l.node(e))
	}
	return err
}

// allowsFrom returns an error if the event may not occur in a state.
func (l *lifecycle) allowsFrom(from int32) error {
	if int(from) < len(l.legal) && l.legal[from] != 0 {
		return nil
	}
	var right []string
	for state, to := range l.legal {
		if to != 0 && state != 0 {
			right = append(right, l.word(int32(state)))
		}
	}
	switch {
	case from == 0:
		return broken("%s: the %s does not exist", l.name(), l.what)
	case len(right) == 0:
		return broken("%s: the %s exists already, and is %s", l.name(), l.what, l.word(from))
	}
	return broken("%s: the %s is %s, and must be %s", l.name(), l.what, l.word(from), english.WordSeries(right, "or"))
}

// allows returns an error if the event may not lead from one state to another.
func (l *lifecycle) allows(from, to int32) error {
	if l.legal[from]&(1<<to) != 0 {
		return nil
	}
	var right, next []string
	for state := range int32(len(l.legal)) {
		switch {
		case l.legal[from]&(1<<state) == 0:
		case state == from:
			right = append(right, "remain "+l.word(from))
		case state == 0:
			right = append(right, "end")
		default:
			next = append(next, l.word(state))
		}
	}
	if len(next) > 0 {
		right = append(right, "become "+english.WordSeries(next, "or"))
	}
	what := "becomes " + l.word(to)
	switch to {
	case from:
		what = "remains " + l.word(to)
	case 0:
		what = "ends"
	}
	return broken("%s: the %s %s, and must %s", l.name(), l.what, what, strings.Join(right, ", or "))
}

func (l *lifecycle) name() string { return strings.Join(l.events, " or ") }

// set adds the lifecycle to a row.
func (l *lifecycle) set(k *Kind) {
	k.lifecycles = append(k.lifecycles, l)
	if l.node != nil {
		k.node = l.node
	}
}

func newLifecycle[S ~int32](
	of subject, what string, table []transition[S], where func(*foldContext, *outbidv1.Event) S, word func(S) string, events []string,
) *lifecycle {
	return &lifecycle{
		of: of, what: what, events: events, legal: graphOf(table, events...),
		where: func(f *foldContext, e *outbidv1.Event) int32 { return int32(where(f, e)) },
		word:  func(s int32) string { return word(S(s)) },
	}
}

func sweepLifecycle(events ...string) *lifecycle {
	return newLifecycle(subjectSweep, "sweep", sweepTransitions(), func(f *foldContext, _ *outbidv1.Event) sweepState {
		if f.sweep == nil || f.st.Sweeps[f.sweep.ID] != f.sweep {
			return sweepNone
		}
		return f.sweep.State
	}, SweepWord, events)
}

func trialLifecycle(events ...string) *lifecycle {
	return newLifecycle(subjectTrial, "trial", trialTransitions(), func(f *foldContext, _ *outbidv1.Event) trialState {
		if f.trial == nil {
			return trialNone
		}
		return f.trial.State
	}, TrialWord, events)
}

// leaseLifecycle is for the lease that an event names by its ID.
func leaseLifecycle(events ...string) *lifecycle {
	return newLifecycle(subjectLease, "lease", leaseTransitions(), func(f *foldContext, e *outbidv1.Event) leaseState {
		id, _ := f.kind.lease(e)
		return f.trial.Held(id).state()
	}, leaseWord, events)
}

// nodeLifecycle is for the node that an event names.
func nodeLifecycle(node func(*outbidv1.Event) string, events ...string) *lifecycle {
	c := newLifecycle(subjectNode, "node", nodeTransitions(), func(f *foldContext, e *outbidv1.Event) nodeState {
		if n := f.st.Nodes[node(e)]; n != nil {
			return n.State
		}
		return nodeNone
	}, NodeWord, events)
	c.node = node
	return c
}

// SweepWord returns a sweep's state as users read it, such as "running".
func SweepWord(s outbidv1.SweepState) string { return word(s.String(), "SWEEP_STATE_") }

// TrialWord returns a trial's state as users read it, such as "queued". A trial that a tuner or a limit ended is
// "pruned", and a trial that a person ended is "stopped"; the schema has older names for these.
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

// NodeWord returns a node's state as users read it, such as "up".
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
