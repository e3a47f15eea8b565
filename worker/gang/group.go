// Package gang runs the processes of a function's gang that are on one node. A gang is a trial with several processes, one
// for each device or one for each node. Only rank 0 reports, saves and reaches targets, but every rank may save its shard
// of a checkpoint. When one process fails, the others are stopped, because they cannot continue without it. Size and Environment are also for the gangs of programs, which
// package program runs.
package gang

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
	"github.com/outbid-dev/outbid/worker/session"
)

const (
	// defaultStopGrace is how long the others may take to end after a process has failed.
	defaultStopGrace = 5 * time.Second
	// defaultEndGrace is how long the others may take to end after rank 0 has.
	defaultEndGrace = 30 * time.Second
	// defaultPeerGrace is how long a node whose processes ended only because they lost one on another node waits for the
	// order to end. It is longer than the server takes to notice that a node is lost.
	defaultPeerGrace = 30 * time.Second
)

// Process is a running process.
type Process interface {
	Direct(verdict outbidv1.Verdict, untilStep int64, reason string)
	Acked(seq uint64)
	SaveDone(step int64, failure string)
	ShardDone(done *outbidv1.SaveDone)
	Kill()
}

// Config describes the processes of a gang on a node.
type Config struct {
	// Gang is the node's part of the gang, and Size how many processes it has.
	Gang *outbidv1.Gang
	Size int
	// Node is the name of the node.
	Node string
	// Trial receives the events of rank 0, and one end for all processes.
	Trial session.Trial
	// Launch starts the process with a local rank. The trial's Ended is called once, unless Launch returns an error.
	Launch func(ctx context.Context, local int, trial session.Trial) (Process, error)
	// StopGrace, EndGrace and PeerGrace replace the defaults unless they are 0.
	StopGrace, EndGrace, PeerGrace time.Duration
}

// Group is the processes of a gang on this node.
type Group struct {
	cfg     Config
	members []*member

	mu      sync.Mutex
	verdict outbidv1.Verdict
	// stopping is set once a failure has stopped the other processes.
	stopping bool
	left     int
	// lead is how local rank 0 ended, if it did not fail. failed is the first failure other than the loss of another
	// process, and peer the first such loss.
	lead, failed, peer *outbidv1.ForkEnded
	// held is set while the end waits for an order, and over once the trial was notified of the end.
	held, over bool
	timers     []*time.Timer
	abort      context.CancelCauseFunc
}

var errMemberFailed = errors.New("another process of the gang failed")

// Start starts all processes of the gang on this node. If one cannot be started, the others are killed. The error names
// its rank.
func Start(ctx context.Context, cfg Config) (*Group, error) {
	cfg.StopGrace = cmp.Or(cfg.StopGrace, defaultStopGrace)
	cfg.EndGrace = cmp.Or(cfg.EndGrace, defaultEndGrace)
	cfg.PeerGrace = cmp.Or(cfg.PeerGrace, defaultPeerGrace)
	g := &Group{cfg: cfg, left: cfg.Size, verdict: outbidv1.Verdict_VERDICT_TRAIN}
	ctx, g.abort = context.WithCancelCause(ctx)
	defer g.abort(nil)
	for local := range cfg.Size {
		g.members = append(g.members, &member{group: g, local: local, gone: make(chan struct{})})
	}
	errs := make([]error, cfg.Size)
	var all sync.WaitGroup
	for i, m := range g.members {
		all.Go(func() {
			p, err := cfg.Launch(ctx, m.local, m)
			if err != nil {
				errs[i] = err
				g.abort(errMemberFailed)
				return
			}
			g.mu.Lock()
			m.process = p
			g.mu.Unlock()
		})
	}
	all.Wait()
	if err := g.startError(errs); err != nil {
		g.discard()
		return nil, err
	}
	return g, nil
}

// startError returns why the gang cannot run here, or nil: the first process that could not be started, or that has
// failed while others were started.
func (g *Group) startError(errs []error) error {
	var first error
	for i, err := range errs {
		if err == nil || errors.Is(err, errMemberFailed) {
			continue
		}
		if e := (*session.StartError)(nil); errors.As(err, &e) {
			return &session.StartError{Kind: e.Kind, Detail: fmt.Sprintf("rank %d: %s", g.rank(i), e.Detail)}
		}
		first = cmp.Or(first, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case first != nil:
		return first
	case errors.Join(errs...) == nil:
		return nil
	}
	if e := cmp.Or(g.failed, g.peer); e != nil {
		return &session.StartError{Kind: e.GetFailure(), Detail: e.GetDetail()}
	}
	return errMemberFailed
}

// discard kills the processes that were started, and waits until they are gone. The trial is not notified.
func (g *Group) discard() {
	g.mu.Lock()
	g.over = true
	g.mu.Unlock()
	for _, m := range g.members {
		if m.process != nil {
			m.process.Kill()
			<-m.gone
		}
	}
}

// rank returns the rank of a local rank.
func (g *Group) rank(local int) int { return int(g.cfg.Gang.GetFirstRank()) + local }

// Direct orders all processes what to do from now on.
func (g *Group) Direct(verdict outbidv1.Verdict, untilStep int64, reason string) {
	g.mu.Lock()
	g.verdict = verdict
	deliver := g.held && verdict != outbidv1.Verdict_VERDICT_TRAIN
	direct := g.running()
	if g.stopping {
		direct = nil
	}
	g.mu.Unlock()
	for _, p := range direct {
		p.Direct(verdict, untilStep, reason)
	}
	if deliver {
		g.deliver(ordered())
	}
}

// Acked tells rank 0 which reports were decided on.
func (g *Group) Acked(seq uint64) { g.members[0].process.Acked(seq) }

// SaveDone answers a checkpoint of rank 0.
func (g *Group) SaveDone(step int64, failure string) { g.members[0].process.SaveDone(step, failure) }

// ShardDone answers a shard to the rank that saved it.
func (g *Group) ShardDone(done *outbidv1.SaveDone) {
	if local := done.GetShard().GetRank() - g.cfg.Gang.GetFirstRank(); local >= 0 && int(local) < len(g.members) {
		g.members[local].process.ShardDone(done)
	}
}

// Kill kills all processes. The trial's Ended is called later.
func (g *Group) Kill() {
	g.mu.Lock()
	held, peer := g.held, g.peer
	g.mu.Unlock()
	if held {
		g.deliver(peer)
	}
	g.killAll()
}

func (g *Group) killAll() {
	g.mu.Lock()
	running := g.running()
	g.mu.Unlock()
	for _, p := range running {
		p.Kill()
	}
}

// running returns the processes that have not ended their trial. The caller holds the lock.
func (g *Group) running() (found []Process) {
	for _, m := range g.members {
		if !m.ended && m.process != nil {
			found = append(found, m.process)
		}
	}
	return found
}

// after kills the processes that still run after a time. The caller holds the lock.
func (g *Group) after(d time.Duration) { g.timers = append(g.timers, time.AfterFunc(d, g.killAll)) }

// memberEnded records how a process ended its trial, and ends the trial after the last.
func (g *Group) memberEnded(m *member, e *outbidv1.ForkEnded) {
	g.mu.Lock()
	var stop []Process
	m.ended = true
	g.left--
	switch failed := e.GetOutcome() == outbidv1.ForkOutcome_FORK_OUTCOME_FAILED; {
	case failed && !g.concluded():
		g.recordFailure(m, e)
		if !g.stopping {
			g.stopping, stop = true, g.running()
			g.after(g.cfg.StopGrace)
			g.abort(errMemberFailed)
		}
	case !failed && m.local == 0:
		g.lead = e
		g.after(g.cfg.EndGrace)
	}
	var end *outbidv1.ForkEnded
	if g.left == 0 {
		end = g.end()
	}
	g.mu.Unlock()
	for _, p := range stop {
		p.Direct(outbidv1.Verdict_VERDICT_STOP, 0, errMemberFailed.Error())
	}
	if end != nil {
		g.deliver(end)
	}
	close(m.gone)
}

// concluded reports whether rank 0 has ended the trial well, so that the ends of the others do not matter any more.
func (g *Group) concluded() bool { return g.cfg.Gang.GetFirstRank() == 0 && g.lead != nil }

func (g *Group) recordFailure(m *member, e *outbidv1.ForkEnded) {
	e = proto.CloneOf(e)
	e.Detail = fmt.Sprintf("rank %d on node %s: %s", g.rank(m.local), g.cfg.Node, e.GetDetail())
	if e.GetPeerLost() {
		e.PeerLost = false
		g.peer = cmp.Or(g.peer, e)
		return
	}
	g.failed = cmp.Or(g.failed, e)
}

// end returns how the processes of this node ended, or nil if an order decides it. The caller holds the lock.
func (g *Group) end() *outbidv1.ForkEnded {
	switch {
	case g.failed != nil:
		return g.failed
	case g.peer == nil || g.concluded():
		return cmp.Or(g.lead, ordered())
	case g.verdict != outbidv1.Verdict_VERDICT_TRAIN:
		return ordered()
	}
	g.held = true
	peer := g.peer
	g.timers = append(g.timers, time.AfterFunc(g.cfg.PeerGrace, func() { g.deliver(peer) }))
	return nil
}

func ordered() *outbidv1.ForkEnded {
	return &outbidv1.ForkEnded{Outcome: outbidv1.ForkOutcome_FORK_OUTCOME_ORDERED}
}

// deliver notifies the trial of its end, once.
func (g *Group) deliver(end *outbidv1.ForkEnded) {
	g.mu.Lock()
	again := g.over
	g.over, g.held = true, false
	for _, t := range g.timers {
		t.Stop()
	}
	g.mu.Unlock()
	if !again {
		g.cfg.Trial.Ended(end)
	}
}
