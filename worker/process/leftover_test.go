package process

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

func TestLeftoversAfterKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	worker := exec.Command(os.Args[0])
	worker.Env = append(os.Environ(), "PROCESS_TEST_HOST="+dir)
	out := newPrinted()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	worker.Stdout, worker.Stderr = w, os.Stderr
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	closeAll([]*os.File{w})
	var reader sync.WaitGroup
	reader.Go(func() { readLines(r, Stdout, nil, out.add) })
	out.await(t, "stdout: all")
	if err := worker.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = worker.Wait() // an error, because it was killed
	var pids []int
	for _, line := range out.all() {
		if text, ok := strings.CutPrefix(line, "stdout: pid "); ok {
			pid, err := strconv.Atoi(text)
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
	}
	awaitGone(t, pids[2]) // the leader dies with its worker, without help
	if !alive(pids[0]) || !alive(pids[1]) {
		t.Fatal("nothing was left behind, so there is nothing to test")
	}
	h, err := Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("pid %d is still there", pid)
		}
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	reader.Wait()
	closeAll([]*os.File{r})
}

// A process with a recorded id but another start time is not killed.
func TestLeftoversSpareTheInnocent(t *testing.T) {
	t.Parallel()
	h := open(t)
	p, out := start(t, h, `echo ready; exec sleep 600`)
	out.await(t, "stdout: ready")
	left, err := leftovers(state{Token: "another", Groups: []group{{PID: p.PID(), Start: startTime(p.PID()) + 1}}})
	if err != nil || len(left) != 0 {
		t.Errorf("would end %v, %v", left, err)
	}
	left, err = leftovers(state{Token: "another", Groups: []group{{PID: p.PID(), Start: startTime(p.PID())}}})
	if err != nil || len(left) != 1 || left[0] != p.PID() {
		t.Errorf("would end %v, %v; want only %d", left, err, p.PID())
	}
	left, err = leftovers(state{Token: h.token})
	if err != nil || len(left) != 1 || left[0] != p.PID() {
		t.Errorf("by token would end %v, %v; want only %d", left, err, p.PID())
	}
}

func TestDamagedList(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "{", `{"boot":"other","token":"x","groups":[{"pid":1,"start":1}]}`, "null"} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "processes.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		h, err := Open(dir, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
}
