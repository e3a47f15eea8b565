package control

import "time"

const (
	// stallAfter is how long an iteration of the loop may take before it counts as a stall.
	stallAfter = time.Second
	// stallTold is the shortest stall that is logged.
	stallTold = 3 * time.Second
)

// attend returns inputs that tell the core about a stall since the last iteration of the loop, or nil.
func (l *Loop) attend() []Input {
	now := time.Now()
	gap := now.Sub(l.attended)
	first := l.attended.IsZero()
	l.attended = now
	if first || gap < stallAfter {
		return nil
	}
	l.stalled.Add(int64(gap))
	if gap >= stallTold {
		l.cfg.Logger.Warn("the control loop stalled; every worker is given that much more time before it counts as lost",
			"for", gap.Round(time.Millisecond), "in_decisions", l.took.Decide.Round(time.Millisecond),
			"in_the_ledger", l.took.Append.Round(time.Millisecond))
	}
	return []Input{l.arrivals.all(), LoopStalled{For: gap}}
}

// Stalled returns the sum of all stalls since the start.
func (l *Loop) Stalled() time.Duration { return time.Duration(l.stalled.Load()) }

// judge returns the inputs that make the core look for silent nodes. They come last, after everything that had
// arrived.
func (l *Loop) judge() []Input { return []Input{l.arrivals.all(), Tick{}} }
