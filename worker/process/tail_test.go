package process

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/sanitize"
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
		"latin-1": {"K\xf6nnte nicht lesen", "K\uFFFDnnte nicht lesen"},
		"colours": {"\x1b[31mRuntimeError\x1b[0m: out  of\tluck", "RuntimeError: out of luck"},
		"long":    {strings.Repeat("ä", 10_000), strings.Repeat("ä", (limits.Detail-len(sanitize.Cut))/2) + sanitize.Cut},
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

// Whatever a program prints, its cause is one valid line of bounded length.
func FuzzTail(f *testing.F) {
	f.Add([]byte("Traceback (most recent call last):\n  x\nValueError: K\xf6nnte\n"))
	f.Add(bytes.Repeat([]byte("\xc3"), 2000))
	f.Fuzz(func(t *testing.T, printed []byte) {
		var tail Tail
		for line := range bytes.SplitSeq(printed, []byte("\n")) {
			tail.Add(line)
		}
		if cause := tail.Cause(); sanitize.Check(cause, limits.Detail) != nil || strings.ContainsAny(cause, "\n\t") {
			t.Errorf("%q", cause)
		}
	})
}
