package program

import (
	"path/filepath"
	"strconv"
	"sync"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
	"github.com/outbid-dev/outbid/worker/gang"
	"github.com/outbid-dev/outbid/worker/process"
)

// rankGroup is the processes of one start of a program: one, or one for each device of a gang. The group ends when
// all processes have ended. When one fails, the others are stopped, because they cannot continue without it.
type rankGroup struct {
	members []*process.Process
	done    chan struct{}
	grace   time.Duration

	mu      sync.Mutex
	outcome process.Outcome
	failed  bool
}

// size returns how many processes of the gang run here.
func (s *Spec) size() int { return gang.Size(s.Gang, len(s.Devices)) }

// follows reports whether rank 0 runs on another node. Then reports and checkpoints of this node do not count.
func (s *Spec) follows() bool { return s.Gang.GetFirstRank() > 0 }

// startRanks starts the processes. If one cannot be started, the others are killed.
func startRanks(s *Spec, commands []process.Command) (*rankGroup, error) {
	g := &rankGroup{done: make(chan struct{}), grace: s.Grace}
	for _, command := range commands {
		p, err := s.Host.Start(command)
		if err != nil {
			g.Kill()
			for _, m := range g.members {
				<-m.Done()
			}
			return nil, err
		}
		g.members = append(g.members, p)
	}
	go g.wait()
	return g, nil
}

// wait ends the group after its last member.
func (g *rankGroup) wait() {
	var all sync.WaitGroup
	for _, p := range g.members {
		all.Go(func() {
			<-p.Done()
			g.memberEnded(p.Outcome())
		})
	}
	all.Wait()
	close(g.done)
}

// memberEnded records how a member ended. The group's outcome is that of the first failure.
func (g *rankGroup) memberEnded(o process.Outcome) {
	g.mu.Lock()
	first := !g.failed && !o.OK()
	if !g.failed {
		g.outcome = o
	}
	g.failed = g.failed || !o.OK()
	g.mu.Unlock()
	if first && len(g.members) > 1 {
		g.Stop(g.grace)
	}
}

// Done is closed once every process is gone.
func (g *rankGroup) Done() <-chan struct{} { return g.done }

// Outcome returns the first failure, or the outcome of a member if none failed. It is only valid after Done.
func (g *rankGroup) Outcome() process.Outcome {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.outcome
}

// Stop asks all processes to end, and kills those that have not ended after grace.
func (g *rankGroup) Stop(grace time.Duration) {
	for _, p := range g.members {
		p.Stop(grace)
	}
}

// Kill kills all processes.
func (g *rankGroup) Kill() {
	for _, p := range g.members {
		p.Kill()
	}
}

// Hold stops or continues all processes.
func (g *rankGroup) Hold(held bool) {
	for _, p := range g.members {
		p.Hold(held)
	}
}

// SetSpeed slows all processes down to a part of full speed.
func (g *rankGroup) SetSpeed(speed float64) {
	for _, p := range g.members {
		p.SetSpeed(speed)
	}
}

// muted returns the variables of a process whose reports and checkpoints do not count, so that it can write them
// nevertheless.
func muted(dir string, local int) []string {
	base := filepath.Join(dir, "rank-"+strconv.Itoa(local))
	return []string{"OUTBID_REPORT=" + base + "-report.jsonl", "OUTBID_CHECKPOINT_OUT=" + base + "-checkpoint-out"}
}

// follow waits for the order to end after the processes of a part of a gang without rank 0 have finished, because
// rank 0 decides. It never returns nil: a gang over several nodes is not restarted in place.
func (r *Run) follow() *outbidv1.ForkEnded {
	for {
		r.mu.Lock()
		verdict, killed := r.verdict, r.killed
		r.mu.Unlock()
		switch {
		case killed:
			return failed(outbidv1.FailureKind_FAILURE_KIND_SIGNAL, "killed")
		case verdict != outbidv1.Verdict_VERDICT_TRAIN:
			return ended(outbidv1.ForkOutcome_FORK_OUTCOME_ORDERED)
		}
		<-r.wake
	}
}
