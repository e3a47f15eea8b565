package load

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Sample is what happened in a span of time.
type Sample struct {
	// At is the end of the span, and For its length.
	At  time.Time
	For time.Duration
	// Connected workers have a connection, Leased ones also orders whose lease has not ended, and the server refuses
	// Refused ones. Running is the number of trials.
	Connected, Leased, Refused, Running int
	// Waiting is the number of reports without a decision yet, and Oldest how long the oldest of them has waited.
	Waiting int
	Oldest  time.Duration
	// Uplinks and Orders are the messages to and from the server. Beats are those uplinks that nothing but the time has
	// caused.
	Uplinks, Beats, Orders int64
	// Expired leases, boots that the server did not know any more, and uplinks without a connection.
	Expired, Forgotten, Unsent int64
	// Decided has the time of each report until the orders came that have its decision, in order of size.
	Decided []time.Duration
}

// Quantile returns a quantile of the times in order of size, or 0 without times.
func Quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}

// meter counts what happens until the next sample.
type meter struct {
	uplinks, beats, orders, expired, forgotten, unsent atomic.Int64

	mu    sync.Mutex
	since time.Time
	times []time.Duration
}

func newMeter() *meter { return &meter{since: time.Now()} }

// decided records how long a report waited for its decision.
func (m *meter) decided(after time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.times = append(m.times, after)
}

// take returns the counts since the last call.
func (m *meter) take(now time.Time) Sample {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := Sample{
		At: now, For: now.Sub(m.since), Decided: m.times, Uplinks: m.uplinks.Swap(0), Beats: m.beats.Swap(0), Orders: m.orders.Swap(0),
		Expired: m.expired.Swap(0), Forgotten: m.forgotten.Swap(0), Unsent: m.unsent.Swap(0),
	}
	slices.Sort(s.Decided)
	m.since, m.times = now, nil
	return s
}

// Process is the use of processor time and memory by a process.
type Process struct {
	// Busy is its processor time since it started, and Resident its resident memory in bytes.
	Busy     time.Duration
	Resident int64
}

// clockTick is the unit of processor time in /proc.
const clockTick = 10 * time.Millisecond

// ReadProcess reads the use of a process on this machine, which needs /proc.
func ReadProcess(pid int) (Process, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Process{}, fmt.Errorf("process %d: %w", pid, err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ") // after the name, which may have spaces
	fields := strings.Fields(rest)
	const user, system, pages = 11, 12, 21
	if len(fields) <= pages {
		return Process{}, fmt.Errorf("process %d: cannot read /proc/%d/stat", pid, pid)
	}
	var n [3]int64
	for i, field := range []int{user, system, pages} {
		if n[i], err = strconv.ParseInt(fields[field], 10, 64); err != nil {
			return Process{}, fmt.Errorf("process %d: %w", pid, err)
		}
	}
	return Process{Busy: time.Duration(n[0]+n[1]) * clockTick, Resident: n[2] * int64(os.Getpagesize())}, nil
}
