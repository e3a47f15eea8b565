package api

import (
	"strings"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// foundLines sends the lines that contain a text: all of them, or the last ones.
type foundLines struct {
	text string // in lower case
	most int    // 0 for all
	last []*outbidv1.StreamLogsResponse
	send func(*outbidv1.StreamLogsResponse) error
}

// take looks at a line.
func (f *foundLines) take(line *outbidv1.StreamLogsResponse) error {
	if line.GetStream() == MarkStream || !strings.Contains(strings.ToLower(line.GetLine()), f.text) {
		return nil
	}
	if f.most == 0 {
		return f.send(line)
	}
	if len(f.last) >= 2*f.most {
		f.last = append(f.last[:0], f.last[len(f.last)-f.most:]...)
	}
	f.last = append(f.last, line)
	return nil
}

// flush sends the last lines.
func (f *foundLines) flush() error {
	for _, line := range f.last[max(0, len(f.last)-f.most):] {
		if err := f.send(line); err != nil {
			return err
		}
	}
	return nil
}
