package cli

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/checkpoint/safetensors"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// checkpointFile writes a file with one tensor.
func checkpointFile(t *testing.T, name string, values ...float32) string {
	t.Helper()
	h := safetensors.Header{Tensors: []safetensors.Tensor{{
		Name: "w", DType: safetensors.F32, Shape: []int64{int64(len(values))}, End: int64(4 * len(values)),
	}}}
	content, err := h.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range values {
		content = binary.LittleEndian.AppendUint32(content, math.Float32bits(v))
	}
	return writeFile(t, name, string(content))
}

func TestAverageWritesTheWeightedMean(t *testing.T) {
	t.Parallel()
	one, two := checkpointFile(t, "one", 1, 8), checkpointFile(t, "two=2", 5, 4)
	to := filepath.Join(t.TempDir(), "mean.safetensors")
	app := newTestApp(nil, nil)
	wantExit(t, app, app.start(t.Context(), "average", one+"=300", two+"=100", "--to", to), exitOK)
	got, err := os.ReadFile(to)
	if err != nil {
		t.Fatal(err)
	}
	want := binary.LittleEndian.AppendUint32(nil, math.Float32bits(2))
	want = binary.LittleEndian.AppendUint32(want, math.Float32bits(7))
	if !bytes.HasSuffix(got, want) || !bytes.Contains(got, []byte(`{\"one\":300,\"two=2\":100}`)) {
		t.Errorf("the average is %q", got)
	}
	if !strings.Contains(app.err.String(), "the average of 2 checkpoints") {
		t.Errorf("it said %q", app.err)
	}
}

// TestAverageWritesWhereALinkLeads checks that writing to a link replaces the link's target and keeps the link.
func TestAverageWritesWhereALinkLeads(t *testing.T) {
	t.Parallel()
	one, dir := checkpointFile(t, "one", 3), t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Symlink("file", link)); err != nil {
		t.Fatal(err)
	}
	app := newTestApp(nil, nil)
	wantExit(t, app, app.start(t.Context(), "average", one, "--to", link), exitOK)
	info, err := os.Lstat(link)
	if err != nil || info.Mode().IsRegular() {
		t.Errorf("the link is %v: %v", info, err)
	}
	if got, err := os.ReadFile(file); err != nil || len(got) == 0 {
		t.Errorf("the file has %q: %v", got, err)
	}
}

func TestAverageRefusesWhatItCannotAverage(t *testing.T) {
	t.Parallel()
	one, long := checkpointFile(t, "one", 1), checkpointFile(t, "long", 1, 2)
	diverged := checkpointFile(t, "diverged", float32(math.NaN()))
	dir := t.TempDir()
	to, pipe := filepath.Join(dir, "mean"), filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		want string
		args []string
	}{
		{"FILE[=WEIGHT]", []string{"--to", to}},
		{"--to", []string{one}},
		{"no such file", []string{one, filepath.Join(dir, "none"), "--to", to}},
		{`weight "many": want a number`, []string{one + "=many", "--to", to}},
		{`weight "NaN": want a number`, []string{one + "=NaN", "--to", to}},
		{`weight "inf": want a number`, []string{one + "=inf", "--to", to}},
		{"has -1; want a finite number", []string{one + "=-1", "--to", to}},
		{"the sum is 0", []string{one + "=0", "--to", to}},
		{"is not a file", []string{dir, "--to", to}},
		{"is not a file", []string{pipe, "--to", to}},
		{"not a complete safetensors file", []string{writeFile(t, "text", "a checkpoint of a program"), "--to", to}},
		{`tensor "w" (F32 [1]) is "w" (F32 [2]) in the second`, []string{one, long, "--to", to}},
		{`tensor "w", element 0`, []string{one, diverged, "--to", to}},
		{"cannot write", []string{one, "--to", filepath.Join(dir, "no", "such", "place")}},
		{"it exists and is not a regular file", []string{one, "--to", dir}},
		{"it exists and is not a regular file", []string{one, "--to", pipe}},
	} {
		app := newTestApp(nil, nil)
		wantExit(t, app, app.start(t.Context(), append([]string{"average"}, c.args...)...), exitUsage)
		if !strings.Contains(app.err.String(), c.want) {
			t.Errorf("%v: it said %q; want %q", c.args, app.err, c.want)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func TestSoupRefusesWhatItCannotMake(t *testing.T) {
	t.Parallel()
	f := newFake()
	url, _ := serveFake(t, f, "127.0.0.1:0")
	dir := t.TempDir()
	to := filepath.Join(dir, "soup")
	for _, c := range []struct {
		want string
		args []string
	}{
		{"--to FILE to fetch", []string{"digits"}},
		{"--local does not store", []string{"digits", "--uniform", "--local"}},
		{"--get fetches", []string{"digits", "--uniform", "--get", "1"}},
		{"--get -1", []string{"digits", "--to", to, "--get", "-1"}},
		{"-n 0: want a number from 1", []string{"digits", "--to", to, "--uniform", "-n", "0"}},
		{"cannot write", []string{"digits", "--to", filepath.Join(dir, "no", "such", "place"), "--uniform"}},
		{"either --eval COMMAND", []string{"digits", "--to", to, "--eval", "true", "--uniform"}},
		{"not a complete safetensors file", []string{"digits", "--to", to, "--uniform"}}, // the fake's checkpoints do not contain weights
	} {
		app := newTestApp(nil, nil)
		wantExit(t, app, app.start(t.Context(), append([]string{"soup", "--server", url}, c.args...)...), exitUsage)
		if !strings.Contains(app.err.String(), c.want) {
			t.Errorf("%v: it said %q; want %q", c.args, app.err, c.want)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// TestASoupIsKeptAndFetched checks that a soup is stored with its sweep, listed and fetched, and that the leftovers of
// a killed command are removed.
func TestASoupIsKeptAndFetched(t *testing.T) {
	t.Parallel()
	f := newFake()
	weights, err := os.ReadFile(checkpointFile(t, "weights", 1, 8))
	if err != nil {
		t.Fatal(err)
	}
	f.weights = weights
	url, _ := serveFake(t, f, "127.0.0.1:0")
	dir := t.TempDir()
	killed, alive := filepath.Join(dir, folderPrefix+"1"), filepath.Join(dir, folderPrefix+"2")
	for _, folder := range []string{killed, alive} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{filepath.Join(killed, "lock"), filepath.Join(alive, "new")} { // one command has just started
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	made, fetched := filepath.Join(dir, "made"), filepath.Join(dir, "fetched")
	run := func(args ...string) string {
		app := newTestApp(nil, nil)
		wantExit(t, app, app.start(t.Context(), append(args, "--server", url)...), exitOK)
		return app.out.String() + app.err.String()
	}
	said := run("soup", "digits", "--eval", `test -s "$OUTBID_CHECKPOINT" && echo '{"accuracy": 0.75}'`, "-n", "2", "--to", made)
	if !strings.Contains(said, "stores it as soup 3: the average of 1 of 1 checkpoints") {
		t.Errorf("it said %q", said)
	}
	if f.soup.GetMetric() != .75 || len(f.soup.GetParts()) != 1 || !f.soup.GetParts()[0].GetKept() || f.soup.GetParts()[0].GetSoup() != .75 {
		t.Errorf("what is kept is %v", f.soup)
	}
	if said := run("soup", "digits", "--to", fetched, "--get", "3"); !strings.Contains(said, "soup 3 of digits-2") || !strings.Contains(said, "SOUP WITH IT") {
		t.Errorf("it said %q", said)
	}
	one, _ := os.ReadFile(made)
	two, _ := os.ReadFile(fetched)
	if len(one) == 0 || !bytes.Equal(one, two) {
		t.Errorf("%d bytes were made, and %d fetched", len(one), len(two))
	}
	f.list[0].Soups = []*outbidv1.Soup{f.soup}
	if said := run("show", f.list[0].GetId()); !strings.Contains(said, "3: accuracy 0.75, of trials") {
		t.Errorf("show said %q", said)
	}
	f.soupFile = append(bytes.Clone(f.soupFile[1:]), 0)
	app := newTestApp(nil, nil)
	wantExit(t, app, app.start(t.Context(), "soup", "digits", "--to", fetched, "--server", url), exitFailed)
	if !strings.Contains(app.err.String(), "arrived damaged") {
		t.Errorf("of a damaged one it said %q", app.err)
	}
	left, err := filepath.Glob(filepath.Join(dir, ".*"))
	if err != nil || len(left) != 1 || left[0] != alive {
		t.Errorf("left behind: %v %v", left, err)
	}
}
