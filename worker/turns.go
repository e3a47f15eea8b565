package worker

import (
	"context"
	"sync"
)

// averagerPool limits how many averages are computed at once. A turn comes with the process of the previous average
// if that still runs. An idle process is ended unless an average in its control group waits, so that a worker that
// averages nothing can remove the group.
type averagerPool struct {
	free chan *subprocess // nil for a turn without a process

	mu      sync.Mutex
	waiting map[string]int // the number of averages that wait for a turn, by control group
}

func newAveragerPool(n int) *averagerPool {
	t := &averagerPool{free: make(chan *subprocess, n), waiting: map[string]int{}}
	for range n {
		t.free <- nil
	}
	return t
}

// acquire waits for a turn to average in a control group. The caller returns it with give.
func (pool *averagerPool) acquire(ctx context.Context, behind string) (*subprocess, error) {
	pool.countWaiting(behind, 1)
	select {
	case p := <-pool.free:
		pool.countWaiting(behind, -1)
		if p != nil && p.idleGroup != behind {
			_ = p.end() // it has nothing to do
			p = nil
		}
		return p, nil
	case <-ctx.Done():
		pool.countWaiting(behind, -1)
		pool.endUnwanted()
		return nil, ctx.Err()
	}
}

// release returns a turn, with the idle process, or nil if it has ended.
func (pool *averagerPool) release(p *subprocess) {
	pool.free <- pool.endIfUnwanted(p)
	pool.endUnwanted() // the average that waited for p may have been canceled meanwhile
}

// endIfUnwanted ends the process unless an average waits for it.
func (pool *averagerPool) endIfUnwanted(p *subprocess) *subprocess {
	if p != nil && pool.countWaiting(p.idleGroup, 0) == 0 {
		_ = p.end() // it has nothing to do
		return nil
	}
	return p
}

// endUnwanted ends the processes that no average waits for any more.
func (pool *averagerPool) endUnwanted() {
	for range cap(pool.free) {
		select {
		case p := <-pool.free:
			pool.free <- pool.endIfUnwanted(p)
		default:
			return
		}
	}
}

// countWaiting changes the number of averages that wait for a control group and returns the new number.
func (pool *averagerPool) countWaiting(behind string, change int) int {
	pool.mu.Lock()
	defer pool.mu.Unlock()
	n := pool.waiting[behind] + change
	if pool.waiting[behind] = n; n == 0 {
		delete(pool.waiting, behind)
	}
	return n
}
