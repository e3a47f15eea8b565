// Package redact replaces the values of a trial's secrets in the trial's output and messages.
//
// It finds a value as it is, each long line of it, and the value in base64, in JSON and in a URL. It does not find a
// value that is shorter than MinBytes, split over several lines, or changed in another way: reversed, compressed,
// encrypted, or in base64 together with other text.
package redact

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	// MinBytes is the size of the shortest value that is replaced: shorter values occur in too many words.
	MinBytes = 8
	// shortPeriod is the longest period of a value for which only its beginning is searched.
	shortPeriod = 16
	// maxHeld limits how many bytes of a line Lines holds back.
	maxHeld = 256 << 10
)

// stars replaces a value.
const stars = "***"

// Mask replaces values. A nil Mask replaces nothing. It is safe for concurrent use.
type Mask struct{ needles []needle }

// needle is a text to find. For a text with a short period, only the beginning is searched, and a match is then
// extended as long as it repeats: otherwise the search of a long line of such text would take long.
type needle struct {
	text    []byte
	period  int
	repeats bool
}

// New returns a mask for the values of an environment, or nil if none of them is long enough.
func New(env map[string]string) *Mask {
	m := &Mask{}
	for _, value := range env {
		for _, line := range append(strings.Split(value, "\n"), value) {
			line = strings.TrimSpace(line)
			m.add(line)
		}
		m.add(value)
		for _, code := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			if len(value) >= MinBytes {
				m.add(code.EncodeToString([]byte(value)))
			}
		}
		for _, quoted := range jsonForms(value) {
			m.add(quoted)
		}
		m.add(url.QueryEscape(value))
		m.add(url.PathEscape(value))
	}
	if len(m.needles) == 0 {
		return nil
	}
	return m
}

// jsonForms returns the ways in which encoders write a text in JSON, without the quotes: with HTML characters escaped
// or not, and in ASCII only.
func jsonForms(text string) []string {
	forms := make([]string, 0, 3)
	for _, html := range []bool{false, true} {
		var b strings.Builder
		encoder := json.NewEncoder(&b)
		encoder.SetEscapeHTML(html)
		if encoder.Encode(text) == nil {
			quoted := strings.TrimSuffix(b.String(), "\n")
			forms = append(forms, quoted[1:len(quoted)-1])
		}
	}
	var ascii strings.Builder
	for _, r := range forms[0] {
		if r < utf8.RuneSelf {
			ascii.WriteRune(r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			fmt.Fprintf(&ascii, `\u%04x`, unit)
		}
	}
	return append(forms, ascii.String())
}

func (m *Mask) add(text string) {
	if len(text) < MinBytes {
		return
	}
	n := needle{text: []byte(text), period: period(text)}
	if n.period < shortPeriod && len(text) >= 2*shortPeriod {
		n.text, n.repeats = n.text[:2*shortPeriod], true
	}
	if !slices.ContainsFunc(m.needles, func(o needle) bool { return bytes.Equal(o.text, n.text) && o.repeats == n.repeats }) {
		m.needles = append(m.needles, n)
	}
}

// period returns after how many bytes a text repeats itself; its length if it does not.
func period(text string) int {
	border := make([]int, len(text))
	for i := 1; i < len(text); i++ {
		k := border[i-1]
		for k > 0 && text[i] != text[k] {
			k = border[k-1]
		}
		if text[i] == text[k] {
			k++
		}
		border[i] = k
	}
	return len(text) - border[len(text)-1]
}

// span is the part of a text from the byte at from to before the byte at to.
type span struct{ from, to int }

// find returns the positions of values, in order, with overlapping spans merged.
func (m *Mask) find(data []byte) []span {
	var found []span
	for _, n := range m.needles {
		for at := 0; ; {
			i := bytes.Index(data[at:], n.text)
			if i < 0 {
				break
			}
			from := at + i
			to := from + len(n.text)
			at = from + n.period
			if n.repeats {
				for to < len(data) && data[to] == data[to-n.period] {
					to++
				}
				at = to - len(n.text) + 1
			}
			found = append(found, span{from, to})
		}
	}
	slices.SortFunc(found, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	merged := found[:0]
	for _, s := range found {
		if last := len(merged) - 1; last >= 0 && s.from < merged[last].to {
			merged[last].to = max(merged[last].to, s.to)
			continue
		}
		merged = append(merged, s)
	}
	return merged
}

// Bytes returns data with values replaced, or data itself if it has none.
func (m *Mask) Bytes(data []byte) []byte {
	if m == nil {
		return data
	}
	return replace(data, m.find(data))
}

func replace(data []byte, spans []span) []byte {
	if len(spans) == 0 {
		return data
	}
	out, at := make([]byte, 0, len(data)), 0
	for _, s := range spans {
		out = append(append(out, data[at:s.from]...), stars...)
		at = s.to
	}
	return append(out, data[at:]...)
}

// Text is like Bytes for a string.
func (m *Mask) Text(text string) string {
	if m == nil || len(text) < MinBytes {
		return text
	}
	data := []byte(text)
	spans := m.find(data)
	if len(spans) == 0 {
		return text
	}
	return string(replace(data, spans))
}

// Cut is like Text for a text that may have been truncated: it also replaces the beginning of a value at the end, if
// it is long enough.
func (m *Mask) Cut(text string) string {
	if m == nil {
		return text
	}
	text = m.Text(text)
	whole := strings.TrimRight(text, ". …")
	if n := m.begun([]byte(whole)); n >= MinBytes {
		return whole[:len(whole)-n] + stars + text[len(whole):]
	}
	return text
}

// Lines replaces values in a stream of lines, in which a long line comes in parts. It is not safe for concurrent use.
type Lines struct {
	mask *Mask
	held []byte
}

// NewLines returns a Lines for one stream. It changes nothing if the mask is nil.
func NewLines(m *Mask) *Lines { return &Lines{mask: m} }

// Take takes a part of a line, and returns what can be shown now. It holds back what may be the beginning of a value
// until the next part, unless last says that the line ends here. The result is valid until the next call.
func (l *Lines) Take(part []byte, last bool) []byte {
	if l.mask == nil {
		return part
	}
	data := part
	if len(l.held) > 0 {
		data = append(l.held, part...)
		l.held = nil
	}
	spans := l.mask.find(data)
	if last {
		return replace(data, spans)
	}
	cut := len(data) - l.mask.begun(data)
	for i := len(spans) - 1; i >= 0; i-- {
		if s := spans[i]; s.to > cut || s.to == len(data) { // it may continue, or be a part of another value that does
			cut = min(cut, s.from)
		}
	}
	if len(data)-cut > maxHeld {
		return replace(data, spans)
	}
	l.held = bytes.Clone(data[cut:])
	for len(spans) > 0 && spans[len(spans)-1].to > cut {
		spans = spans[:len(spans)-1]
	}
	return replace(data[:cut], spans)
}

// begun returns how many of the last bytes may be the beginning of a value.
func (m *Mask) begun(data []byte) int {
	longest := 0
	for _, n := range m.needles {
		for size := min(len(n.text)-1, len(data)); size > longest; size-- {
			if data[len(data)-size] == n.text[0] && bytes.HasSuffix(data, n.text[:size]) {
				longest = size
			}
		}
	}
	return longest
}
