package cli

import (
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/lmittmann/tint"
	"golang.org/x/term"
)

// terminal describes the standard streams.
type terminal struct {
	// in, out and err are set if the stream is a terminal.
	in, out, err bool
	colour       bool
	// size returns the columns and rows of the terminal behind stdout.
	size func() (columns, rows int)
}

// openTerminal inspects the streams. A stream that is not a file is not a terminal.
func openTerminal(stdin io.Reader, stdout, stderr io.Writer, getenv func(string) string) terminal {
	t := terminal{in: isTerminal(stdin), out: isTerminal(stdout), err: isTerminal(stderr)}
	t.size = func() (int, int) { return 80, 24 }
	if getenv("TERM") == "dumb" {
		t.out = false
	}
	if f, ok := stdout.(*os.File); ok && t.out {
		t.colour = getenv("NO_COLOR") == ""
		t.size = func() (int, int) {
			columns, rows, err := term.GetSize(int(f.Fd()))
			if err != nil || columns < 20 || rows < 5 {
				return 80, 24
			}
			return columns, rows
		}
	}
	return t
}

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// newLogger returns a logger. level is debug, info, warn or error; format is auto, text or json. auto is coloured on a
// terminal, and text elsewhere.
func newLogger(w io.Writer, level, format string, t terminal) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, badInput("--log-level %q: want debug, info, warn or error", level)
	}
	switch {
	case format == "json":
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: l})), nil
	case format == "auto" && t.err:
		return slog.New(tint.NewTextHandler(w, &tint.Options{Level: l, TimeFormat: time.TimeOnly, NoColor: !t.colour})), nil
	case format == "auto" || format == "text":
		return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: l})), nil
	default:
		return nil, badInput("--log-format %q: want auto, text or json", format)
	}
}
