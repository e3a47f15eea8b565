package cli

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// console has the streams of a run and the clock. Commands print to it and read the user's input from it.
type console struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	term           terminal
	now            func() time.Time
}

// columns returns the width of the terminal behind stdout, or 0 without a terminal, which means no limit.
func (c *console) columns() int {
	if !c.term.out {
		return 0
	}
	columns, _ := c.term.size()
	return columns
}

// printText prints a line to stdout, folded at the terminal's width with an indent.
func (c *console) printText(format string, args ...any) {
	c.printf("%s\n", hang(fmt.Sprintf(format, args...), c.columns()))
}

// printf writes to stdout. It ignores errors such as a closed pipe.
func (c *console) printf(format string, args ...any) { _, _ = fmt.Fprintf(c.stdout, format, args...) }

// notef prints a message to stderr, separate from results.
func (c *console) notef(format string, args ...any) {
	columns := 0
	if c.term.err {
		columns = c.columns()
	}
	_, _ = fmt.Fprintln(c.stderr, hang(fmt.Sprintf(format, args...), columns))
}

// printObject prints one object as JSON.
func (c *console) printObject(f format, v any) error {
	data, err := encodeJSON(v, f == formatJSON)
	if err != nil {
		return err
	}
	_, err = c.stdout.Write(append(data, '\n'))
	return err
}

// when formats a time in this machine's zone.
func (c *console) when(t *time.Time) string {
	if t == nil {
		return ""
	}
	return t.In(c.now().Location()).Format(time.DateTime)
}

// readLine reads one line from stdin. A read cannot be cancelled, so its goroutine may outlive the question; it ends
// with the next line or the process.
func (c *console) readLine() <-chan string {
	lines := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(c.stdin).ReadString('\n')
		lines <- line
	}()
	return lines
}

// readFile reads a file that the user named; "-" is standard input.
func (c *console) readFile(file string) ([]byte, error) {
	var data []byte
	var err error
	if file == "-" {
		data, err = io.ReadAll(c.stdin)
	} else {
		data, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, badInput("cannot read %w", trimOp(err))
	}
	return data, nil
}

// hang folds a text at the given width (0 for none), and indents all lines after the first.
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
