package worker

import (
	"context"
	"sync"
)

// averagingTurns limits how many averages are computed at once. A turn comes with the process of the previous average
// if that still runs. An idle process is ended unless an average in its control group waits, so that a worker that
// averages nothing can remove the group.
type averagingTurns struct {
	free chan *subprocess // nil for a turn without a process

	mu      sync.Mutex
	waiting map[string]int // the number of averages that wait for a turn, by control group
}

func newTurns(n int) *averagingTurns {
	t := &averagingTurns{free: make(chan *subprocess, n), waiting: map[string]int{}}
	for range n {
		t.free <- nil
	}
	return t
}

// take waits for a turn to average in a control group. The caller returns it with give.
func (t *averagingTurns) take(ctx context.Context, behind string) (*subprocess, error) {
	t.wait(behind, 1)
	select {
	case p := <-t.free:
		t.wait(behind, -1)
		if p != nil && p.behind != behind {
			_ = p.end() // it has nothing to do
			p = nil
		}
		return p, nil
	case <-ctx.Done():
		t.wait(behind, -1)
		t.endSpares()
		return nil, ctx.Err()
	}
}

// give returns a turn, with the idle process, or nil if it has ended.
func (t *averagingTurns) give(p *subprocess) {
	t.free <- t.unlessSpare(p)
	t.endSpares() // the average that waited for p may have been canceled meanwhile
}

// unlessSpare ends the process unless an average waits for it.
func (t *averagingTurns) unlessSpare(p *subprocess) *subprocess {
	if p != nil && t.wait(p.behind, 0) == 0 {
		_ = p.end() // it has nothing to do
		return nil
	}
	return p
}

// endSpares ends the processes that no average waits for any more.
func (t *averagingTurns) endSpares() {
	for range cap(t.free) {
		select {
		case p := <-t.free:
			t.free <- t.unlessSpare(p)
		default:
			return
		}
	}
}

// wait changes the number of averages that wait for a control group and returns the new number.
func (t *averagingTurns) wait(behind string, change int) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.waiting[behind] + change
	if t.waiting[behind] = n; n == 0 {
		delete(t.waiting, behind)
	}
	return n
}
