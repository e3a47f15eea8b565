package traceparent

import (
	"strings"
	"testing"
)

const text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func TestParse(t *testing.T) {
	t.Parallel()
	s, err := Parse(text)
	if err != nil || s.String() != text || !s.Sampled() || s.TraceID() != "0af7651916cd43dd8448eb211c80319c" {
		t.Errorf("%s is %s: %v", text, s, err)
	}
	if s, err := Parse("01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00-more"); err != nil || s.Sampled() {
		t.Errorf("a later version is %v: %v", s, err)
	}
	for _, bad := range []string{
		"", "00", text + "-more", "ff" + text[2:], strings.ToUpper(text), strings.Replace(text, "b7", "xx", 1), text[:54],
		"00-00000000000000000000000000000000-b7ad6b7169203331-01", "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
	} {
		if s, err := Parse(bad); err == nil {
			t.Errorf("%q is %v", bad, s)
		}
	}
	if got := (Span{}).String(); got != "" {
		t.Errorf("no span is %q", got)
	}
}

func TestSpansOfASweepDiffer(t *testing.T) {
	t.Parallel()
	s, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[Span]bool{s: true}
	for _, child := range []Span{
		s.Sweep("a-1"), s.Trial("a-1", 1), s.Trial("a-1", 2), s.Trial("a-11", 1), s.Lease(1), s.Lease(2), s.Process("n", 1), s.Process("n", 2),
		s.Process("m", 1), s.Decision(1), s.Queue(1), s.Process("n", 1).Part("save", 1), s.Process("n", 1).Part("save", 2),
		s.Process("n", 1).Part("restore", 1), s.Process("n", 2).Part("save", 1),
	} {
		if seen[child] || child.Trace != s.Trace || child.Flags != s.Flags {
			t.Errorf("%s is not a new span of the trace", child)
		}
		seen[child] = true
	}
	if s.Trial("a-1", 1) != s.Sweep("a-1").Trial("a-1", 1) {
		t.Error("a trial's span depends on the span that it is derived from")
	}
}

func FuzzParse(f *testing.F) {
	f.Add(text)
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text)
		if err != nil {
			return
		}
		if again, err := Parse(s.String()); err != nil || again != s {
			t.Errorf("%q is %s, which is %s: %v", text, s, again, err)
		}
	})
}
