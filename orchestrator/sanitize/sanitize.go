// Package sanitize makes text from outside valid, bounded and safe to show: output of programs, file names, errors,
// environment values, notes, labels and headers. Everything that such text can reach (protocol buffers, the ledger,
// terminals, web pages) may rely on what this package returns.
//
// Text and Line repair what a machine produced and cannot be asked to write again. Check refuses what a person typed.
package sanitize

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Cut is appended to text that was shortened.
const Cut = " …"

// replacement stands for what cannot be shown.
const replacement = "\uFFFD"

// escapes are the sequences by which programs colour terminals, move the cursor or set the window's title.
var escapes = regexp.MustCompile("\x1b(?:\\[[0-9;:?<=>]*[ -/]*[@-~]|\\][^\x07\x1b]{0,1000}(?:\x07|\x1b\\\\)|[@-Z\\\\^_])")

// Text returns s as valid UTF-8 of at most limit bytes. Runs of bytes that are not UTF-8, control characters (except
// newline and tab) and bidirectional controls become U+FFFD, and terminal escape sequences are removed. Text that is longer
// than limit is cut between two characters and ends with Cut. A limit below len(Cut) returns at most that many bytes
// and no mark.
func Text(s string, limit int) string {
	if isPlain(s) {
		return shorten(s, limit)
	}
	return shorten(repair(within(s, limit)), limit)
}

// Line is Text on one line: every run of white space becomes one space, and there is none at either end.
func Line(s string, limit int) string {
	if s = within(s, limit); !isPlain(s) {
		s = repair(s)
	}
	return shorten(strings.Join(strings.Fields(s), " "), limit)
}

// Valid returns s as valid UTF-8: each run of bytes that are not becomes U+FFFD. Control characters stay. It is for what
// programs print, which readers ask for as it was printed and make safe themselves, as outbid logs does on a terminal.
func Valid(s string) string { return strings.ToValidUTF8(s, replacement) }

// within returns as much of s as can matter for a result of limit bytes, so that what a program prints without end costs
// no time here.
func within(s string, limit int) string {
	if most := 4*max(limit, 0) + 4096; len(s) > most {
		return s[:most] + Cut
	}
	return s
}

// isPlain reports whether s is printable ASCII with newlines and tabs, which is nearly all there is.
func isPlain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\n' && c != '\t' || c >= 0x7f {
			return false
		}
	}
	return true
}

// IsPlain reports whether every string is printable ASCII with newlines and tabs, so that nothing has to be done with it.
func IsPlain(all ...string) bool {
	for _, s := range all {
		if !isPlain(s) {
			return false
		}
	}
	return true
}

func repair(s string) string {
	if strings.IndexByte(s, '\x1b') >= 0 {
		s = escapes.ReplaceAllString(s, "")
	}
	s = strings.ToValidUTF8(strings.ReplaceAll(s, "\r\n", "\n"), replacement)
	return strings.Map(func(r rune) rune {
		if IsForbidden(r) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

// IsForbidden reports whether a character must not reach a reader: control characters other than newline and tab, and
// bidirectional controls, by which text is shown in another order than it is read in.
func IsForbidden(r rune) bool {
	return unicode.IsControl(r) && r != '\n' && r != '\t' || IsBidi(r)
}

// IsBidi reports whether a character is a bidirectional control.
func IsBidi(r rune) bool {
	return r >= '\u202A' && r <= '\u202E' || r >= '\u2066' && r <= '\u2069' || r == '\u200E' || r == '\u200F' || r == '\u061C'
}

// shorten cuts valid text to at most limit bytes, between two characters.
func shorten(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	keep, mark := limit-len(Cut), Cut
	if keep < 0 {
		keep, mark = max(limit, 0), ""
	}
	for keep > 0 && !utf8.RuneStart(s[keep]) {
		keep--
	}
	return s[:keep] + mark
}

// Check says what is wrong with text that a person wrote and can write again; nil if nothing is. The text may have at
// most limit bytes, must be UTF-8, and must hold no control characters and no bidirectional controls. Newlines and tabs
// are allowed.
func Check(s string, limit int) error {
	if len(s) > limit {
		return fmt.Errorf("has %d bytes; at most %d are allowed", len(s), limit)
	}
	if isPlain(s) {
		return nil
	}
	for i, r := range s {
		if r == utf8.RuneError {
			if _, width := utf8.DecodeRuneInString(s[i:]); width == 1 {
				return fmt.Errorf("is not valid UTF-8 at byte %d (0x%02x)", i, s[i])
			}
		}
		if IsForbidden(r) {
			return errors.New(forbidden(r, i))
		}
	}
	return nil
}
