package sanitize

import (
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"pgregory.net/rapid"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func TestText(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in    string
		limit int
		want  string
	}{
		"plain":                {"exit code 3", 100, "exit code 3"},
		"empty":                {"", 100, ""},
		"latin-1":              {"K\xf6nnte nicht lesen", 100, "K\uFFFDnnte nicht lesen"},
		"zero byte":            {"a\x00b", 100, "a\uFFFDb"},
		"lines and tabs":       {"a\n\tb\r\nc", 100, "a\n\tb\nc"},
		"colour":               {"\x1b[1;31mError\x1b[0m: no", 100, "Error: no"},
		"title":                {"\x1b]0;window\x07text", 100, "text"},
		"unfinished escape":    {"a\x1b", 100, "a\uFFFD"},
		"right to left":        {"a\u202Etxt.exe", 100, "a\uFFFDtxt.exe"},
		"cut":                  {"abcdefghij", 8, "abcd …"},
		"cut within character": {"äöüäöüäöü", 9, "äö …"},
		"limit below the mark": {"abcdef", 2, "ab"},
		"no room":              {"abcdef", 0, ""},
		"negative limit":       {"abcdef", -1, ""},
		"far too long":         {strings.Repeat("\xff", 1<<20), 13, "\uFFFD …"},
	} {
		if got := Text(c.in, c.limit); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestLine(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"  a\n\n b\tc \r\n": "a b c",
		"\xffx":             "\uFFFDx",
		"a\u2028b":          "a b",
	} {
		if got := Line(in, 100); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestValid(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                      "",
		"K\xf6nnte \x1b[31mrot": "K\uFFFDnnte \x1b[31mrot",
		"\xff\xfe\x00ä":         "\uFFFD\x00ä",
	} {
		if got := Valid(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                       "",
		"Grüße\n\tan alle":       "",
		"a\xff":                  "is not valid UTF-8 at byte 1 (0xff)",
		"\uFFFD":                 "",
		"a\u2066b":               "has the control character U+2066 at byte 1; remove it",
		"a\x07":                  "has the control character U+0007 at byte 1; remove it",
		strings.Repeat("a", 101): "has 101 bytes; at most 100 are allowed",
	} {
		got := ""
		if err := Check(in, 100); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// TestAnyBytes checks that for any input the result is valid, bounded and accepted by Check.
func TestAnyBytes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"))
		if rapid.Bool().Draw(t, "runes") {
			in = rapid.String().Draw(t, "text") + in
		}
		limit := rapid.IntRange(-1, 200).Draw(t, "limit")
		for _, out := range []string{Text(in, limit), Line(in, limit)} {
			if len(out) > max(limit, 0) || !utf8.ValidString(out) || Check(out, max(limit, 0)) != nil {
				t.Fatalf("%q at %d: %q, %v", in, limit, out, Check(out, max(limit, 0)))
			}
		}
		if again := Text(Text(in, limit), limit); again != Text(in, limit) {
			t.Fatalf("%q: %q is changed once more, to %q", in, Text(in, limit), again)
		}
	})
}

func TestMessage(t *testing.T) {
	t.Parallel()
	settings, err := structpb.NewStruct(map[string]any{"a": []any{"x"}})
	if err != nil {
		t.Fatal(err)
	}
	settings.Fields["a"].GetListValue().Values[0] = structpb.NewStringValue("\xff")
	spec := &outbidv1.SweepSpec{
		Name: "n\xf6", Constraints: []string{"ok", "\xfe"}, Labels: map[string]string{"k\xff": "v", "w": "\xfd", "ok": "ok"},
		Tuner: &outbidv1.Tuner{Points: []*structpb.Struct{settings}}, Mode: "max",
	}
	if _, err := proto.Marshal(spec); err == nil {
		t.Fatal("it could be encoded before")
	}
	if !Message(spec) {
		t.Error("nothing was wrong")
	}
	if _, err := proto.Marshal(spec); err != nil {
		t.Errorf("it still cannot be encoded: %v", err)
	}
	if spec.GetName() != "n\uFFFD" || spec.GetLabels()["k\uFFFD"] != "v" || spec.GetMode() != "max" {
		t.Errorf("%v", spec)
	}
	if Message(spec) {
		t.Error("something is wrong the second time")
	}
}

func FuzzText(f *testing.F) {
	f.Add("K\xf6nnte", 5)
	f.Add("\x1b[31m\u202e", 7)
	f.Fuzz(func(t *testing.T, in string, limit int) {
		limit %= 1 << 12
		if out := Text(in, limit); len(out) > max(limit, 0) || Check(out, max(limit, 0)) != nil {
			t.Fatalf("%q", out)
		}
	})
}

func BenchmarkText(b *testing.B) {
	for name, in := range map[string]string{"plain": "epoch 3 loss 0.123", "latin1": "K\xf6nnte nicht lesen"} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				Text(in, 1000)
			}
		})
	}
}

func TestRepairFields(t *testing.T) {
	t.Parallel()
	info := &outbidv1.NodeInfo{
		Name: "n\u202E1", Labels: map[string]string{"rack\u2066": "r\u202E1", "zone": "a"},
		Devices: []*outbidv1.Device{{Type: "v100\x1b[1m"}, {Type: "cpu"}},
	}
	RepairFields(info)
	want := &outbidv1.NodeInfo{
		Name: "n\uFFFD1", Labels: map[string]string{"rack\uFFFD": "r\uFFFD1", "zone": "a"},
		Devices: []*outbidv1.Device{{Type: "v100"}, {Type: "cpu"}},
	}
	if !proto.Equal(info, want) {
		t.Errorf("%v", info)
	}
}
