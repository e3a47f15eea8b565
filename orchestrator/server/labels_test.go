package server

import (
	"strings"
	"testing"
)

func TestLabelsAreText(t *testing.T) {
	t.Parallel()
	for label, want := range map[string]string{
		"a": "", "a\u202E": `has the control character U+202E at byte 1; remove it`, strings.Repeat("a", 257): "has 257 bytes; at most 256 are allowed",
	} {
		for _, labels := range []map[string]string{{"rack": label}, {label: "r1"}} {
			w := WorkerConfig{Labels: labels}
			switch err := w.checkLabels(); {
			case want == "" && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want)):
				t.Errorf("%.20q: %v, want %q", labels, err, want)
			}
		}
	}
}
