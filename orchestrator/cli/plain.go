package cli

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

// controlSequences matches terminal commands: CSI sequences, strings (OSC, DCS, SOS, PM, APC) up to their end, and the
// shorter escapes of ECMA-48, each started by ESC or by its C1 character.
const controlSequences = `(?:\x1b\[|\x{9b})[0-?]*[ -/]*[@-~]` +
	`|(?:\x1b[\]PX^_]|[\x{9d}\x{90}\x{98}\x{9e}\x{9f}])[^\x07\x1b\x{9c}]*(?:\x07|\x1b\\|\x{9c})` +
	`|\x1b[ -/]*[0-Z\\^-~]`

// plainer makes text safe to print on a terminal.
type plainer struct{ sequences *regexp.Regexp }

func newPlainer() plainer { return plainer{regexp.MustCompile(controlSequences)} }

// plain removes everything that would control a terminal. It omits control sequences, such as colours, and escapes
// other control characters. It keeps only the text after the last carriage return, like a terminal that shows a
// progress bar.
func (p plainer) plain(line string) string {
	if !strings.ContainsFunc(line, isTerminalControl) {
		return line
	}
	line = p.sequences.ReplaceAllString(line, "")
	line = strings.TrimRight(line, "\r")
	line = line[strings.LastIndexByte(line, '\r')+1:]
	var b strings.Builder
	for _, r := range line {
		switch {
		case !isTerminalControl(r):
			b.WriteRune(r)
		case r <= unicode.MaxLatin1:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// isTerminalControl reports whether a terminal treats a character as a command, or as a change of text direction.
func isTerminalControl(r rune) bool {
	switch {
	case r == '\t':
		return false
	case r < ' ', r >= 0x7f && r < 0xa0:
		return true
	case r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
		return true
	}
	return false
}
