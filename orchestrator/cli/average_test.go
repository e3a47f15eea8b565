package cli

import (
	"bytes"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/checkpoint/safetensors"
)

// checkpointFile writes a file of one tensor.
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

func TestAverageRefusesWhatItCannotAverage(t *testing.T) {
	t.Parallel()
	one, long := checkpointFile(t, "one", 1), checkpointFile(t, "long", 1, 2)
	diverged := checkpointFile(t, "diverged", float32(math.NaN()))
	dir := t.TempDir()
	to := filepath.Join(dir, "mean")
	for _, c := range []struct {
		want string
		args []string
	}{
		{"FILE[=WEIGHT]", []string{"--to", to}},
		{"--to", []string{one}},
		{"no such file", []string{one, filepath.Join(dir, "none"), "--to", to}},
		{`weight "many": want a number`, []string{one + "=many", "--to", to}},
		{"has -1; want a finite number", []string{one + "=-1", "--to", to}},
		{"add up to 0", []string{one + "=0", "--to", to}},
		{"is not a file", []string{dir, "--to", to}},
		{"not a whole safetensors file", []string{writeFile(t, "text", "a checkpoint of a program"), "--to", to}},
		{`tensor "w" (F32 [1]) is "w" (F32 [2]) in the second`, []string{one, long, "--to", to}},
		{`tensor "w", element 0`, []string{one, diverged, "--to", to}},
		{"cannot write", []string{one, "--to", filepath.Join(dir, "no", "such", "place")}},
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
		{"--to", []string{"digits", "--uniform"}},
		{"either --eval COMMAND", []string{"digits", "--to", to}},
		{"either --eval COMMAND", []string{"digits", "--to", to, "--uniform", "--eval", "true"}},
		{"-n 0: want a number from 1", []string{"digits", "--to", to, "--uniform", "-n", "0"}},
		{"cannot write", []string{"digits", "--to", filepath.Join(dir, "no", "such", "place"), "--uniform"}},
		{"not a whole safetensors file", []string{"digits", "--to", to, "--uniform"}}, // the fake's checkpoints are no weights
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
