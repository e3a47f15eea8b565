package sim

import (
	"container/heap"
	"time"
)

// clock is virtual time. It jumps from one timer to the next. Timers for the same moment fire in the order in which
// they were set.
type clock struct {
	now    time.Time
	timers timers
	count  uint64
}

type timer struct {
	at   time.Time
	seq  uint64
	fire func()
}

// after sets a timer.
func (c *clock) after(d time.Duration, fire func()) {
	c.count++
	heap.Push(&c.timers, timer{c.now.Add(d), c.count, fire})
}

// next fires the next timer. It returns false if none is due before the end.
func (c *clock) next(end time.Time) bool {
	if len(c.timers) == 0 || c.timers[0].at.After(end) {
		return false
	}
	t, ok := heap.Pop(&c.timers).(timer)
	if !ok {
		return false
	}
	c.now = t.at
	t.fire()
	return true
}

// timers is a heap by time and then by order of setting.
type timers []timer

func (t timers) Len() int { return len(t) }

func (t timers) Less(i, j int) bool {
	if !t[i].at.Equal(t[j].at) {
		return t[i].at.Before(t[j].at)
	}
	return t[i].seq < t[j].seq
}

func (t timers) Swap(i, j int) { t[i], t[j] = t[j], t[i] }

// Push implements heap.Interface.
func (t *timers) Push(x any) {
	if v, ok := x.(timer); ok {
		*t = append(*t, v)
	}
}

// Pop implements heap.Interface.
func (t *timers) Pop() any {
	old := *t
	last := old[len(old)-1]
	*t = old[:len(old)-1]
	return last
}
