package endtoend

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// filesBelow counts the files below a directory, which may be missing.
func filesBelow(t *testing.T, dir string) int {
	t.Helper()
	n := 0
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			n++
		}
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// logLines counts the stored output lines of a sweep.
func (s *server) logLines(id string) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	stream, err := s.StreamLogs(ctx, &outbidv1.StreamLogsRequest{Sweep: id})
	for n := 0; ; n++ {
		if err == nil {
			_, err = stream.Recv()
		}
		if err != nil {
			return n, err
		}
	}
}

// chatty is a program that prints its progress.
const chatty = `step=$OUTBID_START_STEP
while [ "$step" -lt "$OUTBID_UNTIL_STEP" ]; do
  step=$((step + 1))
  echo "{{\"step\": $step, \"loss\": {height}}}" >> "$OUTBID_REPORT"
  echo "at step $step"
done
echo done > "$OUTBID_CHECKPOINT_OUT"`

func TestADeletedSweepIsGoneAndStaysGone(t *testing.T) {
	t.Parallel()
	dir, locks := t.TempDir(), t.TempDir()
	s := serve(t, dir, "up", "--devices", "cpu:2")
	store, history := filepath.Join(dir, "data", "store"), filepath.Join(dir, "data", "history")
	own := job{name: "own", tuner: hyperband(3), change: func(sp *outbidv1.SweepSpec) {
		sp.Workload = &outbidv1.SweepSpec_Program{Program: &outbidv1.Program{Shell: chatty}}
	}}
	slow := job{name: "slow", mode: "well", tuner: random(1_000_000), trials: 2}
	slow.env = map[string]string{"PACE": "20ms"}
	id, other := s.submit(own.spec(t, locks)), s.submit(own.spec(t, locks))
	s.mustDone(id)
	s.mustDone(other)
	running := s.submit(slow.spec(t, locks))
	s.waitSteps(running, 3)
	if filesBelow(t, filepath.Join(store, "checkpoints", id)) == 0 {
		t.Fatal("it does not keep checkpoints")
	}
	del := func(args ...string) (string, int) {
		p := start(t, dir, append([]string{"delete", "--server", s.Info.API}, args...)...)
		<-p.ended
		text, _ := p.out.text()
		return text, p.cmd.ProcessState.ExitCode()
	}
	if text, code := del("own"); code != 2 || !strings.Contains(text, "give the full id, such as own-2") {
		t.Errorf("a name that is not whole: %d %s", code, text)
	}
	if text, code := del(running); code == 0 || !strings.Contains(text, "is running and cannot be deleted") {
		t.Errorf("one that runs: %d %s", code, text)
	}
	for range 2 { // the second time it is not an error either
		if text, code := del(id); code != 0 || !strings.Contains(text, id+" was deleted by local") {
			t.Errorf("delete: %d %s", code, text)
		}
	}
	if text, code := del(running, "--force"); code != 0 {
		t.Errorf("a running sweep, with force: %d %s", code, text)
	}
	check := func() {
		t.Helper()
		for _, gone := range []string{id, running} {
			poll(t, "the checkpoints to go", func() bool { return filesBelow(t, filepath.Join(store, "checkpoints", gone)) == 0 })
			_, err := s.GetSweep(t.Context(), &outbidv1.GetSweepRequest{Sweep: gone})
			if status.Code(err) != codes.NotFound || !strings.Contains(err.Error(), "local deleted it at 20") {
				t.Errorf("%s: %v", gone, err)
			}
			if n := filesBelow(t, filepath.Join(history, gone+".reports")); n != 0 {
				t.Errorf("%s: its reports are kept", gone)
			}
			if _, err := s.logLines(gone); status.Code(err) != codes.NotFound {
				t.Errorf("%s: its logs: %v", gone, err)
			}
			if resp, err := http.Get(s.Info.API + "/v1/sweeps/" + gone); err != nil || resp.StatusCode != http.StatusNotFound {
				t.Errorf("%s: REST: %v, %v", gone, resp, err)
			} else {
				resp.Body.Close()
			}
		}
		if sw := s.sweep(other); sw.GetBest() == nil || filesBelow(t, filepath.Join(store, "checkpoints", other)) == 0 {
			t.Errorf("another sweep lost something: %v", sw)
		}
		if n, _ := s.logLines(other); n == 0 {
			t.Error("another sweep lost its logs")
		}
	}
	check()
	s.kill()
	s = serve(t, dir, "up", "--devices", "cpu:2")
	check()
	if next := s.submit(own.spec(t, locks)); next != "own-3" {
		t.Errorf("the next sweep is %s, want own-3", next)
	}
	s.stop()
}

func TestAFunctionGoesWithTheLastSweepThatUsesIt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := serve(t, dir, "serve", "--nats-listen", "127.0.0.1:0")
	sum := sha256.Sum256([]byte("a function"))
	file := filepath.Join(dir, "data", "store", "blobs", hex.EncodeToString(sum[:]))
	sha, err := s.putBlob([]byte("a function"))
	if err != nil {
		t.Fatal(err)
	}
	own := job{name: "f", tuner: random(3), trials: 2}.bare()
	own.Workload = &outbidv1.SweepSpec_Function{Function: &outbidv1.Function{Blob: sha}}
	first, second := s.submit(own), s.submit(own)
	for i, id := range []string{first, second} {
		if _, err := os.Stat(file); err != nil {
			t.Fatalf("%d were deleted, but the function is missing: %v", i, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		if _, err := s.DeleteSweep(ctx, &outbidv1.DeleteSweepRequest{Sweep: id, Force: true}); err != nil {
			t.Fatal(err)
		}
		cancel()
		s.until(fmt.Sprintf("sweep=%s", id))
	}
	poll(t, "the function to be deleted", func() bool { _, err := os.Stat(file); return errors.Is(err, os.ErrNotExist) })
	s.stop()
}
