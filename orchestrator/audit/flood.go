package audit

import (
	"sync"
	"time"
)

const (
	// floodDenials is how many denials of one caller are recorded in a floodWindow; the rest is counted. So a client that
	// repeats a rejected call cannot displace other records.
	floodDenials = 30
	floodWindow  = time.Minute
	// floodCallers bounds the callers that are counted separately.
	floodCallers = 1000
)

// flood limits the records of repeated denials.
type flood struct {
	mu      sync.Mutex
	windows map[string]*window
}

// window counts the denials of one caller.
type window struct {
	began      time.Time
	count      int
	suppressed int64
}

func newFlood() flood { return flood{windows: map[string]*window{}} }

// admit reports whether an event is recorded, and how many of the caller's earlier denials were not.
func (f *flood) admit(e *Event, now time.Time) (suppressed int64, ok bool) {
	if e.Denied() == "" {
		return 0, true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	w := f.window(e, now)
	w.count++
	if w.count > floodDenials {
		w.suppressed++
		return 0, false
	}
	suppressed, w.suppressed = w.suppressed, 0
	return suppressed, true
}

// window returns the window of an event's caller. Callers beyond floodCallers share one.
func (f *flood) window(e *Event, now time.Time) *window {
	caller := e.User.Username
	if len(e.SourceIPs) > 0 {
		caller += " " + e.SourceIPs[0]
	}
	if f.windows[caller] == nil && len(f.windows) >= floodCallers {
		for key, w := range f.windows {
			if now.Sub(w.began) >= floodWindow && w.suppressed == 0 {
				delete(f.windows, key)
			}
		}
		if len(f.windows) >= floodCallers {
			caller = ""
		}
	}
	w := f.windows[caller]
	if w == nil {
		w = &window{began: now}
		f.windows[caller] = w
	}
	if now.Sub(w.began) >= floodWindow {
		w.began, w.count = now, 0
	}
	return w
}
