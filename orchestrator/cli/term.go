package cli

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/lmittmann/tint"
	"golang.org/x/term"
)

// terminal says what the standard streams are.
type terminal struct {
	// in, out and err are set for a terminal.
	in, out, err bool
	colour       bool
	// size returns columns and rows of the terminal behind stdout.
	size func() (columns, rows int)
}

// openTerminal looks at the streams; anything that is no file is no terminal.
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

// osInterrupts delivers the process's own signals.
func osInterrupts() (<-chan os.Signal, func()) {
	c := make(chan os.Signal, 4)
	signal.Notify(c, os.Interrupt, syscall.SIGTERM)
	return c, func() { signal.Stop(c) }
}

// newLogger builds a logger: level is debug, info, warn or error; format is auto, text or json. On a terminal auto is
// coloured, elsewhere it is text.
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

// columns is how wide the terminal behind stdout is; 0 if there is none, and lines may be as long as they like.
func (a *app) columns() int {
	if !a.term.out {
		return 0
	}
	columns, _ := a.term.size()
	return columns
}

// printText writes a line of text to stdout, which goes on below, indented, where the terminal ends.
func (a *app) printText(format string, args ...any) {
	a.printf("%s\n", hang(fmt.Sprintf(format, args...), a.columns()))
}

// hang folds a text for a terminal of that many columns, 0 for none: what follows its first line is indented.
func hang(text string, columns int) string {
	if columns == 0 {
		return text
	}
	first, rest, more := strings.Cut(strings.Join(fold(text, columns), "\n"), "\n")
	if !more {
		return first
	}
	const indent = "  "
	rest = strings.Join(strings.Fields(rest), " ")
	return first + "\n" + indent + strings.Join(fold(rest, columns-len(indent)), "\n"+indent)
}

// printf writes to stdout. A closed pipe is no news to anybody.
func (a *app) printf(format string, args ...any) { _, _ = fmt.Fprintf(a.stdout, format, args...) }

// notef writes a line for people to stderr, where it never mixes with results.
func (a *app) notef(format string, args ...any) {
	columns := 0
	if a.term.err {
		columns = a.columns()
	}
	_, _ = fmt.Fprintln(a.stderr, hang(fmt.Sprintf(format, args...), columns))
}
