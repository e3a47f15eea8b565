package process

import (
	"strings"
)

const (
	// tailLines is how many of the last lines are kept to explain a failure: a deep traceback fits.
	tailLines = 200
	tailWidth = 1000
)

// Tail keeps the last lines that a process printed. The zero Tail is empty.
type Tail struct {
	lines []string
	next  int
}

// Add adds a line; of a very long one the beginning.
func (t *Tail) Add(line []byte) {
	text := string(line[:min(len(line), tailWidth)])
	if len(t.lines) < tailLines {
		t.lines = append(t.lines, text)
		return
	}
	t.lines[t.next] = text
	t.next = (t.next + 1) % tailLines
}

// Reset forgets everything.
func (t *Tail) Reset() { t.lines, t.next = t.lines[:0], 0 }

// Cause picks the line that best says why the process failed: the exception of the last Python traceback, or else the
// last line that is not empty.
func (t *Tail) Cause() string {
	lines := append(append([]string(nil), t.lines[t.next:]...), t.lines[:t.next]...)
	last, trace := "", -1
	for i, line := range lines {
		if strings.Contains(line, "Traceback (most recent call last)") {
			trace = i
		}
		if strings.TrimSpace(line) != "" {
			last = line
		}
	}
	if trace < 0 {
		return strings.TrimSpace(last)
	}
	for _, line := range lines[trace+1:] {
		if line != "" && line[0] != ' ' && line[0] != '\t' {
			return strings.TrimSpace(line)
		}
	}
	return strings.TrimSpace(last)
}
