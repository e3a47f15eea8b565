package endtoend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outbid-dev/outbid/orchestrator/objects/objectstest"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// startIn runs the binary in dir with additional environment and an optional wrapper such as unshare. Both execute the
// binary itself, so that signals reach it.
func startIn(t testing.TB, dir string, wrapper, env []string, args ...string) *proc {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	command := append(append([]string{"env"}, env...), wrapper...)
	command = append(append(command, path), args...)
	self, err := exec.LookPath(command[0])
	if err != nil {
		t.Skipf("no env on this machine: %v", err)
	}
	return startCommand(t, dir, self, command[1:]...)
}

// serveIn is serve with additional environment and a wrapper.
func serveIn(t testing.TB, dir string, wrapper, env []string, args ...string) *server {
	t.Helper()
	ready := filepath.Join(t.TempDir(), "ready.json")
	args = append(args, "--data", filepath.Join(dir, "data"), "--ready-file", ready, "--api", "127.0.0.1:0")
	s := &server{proc: startIn(t, dir, wrapper, env, args...)}
	waitFile(t, s.proc, ready)
	s.connect(ready)
	return s
}

// smallDisk returns a wrapper that mounts a disk of the given size on dir, which only the wrapped process sees.
func smallDisk(t testing.TB, dir string, size int) []string {
	t.Helper()
	script := fmt.Sprintf(`mount -t tmpfs -o size=%d none "%s" && exec "$@"`, size, dir)
	flags := []string{"-m"}
	if os.Geteuid() != 0 {
		flags = []string{"-r", "-m"}
	}
	wrapper := append(append([]string{"unshare"}, flags...), "sh", "-c", script, "sh")
	out, err := exec.Command(wrapper[0], append(wrapper[1:], "true")...).CombinedOutput()
	if err != nil {
		t.Skipf("this machine does not let a test mount a disk (%v: %s)", err, bytes.TrimSpace(out))
	}
	return wrapper
}

// inside returns a path as the process sees it.
func (p *proc) inside(path string) string {
	return fmt.Sprintf("/proc/%d/root%s", p.cmd.Process.Pid, path)
}

// notes counts the notes that contain a text, by trial.
func notes(sw *outbidv1.Sweep, what string) map[int32]int {
	found := map[int32]int{}
	for _, n := range sw.GetNotes() {
		if strings.Contains(n.GetText(), what) {
			found[n.GetTrial()]++
		}
	}
	return found
}

// mustTellOnce fails unless at least one trial has such a note, and none has two.
func mustTellOnce(t *testing.T, sw *outbidv1.Sweep, what string) {
	t.Helper()
	told := notes(sw, what)
	if len(told) == 0 {
		t.Errorf("no note contains %q: %v", what, sw.GetNotes())
	}
	for trial, n := range told {
		if n > 1 {
			t.Errorf("trial %d has %[3]d notes with %[2]q: %[4]v", trial, what, n, sw.GetNotes())
		}
	}
}

func TestAFullDiskOfTheStoreCostsNothingButTime(t *testing.T) {
	t.Parallel()
	const disk, checkpoint = 8 << 20, 512 << 10
	dir, locks := t.TempDir(), t.TempDir()
	store := filepath.Join(dir, "store")
	if err := os.Mkdir(store, 0o700); err != nil {
		t.Fatal(err)
	}
	s := serveIn(t, dir, smallDisk(t, store, disk), nil, "up", "--devices", "cpu:2", "--store", store)
	filler := s.inside(filepath.Join(store, "filler"))
	if err := os.WriteFile(filler, make([]byte, disk-checkpoint), 0o600); err != nil {
		t.Fatal(err)
	}
	id := s.submit(job{name: "full", mode: "well", tuner: hyperband(9), env: map[string]string{
		"PACE": "20ms", "CHECKPOINT_BYTES": fmt.Sprint(checkpoint),
	}}.spec(t, locks))
	poll(t, "a note that the store is full", func() bool { return len(notes(s.sweep(id), "no space left")) > 0 })
	before := s.trials(id)
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	sw := s.mustDone(id)
	mustTellOnce(t, sw, "no space left")
	if len(notes(sw, "is stored after")) == 0 {
		t.Errorf("no note that it continued: %v", sw.GetNotes())
	}
	now := s.trials(id)
	for i, trial := range before {
		if now[i].GetRestarts() != 0 || now[i].GetLast().GetStep() < trial.GetLast().GetStep() {
			t.Errorf("trial %d lost its work: %d restarts, step %d, before %d", trial.GetNumber(), now[i].GetRestarts(),
				now[i].GetLast().GetStep(), trial.GetLast().GetStep())
		}
	}
	noTwoOwners(t, locks)
	s.stop()
}

// bucket is a cluster with checkpoints in S3.
type bucket struct {
	*server
	s3    *objectstest.Versity
	env   []string
	dir   string
	store string
}

func newBucket(t *testing.T) *bucket {
	t.Helper()
	b := &bucket{s3: objectstest.StartVersity(t), dir: t.TempDir()}
	b.env = []string{
		"MINIO_ROOT_USER=" + b.s3.User, "MINIO_ROOT_PASSWORD=" + b.s3.Password, "AWS_ACCESS_KEY_ID=",
		"AWS_SECRET_ACCESS_KEY=",
	}
	b.store = "s3://checkpoints/of/outbid?endpoint=" + b.s3.Endpoint
	b.server = serveIn(t, b.dir, nil, b.env, "serve", "--lease", "4s", "--nats-listen", "127.0.0.1:0", "--store", b.store)
	return b
}

// worker starts a worker without store credentials.
func (b *bucket) worker(name, devices string) *proc {
	b.t.Helper()
	return start(b.t, b.dir, "worker", "--nats", b.Info.NATS, "--keys", b.Info.Keys, "--name", name,
		"--devices", devices, "--dir", filepath.Join(b.dir, "worker-"+name))
}

// checkpoint downloads a trial's checkpoint.
func (s *server) checkpoint(id string, trial int32) []byte {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	stream, err := s.GetCheckpoint(ctx, &outbidv1.GetCheckpointRequest{Sweep: id, Trial: trial})
	if err != nil {
		s.t.Fatal(err)
	}
	var data []byte
	for {
		part, err := stream.Recv()
		if err == io.EOF { //nolint:errorlint // gRPC returns io.EOF itself
			return data
		}
		if err != nil {
			s.t.Fatal(err)
		}
		data = append(data, part.GetData()...)
	}
}

func TestASweepKeepsItsCheckpointsInABucket(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	a, other := b.worker("a", "cpu:2"), b.worker("b", "cpu:1")
	locks := t.TempDir()
	id := b.submit(job{name: "bucket", mode: "well", tuner: hyperband(9), env: map[string]string{"CHECKPOINT_BYTES": "100000"}}.spec(t, locks))
	sw := b.mustDone(id)
	best := sw.GetBest()
	data := b.checkpoint(id, best.GetNumber())
	if step := strings.TrimSpace(string(data)); step != fmt.Sprint(best.GetStep()) || len(data) != 100_000 {
		t.Errorf("the best trial did %d steps, but its checkpoint of %d bytes has %s", best.GetStep(), len(data), step)
	}
	out := filepath.Join(b.dir, "best.ckpt")
	get := start(t, b.dir, "best", id, "--checkpoint", out, "--server", b.Info.API)
	<-get.ended
	if file, err := os.ReadFile(out); err != nil || !bytes.Equal(file, data) {
		text, _ := get.out.text()
		t.Errorf("outbid best wrote another file: %d bytes, %v\n%s", len(file), err, text)
	}
	noTwoOwners(t, locks)
	for _, p := range []*proc{a, other, b.proc} {
		p.stop()
		if p.err != nil {
			t.Errorf("%v ended with %v", p.cmd.Args, p.err)
		}
	}
}

// readyz returns the server's public readiness.
func (s *server) readyz() string {
	s.t.Helper()
	resp, err := http.Get(s.Info.API + "/readyz")
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d %s", resp.StatusCode, body)
}

func TestAServerStartsWithoutItsStore(t *testing.T) {
	t.Parallel()
	s3 := objectstest.StartVersity(t)
	s3.Stop(t)
	dir := t.TempDir()
	env := []string{
		"MINIO_ROOT_USER=" + s3.User, "MINIO_ROOT_PASSWORD=" + s3.Password, "AWS_ACCESS_KEY_ID=",
		"AWS_SECRET_ACCESS_KEY=",
	}
	store := "s3://checkpoints/of/outbid?endpoint=" + s3.Endpoint
	s := serveIn(t, dir, nil, env, "serve", "--nats-listen", "127.0.0.1:0", "--store", store)
	s.until("the store is unavailable")
	if got := s.readyz(); !strings.HasPrefix(got, "200") || !strings.Contains(got, `"waits_for":["store"]`) {
		t.Errorf("readyz: %s", got)
	}
	if _, err := s.putBlob([]byte("a function")); status.Code(err) != codes.Unavailable {
		t.Errorf("a function sent while the store is away: %v", err)
	}
	w := startIn(t, dir, nil, env, "worker", "--nats", s.Info.NATS, "--keys", s.Info.Keys, "--name", "a",
		"--devices", "cpu:1", "--dir", filepath.Join(dir, "worker"))
	id := s.submit(job{name: "early", mode: "well", tuner: hyperband(3)}.spec(t, t.TempDir()))
	poll(t, "a note that the store is unavailable", func() bool { return len(notes(s.sweep(id), "waits")) > 0 })
	s3.Start(t)
	s.until("the store answers")
	s.mustDone(id)
	poll(t, "the server not to wait", func() bool { return !strings.Contains(s.readyz(), "waits_for") })
	if _, err := s.putBlob([]byte("a function")); err != nil {
		t.Errorf("a function sent when the store is back: %v", err)
	}
	w.stop()
	s.stop()

	env[1] = "MINIO_ROOT_PASSWORD=another-password"
	wrong := startIn(t, t.TempDir(), nil, env, "serve", "--nats-listen", "127.0.0.1:0", "--api", "127.0.0.1:0", "--store", store)
	<-wrong.ended
	if text, _ := wrong.out.text(); wrong.cmd.ProcessState.ExitCode() == 0 || !strings.Contains(text, "the credentials are wrong") {
		t.Errorf("a store that refuses the credentials: %v\n%s", wrong.err, text)
	}
}

// putBlob uploads a function.
func (s *server) putBlob(data []byte) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	stream, err := s.PutBlob(ctx)
	if err != nil {
		return "", err
	}
	if err := stream.Send(&outbidv1.PutBlobRequest{Data: data}); err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	resp, err := stream.CloseAndRecv()
	return resp.GetSha256(), err
}

func TestABucketThatIsAwayCostsNothingButTime(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	b.worker("a", "cpu:2")
	locks := t.TempDir()
	id := b.submit(job{name: "away", mode: "well", tuner: hyperband(9), env: map[string]string{"PACE": "30ms"}}.spec(t, locks))
	b.waitSteps(id, 8)
	b.s3.Stop(t)
	poll(t, "a note that the store is unavailable", func() bool { return len(notes(b.sweep(id), "waits")) > 0 })
	before := b.trials(id)
	gone := time.Now()
	poll(t, "the outage to last", func() bool { return time.Since(gone) > 12*time.Second })
	b.s3.Start(t)
	sw := b.mustDone(id)
	mustTellOnce(t, sw, "waits")
	now := b.trials(id)
	for i, trial := range before {
		if now[i].GetRestarts() != 0 || now[i].GetStep() < trial.GetStep() {
			t.Errorf("trial %d lost its work: %d restarts, step %d, before %d", trial.GetNumber(), now[i].GetRestarts(),
				now[i].GetStep(), trial.GetStep())
		}
	}
	noTwoOwners(t, locks)
}
