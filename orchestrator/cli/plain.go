package cli

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

// controlSequences are what terminals take as commands: CSI sequences, strings (OSC, DCS, SOS, PM, APC) up to their end,
// and the shorter escapes of ECMA-48, each begun by ESC or by its C1 character.
const controlSequences = `(?:\x1b\[|\x{9b})[0-?]*[ -/]*[@-~]` +
	`|(?:\x1b[\]PX^_]|[\x{9d}\x{90}\x{98}\x{9e}\x{9f}])[^\x07\x1b\x{9c}]*(?:\x07|\x1b\\|\x{9c})` +
	`|\x1b[ -/]*[0-Z\\^-~]`

// plainer makes text safe to print on a terminal.
type plainer struct{ sequences *regexp.Regexp }

func newPlainer() plainer { return plainer{regexp.MustCompile(controlSequences)} }

// plain is a line without what would steer a terminal: whole control sequences are left out, as colours are, and other
// control characters are shown as escapes. After a carriage return a line begins anew, as progress bars do.
func (p plainer) plain(line string) string {
	if !strings.ContainsFunc(line, steers) {
		return line
	}
	line = p.sequences.ReplaceAllString(line, "")
	line = strings.TrimRight(line, "\r")
	line = line[strings.LastIndexByte(line, '\r')+1:]
	var b strings.Builder
	for _, r := range line {
		switch {
		case !steers(r):
			b.WriteRune(r)
		case r <= unicode.MaxLatin1:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// steers says whether a terminal takes a character as a command, or shows those after it in another order.
func steers(r rune) bool {
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
