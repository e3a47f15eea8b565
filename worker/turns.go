package worker

import (
	"context"
	"sync"
)

// averagingTurns let so many averages be made at once. Who takes a turn gets the process that made the average before, if it is
// there still: one is ended unless an average waits that is made in its control group, so that a worker that averages nothing
// can remove that.
type averagingTurns struct {
	free chan *subprocess // nil for none

	mu      sync.Mutex
	waiting map[string]int // for a turn, by the control group
}

func newTurns(n int) *averagingTurns {
	t := &averagingTurns{free: make(chan *subprocess, n), waiting: map[string]int{}}
	for range n {
		t.free <- nil
	}
	return t
}

// take waits for a turn to average in a control group. Give it back.
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

// give gives a turn back, with the process that is left, or nil.
func (t *averagingTurns) give(p *subprocess) {
	t.free <- t.unlessSpare(p)
	t.endSpares() // who waited for it may have gone meanwhile
}

// unlessSpare ends a process that nobody waits for.
func (t *averagingTurns) unlessSpare(p *subprocess) *subprocess {
	if p != nil && t.wait(p.behind, 0) == 0 {
		_ = p.end() // it has nothing to do
		return nil
	}
	return p
}

// endSpares ends those that nobody waits for any more.
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

// wait counts who waits to average in a control group.
func (t *averagingTurns) wait(behind string, change int) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.waiting[behind] + change
	if t.waiting[behind] = n; n == 0 {
		delete(t.waiting, behind)
	}
	return n
}
