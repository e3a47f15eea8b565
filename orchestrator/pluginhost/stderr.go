package pluginhost

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"

	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/sanitize"
)

// lastLines logs a plugin's standard error, and keeps the last line for error messages.
type lastLines struct {
	log *slog.Logger

	mu   sync.Mutex
	part bytes.Buffer
	line string
}

// maxLine limits how much of a line is kept.
const maxLine = 4096

// Write implements io.Writer.
func (l *lastLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, piece := range bytes.SplitAfter(p, []byte("\n")) {
		l.part.Write(piece)
		if !bytes.HasSuffix(piece, []byte("\n")) && l.part.Len() < maxLine {
			continue
		}
		if line := sanitize.Line(l.part.String(), maxLine); line != "" {
			if !dying(l.line) {
				l.line = line
			}
			l.log.Info("plugin: " + line)
		}
		l.part.Reset()
	}
	return len(p), nil
}

// dying reports whether a line begins Go's report of a crash. Stack traces follow such a line.
func dying(line string) bool {
	return strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")
}

func (l *lastLines) last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return sanitize.Line(l.line, limits.Detail)
}

// firstLine removes go-plugin's long advice from an error.
func firstLine(err error) error {
	line, _, _ := strings.Cut(strings.TrimSpace(err.Error()), "\n")
	return errors.New(strings.TrimSuffix(sanitize.Line(line, limits.Detail), ":"))
}
