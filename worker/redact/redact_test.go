package redact

import (
	"bytes"
	"encoding/base64"
	"net/url"
	"strings"
	"testing"

	"pgregory.net/rapid"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func TestMaskFindsAValueInEachOfItsForms(t *testing.T) {
	t.Parallel()
	const value = "hunter2/&\"secret"
	m := New(map[string]string{"A": value})
	for form, text := range map[string]string{
		"plain":      "token=" + value + ";",
		"twice":      value + value,
		"base64":     base64.StdEncoding.EncodeToString([]byte(value)),
		"base64 url": base64.URLEncoding.EncodeToString([]byte(value)),
		"JSON":       `{"a": "hunter2/\u0026\"secret"}`,
		"plain JSON": `{"a": "hunter2/&\"secret"}`,
		"URL":        "https://x/?a=" + url.QueryEscape(value),
	} {
		got := m.Text(text)
		if !strings.Contains(got, stars) || strings.Contains(got, "hunter2") || strings.Contains(got, "aHVudGVyMi") {
			t.Errorf("%s: %q became %q", form, text, got)
		}
	}
	if got := m.Text("nothing here"); got != "nothing here" {
		t.Errorf("%q", got)
	}
	if got := New(map[string]string{"A": "h\u00fcnter\U0001F600zwei"}).Text(`{"a": "h\u00fcnter\ud83d\ude00zwei"}`); got != `{"a": "***"}` {
		t.Errorf("JSON in ASCII: %q", got)
	}
	if New(map[string]string{"A": "short"}) != nil {
		t.Error("a short value is masked")
	}
	lines := New(map[string]string{"A": "-----BEGIN-----\nMIIEvQIBADAN\n-----END-----"})
	if got := lines.Text("key: MIIEvQIBADAN"); got != "key: ***" {
		t.Errorf("a line of a value: %q", got)
	}
}

func TestMaskReplacesTextOfMessages(t *testing.T) {
	t.Parallel()
	const value = "0123456789abcdef"
	m := New(map[string]string{"A": value})
	report := &outbidv1.Report{Metrics: map[string]float64{value: 1}, Attributes: map[string]string{"x": `"` + value + `"`}}
	m.Report(report)
	if report.GetAttributes()["x"] != `"***"` || report.GetMetrics()[stars] != 1 || len(report.GetMetrics()) != 1 {
		t.Errorf("%v", report)
	}
	(*Mask)(nil).Report(report)
	note := &outbidv1.UplinkMessage{
		Fork: &outbidv1.ForkRef{Sweep: value},
		Kind: &outbidv1.UplinkMessage_Note{Note: &outbidv1.Note{Sweep: value, Node: value, Text: "it has " + value}},
	}
	m.Message(note)
	if n := note.GetNote(); n.GetText() != "it has ***" || n.GetSweep() != value || n.GetNode() != value || note.GetFork().GetSweep() != value {
		t.Errorf("%v", note)
	}
}

func TestCutHidesTheBeginningOfAValueAtTheEndOfAText(t *testing.T) {
	t.Parallel()
	m := New(map[string]string{"A": "0123456789abcdef"})
	for text, want := range map[string]string{
		"it has 0123456789 …": "it has *** …", "it has 0123456789abc...": "it has ***...", "it has 01234567": "it has ***",
		"it has 0123456": "it has 0123456", "0123456789abcdef": "***", "nothing …": "nothing …",
	} {
		if got := m.Cut(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// However a line is split, the output does not contain a value, and it is the masked line unless values touch.
func TestLinesMaskValuesAcrossParts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		alphabet := rapid.SampledFrom([]byte("ab"))
		value := string(rapid.SliceOfN(alphabet, MinBytes, 80).Draw(t, "value"))
		other := string(rapid.SliceOfN(alphabet, MinBytes, 12).Draw(t, "other"))
		m := New(map[string]string{"A": value, "B": other})
		line := strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{value, other, "a", "b", "-", value[:5], other[:7]}), 0, 12).Draw(t, "line"), "")
		lines, rest, shown := NewLines(m), []byte(line), []byte(nil)
		for len(rest) > 0 {
			n := rapid.IntRange(1, len(rest)).Draw(t, "part")
			shown = append(shown, lines.Take(rest[:n], n == len(rest))...)
			rest = rest[n:]
		}
		if want := m.Bytes([]byte(line)); !bytes.Equal(shown, want) {
			t.Fatalf("%q (of %q and %q) is shown as %q, want %q", line, value, other, shown, want)
		}
		if bytes.Contains(shown, []byte(value)) || bytes.Contains(shown, []byte(other)) {
			t.Fatalf("%q shows a value", shown)
		}
	})
}

func BenchmarkLongLineOfARepeatedValue(b *testing.B) {
	m := New(map[string]string{"A": strings.Repeat("a", 32<<10)})
	line := bytes.Repeat([]byte("a"), 64<<10)
	for b.Loop() {
		m.Bytes(line)
	}
}
