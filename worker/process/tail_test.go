package process

import (
	"fmt"
	"strings"
	"testing"
)

func TestCause(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ text, want string }{
		"nothing":   {"", ""},
		"last line": {"one\ntwo\n\n", "two"},
		"traceback": {
			"Traceback (most recent call last):\n  File \"a\"\n    x()\nValueError: bad\nsecond line\ncleaning up",
			"ValueError: bad",
		},
		"chained": {
			"Traceback (most recent call last):\n  x\nKeyError: 1\n\nDuring handling, another:\n\n" +
				"Traceback (most recent call last):\n  y\nRuntimeError: 2", "RuntimeError: 2",
		},
		"cut off": {"Traceback (most recent call last):\n  x", "x"},
	} {
		var tail Tail
		for line := range strings.Lines(tc.text) {
			tail.Add([]byte(strings.TrimSuffix(line, "\n")))
		}
		if got := tail.Cause(); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestTailIsBounded(t *testing.T) {
	t.Parallel()
	var tail Tail
	for i := range 3*tailLines + 7 {
		tail.Add([]byte(fmt.Sprint("line ", i, strings.Repeat("x", 2*tailWidth))))
	}
	if len(tail.lines) != tailLines || !strings.HasPrefix(tail.Cause(), fmt.Sprint("line ", 3*tailLines+6)) {
		t.Errorf("%d lines, cause %.20q", len(tail.lines), tail.Cause())
	}
	tail.Reset()
	if tail.Cause() != "" {
		t.Error("not empty after Reset")
	}
}
