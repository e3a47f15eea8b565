// Package sanitize makes text from outside valid, bounded and safe to display: output of programs, file names, errors,
// environment values, notes, labels and headers. Everything that such text can reach (protocol buffers, the ledger,
// terminals, web pages) may rely on the results of this package.
//
// Text and Line repair text of a program, which cannot be corrected at its source. Check rejects text that a user
// typed.
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

// replacement replaces characters that cannot be displayed.
const replacement = "\uFFFD"

// escapes matches the sequences that colour terminals, move the cursor or set the window's title.
var escapes = regexp.MustCompile("\x1b(?:\\[[0-9;:?<=>]*[ -/]*[@-~]|\\][^\x07\x1b]{0,1000}(?:\x07|\x1b\\\\)|[@-Z\\\\^_])")

// Text returns s as valid UTF-8 of at most limit bytes. Runs of bytes that are not UTF-8, control characters (except
// newline and tab) and bidirectional controls become U+FFFD, and terminal escape sequences are removed. Text that is
// longer than limit is cut between two characters and ends with Cut. A limit below len(Cut) returns at most that many
// bytes and no mark.
func Text(s string, limit int) string {
	if isPlain(s) {
		return shorten(s, limit)
	}
	return shorten(repair(within(s, limit)), limit)
}

// Line is Text on one line: every run of white space becomes one space, except at the ends, where it is removed.
func Line(s string, limit int) string {
	if s = within(s, limit); !isPlain(s) {
		s = repair(s)
	}
	return shorten(strings.Join(strings.Fields(s), " "), limit)
}

// Valid returns s as valid UTF-8: each run of invalid bytes becomes U+FFFD. It keeps control characters. It is for
// output of programs, which readers may want unchanged. They make it safe themselves, like outbid logs on a terminal.
func Valid(s string) string { return strings.ToValidUTF8(s, replacement) }

// within returns the part of s that can affect a result of limit bytes, so that endless output costs no time here.
func within(s string, limit int) string {
	if most := 4*max(limit, 0) + 4096; len(s) > most {
		return s[:most] + Cut
	}
	return s
}

// isPlain reports whether s is printable ASCII with newlines and tabs, which is the usual case.
func isPlain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\n' && c != '\t' || c >= 0x7f {
			return false
		}
	}
	return true
}

// IsPlain reports whether every string is printable ASCII with newlines and tabs, and so needs no change.
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

// IsForbidden reports whether a character must not be displayed: control characters other than newline and tab, and
// bidirectional controls, which change the displayed order of text.
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

// Check returns an error for invalid text that a user wrote and can correct. The text may have at most limit bytes,
// must be UTF-8, and must not contain control characters or bidirectional controls. Newlines and tabs are allowed.
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
