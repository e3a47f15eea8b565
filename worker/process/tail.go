package process

import (
	"strings"

	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/sanitize"
)

const (
	// tailLines is how many of the last lines are kept to explain a failure: enough for a deep traceback.
	tailLines = 200
	// tailWidth is how many bytes of a line are kept.
	tailWidth = limits.Detail
)

// Tail keeps the last lines that a process printed. The zero Tail is empty.
type Tail struct {
	lines []string
	next  int
}

// Add adds a line as valid, printable text; a very long line is truncated.
func (t *Tail) Add(line []byte) {
	text := sanitize.Text(string(line[:min(len(line), 4*tailWidth)]), tailWidth)
	if len(t.lines) < tailLines {
		t.lines = append(t.lines, text)
		return
	}
	t.lines[t.next] = text
	t.next = (t.next + 1) % tailLines
}

// Reset removes all lines.
func (t *Tail) Reset() { t.lines, t.next = t.lines[:0], 0 }

// Cause returns the line that best explains why the process failed: the exception of the last Python traceback, or
// otherwise the last line that is not empty. It is one line of at most limits.Detail bytes.
func (t *Tail) Cause() string { return sanitize.Line(t.cause(), limits.Detail) }

func (t *Tail) cause() string {
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
		return last
	}
	for _, line := range lines[trace+1:] {
		if line != "" && line[0] != ' ' && line[0] != '\t' {
			return line
		}
	}
	return last
}
