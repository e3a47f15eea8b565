package worker

import (
	"sync"
	"sync/atomic"
	"time"
)

// forkActivity records what a fork's process was last heard to do, and why it may be silent.
type forkActivity struct {
	made time.Time
	// heard is when the process last sent anything, in nanoseconds since made.
	heard atomic.Int64
	// stalled is set while a report waits for room in the outbox, or for the report rate.
	stalled atomic.Bool
	// waiting is set while rank 0 waits for shards that other processes of its gang store.
	waiting atomic.Bool
	// heldUp is set while the fork runs only part of the time because others wait for the disk that it fills.
	heldUp atomic.Bool
	// start is the step that the fork continues from.
	start int64

	mu     sync.Mutex
	step   int64
	trains bool // whether the process has begun its first step
}

func newForkActivity(start int64) *forkActivity {
	return &forkActivity{made: time.Now(), start: start, step: start}
}

func (a *forkActivity) touch() { a.heard.Store(int64(time.Since(a.made))) }

// silent returns for how long the process has sent nothing.
func (a *forkActivity) silent() time.Duration {
	return time.Since(a.made) - time.Duration(a.heard.Load())
}

// isExcused reports whether something keeps the process from sending anything.
func (a *forkActivity) isExcused() bool {
	return a.waiting.Load() || a.stalled.Load() || a.heldUp.Load()
}

// reach records that the process has reached a step.
func (a *forkActivity) reach(step int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.step, a.trains = max(a.step, step), a.trains || step > a.start
}

// begin records that the process has begun its first step.
func (a *forkActivity) begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.trains = true
}

// beforeTraining returns false if the process has begun its first step. Otherwise it returns what do returns, and the
// process cannot begin meanwhile.
func (a *forkActivity) beforeTraining(do func() bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.trains && do()
}

// lastStep returns the highest step that the process has reached.
func (a *forkActivity) lastStep() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.step
}
