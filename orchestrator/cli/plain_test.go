package cli

import (
	"testing"
	"unicode"

	"pgregory.net/rapid"
)

func TestPlainTextSteersNoTerminal(t *testing.T) {
	t.Parallel()
	p := newPlainer()
	for name, tc := range map[string]struct{ in, want string }{
		"plain":                {"loss\t0.5 ü 日本", "loss\t0.5 ü 日本"},
		"colours":              {"\x1b[1;31mred\x1b[0m", "red"},
		"clear the screen":     {"\x1b[2J\x1b[Hgone", "gone"},
		"title":                {"\x1b]0;owned\x07text", "text"},
		"title ended by ST":    {"\x1b]0;owned\x1b\\text", "text"},
		"clipboard":            {"\x1b]52;c;cm0gLXJmIC8=\x07x", "x"},
		"string without end":   {"\x1b]0;owned", "\\x1b]0;owned"},
		"C1 CSI":               {"\u009b31mred", "red"},
		"C1 OSC":               {"\u009d0;owned\u009cx", "x"},
		"device control":       {"\x1bP$q\x1b\\x", "x"},
		"charset":              {"\x1b(0x", "x"},
		"reset":                {"\x1bcx", "x"},
		"bell and backspace":   {"a\a\bb", "a\\x07\\x08b"},
		"progress bar":         {"\r 10%\r 20%", " 20%"},
		"escape at the end":    {"x\x1b", "x\\x1b"},
		"nested":               {"\x1b\x1b[31m[2Jx", "\\x1b[2Jx"},
		"right to left":        {"a\u202eb", "a\\u202eb"},
		"delete":               {"a\x7f", "a\\x7f"},
		"another line feed":    {"a\vb\fc", "a\\x0bb\\x0cc"},
		"carriage return last": {"a\r", "a"},
	} {
		if got := p.plain(tc.in); got != tc.want {
			t.Errorf("%s: %q became %q, want %q", name, tc.in, got, tc.want)
		}
	}
}

func TestNoControlCharacterIsLeft(t *testing.T) {
	t.Parallel()
	p := newPlainer()
	rapid.Check(t, func(t *rapid.T) {
		letters := []rune("\x1b[]P_^X\\0;mJ\a\r\b\u009b\u009c\u009dax(")
		text := rapid.StringOf(rapid.SampledFrom(letters)).Draw(t, "text")
		for _, r := range p.plain(text) {
			if unicode.IsControl(r) && r != '\t' {
				t.Fatalf("%q became %q", text, p.plain(text))
			}
		}
	})
}
