package examples

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// build compiles the program, or skips the test without a C compiler.
func build(t *testing.T) string {
	t.Helper()
	_ = os.Getenv("OUTBID_TEST_PROGRAMS") // so that go test uses no cached result of another source
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler")
	}
	path := filepath.Join(t.TempDir(), "anneal")
	if out, err := exec.Command(cc, "-O2", "-Wall", "-Wextra", "-Werror", "-o", path, "annealing/anneal.c", "-lm").CombinedOutput(); err != nil {
		t.Fatalf("compile: %v\n%s", err, out)
	}
	return path
}

// run trains until a step and returns the lines that were reported and the checkpoint's path.
func run(t *testing.T, program, until, checkpoint string) (report []byte, saved string) {
	t.Helper()
	dir := t.TempDir()
	file, saved := filepath.Join(dir, "report"), filepath.Join(dir, "checkpoint")
	cmd := exec.Command(program, "0.1", "0.8", "reverse")
	cmd.Env = append(os.Environ(), "OUTBID_SEED=7", "OUTBID_UNTIL_STEP="+until, "OUTBID_REPORT="+file,
		"OUTBID_CHECKPOINT_IN="+checkpoint, "OUTBID_CHECKPOINT_OUT="+saved)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("run until step %s: %v\n%s", until, err, out)
	}
	report, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return report, saved
}

func TestGoesOnAsIfItHadNotEnded(t *testing.T) {
	t.Parallel()
	program := build(t)
	whole, _ := run(t, program, "6", "")
	first, checkpoint := run(t, program, "3", "")
	second, _ := run(t, program, "6", checkpoint)
	if got := append(first, second...); !bytes.Equal(got, whole) {
		t.Errorf("3 steps and 3 more:\n%s\n6 steps at once:\n%s", got, whole)
	}
	if n := bytes.Count(whole, []byte("\n")); n != 6 {
		t.Errorf("%d reports of 6 steps:\n%s", n, whole)
	}
}

func TestRefusesWhatCannotBe(t *testing.T) {
	t.Parallel()
	program := build(t)
	for name, args := range map[string][]string{
		"too few":     {"0.1"},
		"temperature": {"-1", "0.8", "swap"},
		"cooling":     {"1", "1.5", "swap"},
		"move":        {"1", "0.8", "jump"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if out, err := exec.Command(program, args...).CombinedOutput(); err == nil || !bytes.HasPrefix(out, []byte("anneal: ")) {
				t.Errorf("%v: %v, %s", args, err, out)
			}
		})
	}
}
