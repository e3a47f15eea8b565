package control

import (
	"errors"
	"time"
)

// decidePatience is how long the loop waits for the policy before it continues concurrently. It is longer than nearly
// every round, because a new view costs more than most rounds, and too short to be noticed.
const decidePatience = 100 * time.Millisecond

// beside runs decide and reports whether it finishes within decidePatience. If not, an input follows when it has.
func (l *Loop) beside(decide func()) bool {
	done := make(chan struct{})
	l.policy.Go(func() {
		defer close(done)
		decide()
	})
	patience := time.NewTimer(decidePatience)
	defer patience.Stop()
	select {
	case <-done:
		return true
	case <-patience.C:
	}
	go func() {
		<-done
		l.queue.put(PolicyDone{})
	}()
	return false
}

var errDeciding = errors.New("the policy is deciding a round")
