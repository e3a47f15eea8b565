package cli

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/sim/experiment"
)

// simShow prints the progress of runs: on a terminal in one changing line, elsewhere every few seconds.
type simShow struct {
	console *console
	mu      sync.Mutex
	started map[string]time.Time
	last    time.Time
	shown   bool
}

// The intervals between two lines of progress.
const (
	terminalPause = 200 * time.Millisecond
	filePause     = 10 * time.Second
)

func newSimShow(c *console) *simShow {
	return &simShow{console: c, started: map[string]time.Time{}, last: c.now()}
}

func (s *simShow) tell(policy string, at experiment.Progress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.console.now()
	if s.started[policy].IsZero() {
		s.started[policy] = now
	}
	pause := filePause
	if s.console.term.err {
		pause = terminalPause
	}
	if now.Sub(s.last) < pause {
		return
	}
	s.last = now
	line := fmt.Sprintf("%s: %s of %s jobs, simulated %s in %s", policy, formatCount(int64(at.Done)),
		formatCount(int64(at.Jobs)), formatDuration(at.At), formatDuration(now.Sub(s.started[policy]).Seconds()))
	if !s.console.term.err {
		s.console.notef("%s", line)
		return
	}
	s.shown = true
	_, _ = fmt.Fprintf(s.console.stderr, "\r\x1b[K%s", line)
}

// clear removes the changing line.
func (s *simShow) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shown {
		s.shown = false
		_, _ = io.WriteString(s.console.stderr, "\r\x1b[K")
	}
}
