package spec

import (
	"errors"
	"flag"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

//nolint:gochecknoglobals // A flag of the test binary.
var update = flag.Bool("update", false, "write the errors into testdata/bad.txt")

// good is a valid spec with one line for each key.
const good = `name: digits
metric: accuracy
mode: max
space: {lr: {float: {low: 0.001, high: 0.1, log: true}}}
tuner: {random: {}}
limits: {trials: 10}
program: {command: [train, "{lr}"]}
`

type badCase struct{ title, lines, want string }

func readBad(t *testing.T, text string) (intro string, cases []badCase) {
	t.Helper()
	blocks := strings.Split(text, "\n== ")
	for _, block := range blocks[1:] {
		title, lines, _ := strings.Cut(block, "\n")
		lines, want, _ := strings.Cut("\n"+lines, "\n=> ")
		cases = append(cases, badCase{
			title: title, lines: strings.Trim(lines, "\n"), want: strings.TrimSpace(want),
		})
	}
	return blocks[0], cases
}

// compose returns the lines of a case, followed by those of the good spec that it does not replace.
func compose(lines string) string {
	if rest, raw := strings.CutPrefix(lines+"\n", "raw\n"); raw {
		return rest
	}
	var text strings.Builder
	var keys []string
	for line := range strings.SplitSeq(lines, "\n") {
		if gone, ok := strings.CutPrefix(line, "!"); ok {
			keys = append(keys, gone)
			continue
		}
		text.WriteString(line + "\n")
		if key := regexp.MustCompile(`^\w+`).FindString(line); key != "" {
			keys = append(keys, key)
		}
	}
	for line := range strings.Lines(good) {
		if key, _, _ := strings.Cut(line, ":"); !slices.Contains(keys, key) {
			text.WriteString(line)
		}
	}
	return text.String()
}

// Every invalid spec gives one line that names the field, the value and the allowed values.
func TestBadSpecs(t *testing.T) {
	t.Parallel()
	const file = "testdata/bad.txt"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Parse([]byte(good)); err != nil {
		t.Fatalf("the good spec: %v", err)
	}
	intro, cases := readBad(t, string(text))
	var out strings.Builder
	out.WriteString(intro)
	for _, c := range cases {
		_, err := Parse([]byte(compose(c.lines)))
		got := "no error"
		if err != nil {
			got = err.Error()
		}
		if _, ok := errors.AsType[*Error](err); !ok {
			t.Errorf("%s: %v is no *Error", c.title, err)
		}
		if strings.Contains(got, "\n") {
			t.Errorf("%s: more than one line: %q", c.title, got)
		}
		out.WriteString("\n== " + c.title + "\n" + c.lines + "\n=> " + got)
		if diff := cmp.Diff(c.want, got); diff != "" && !*update {
			t.Errorf("%s (-want +got):\n%s", c.title, diff)
		}
	}
	if len(cases) < 60 {
		t.Errorf("%d cases, want at least 60", len(cases))
	}
	if *update {
		if err := os.WriteFile(file, []byte(out.String()+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
