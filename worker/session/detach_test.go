package session

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// slow is a trial that does not read its orders until its gate is opened.
type slow struct {
	*recorder

	sess *Session
	gate string
	over chan struct{}
}

func beginSlow(t *testing.T, s *Server, sp Spec) *slow {
	t.Helper()
	dir := t.TempDir()
	x := &slow{recorder: newRecorder(), gate: filepath.Join(dir, "fifo"), over: make(chan struct{})}
	if err := syscall.Mkfifo(x.gate, 0o600); err != nil {
		t.Fatal(err)
	}
	x.sess = begin(t, s, sp, assignment(0, 0, "slow", dir), x.recorder)
	return x
}

func (x *slow) detach() bool { return x.sess.Detach(func() { close(x.over) }) }

// open makes it read its orders.
func (x *slow) open(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(x.gate, []byte("go"), 0); err != nil {
		t.Fatal(err)
	}
}

func (x *slow) awaitOver(t *testing.T) {
	t.Helper()
	select {
	case <-x.over:
	case <-time.After(patience):
		t.Fatal("it was never over")
	}
	if len(x.events) > 0 {
		t.Errorf("it received %q after its process was detached", <-x.events)
	}
}

// A detached process finishes its trial and then runs the next one, without a new start.
func TestADetachedProcessIsWarmForTheNextTrial(t *testing.T) {
	t.Parallel()
	s, out := listen(t, nil)
	x := beginSlow(t, s, spec())
	if !x.detach() || x.detach() {
		t.Fatal("it is detached twice")
	}
	x.sess.Kill() // has no effect any more
	given, cancel := context.WithCancelCause(t.Context())
	unwanted := errors.New("not wanted any more")
	cancel(unwanted)
	if _, err := s.Start(given, spec(), assignment(1, 1, "steps", t.TempDir()), newRecorder()); !errors.Is(err, unwanted) {
		t.Fatalf("a canceled wait for it returned %v", err)
	}
	next := newRecorder()
	started := make(chan error, 1)
	go func() {
		_, err := s.Start(t.Context(), spec(), assignment(2, 0, "done", t.TempDir()), next)
		started <- err
	}()
	x.open(t)
	x.awaitOver(t)
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	next.await(t, "ended")
	if n := s.Processes(); n != 1 || strings.Contains(out.text(), "1 stdout") {
		t.Errorf("there are %d processes; they said\n%s", n, out.text())
	}
}

// A detached process is killed if another process needs its devices, if it takes too long, if it is only for that
// trial, and when the server is closed.
func TestADetachedProcessIsKilled(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		timeout time.Duration
		fresh   bool
		then    func(t *testing.T, s *Server) error
	}{
		"another function": {then: func(t *testing.T, s *Server) error {
			t.Helper()
			other := spec()
			other.Function = "other"
			r := newRecorder()
			_, err := s.Start(t.Context(), other, assignment(1, 0, "error", t.TempDir()), r)
			r.await(t, "ended")
			return err
		}},
		"its devices":    {then: func(t *testing.T, s *Server) error { t.Helper(); return s.Free(t.Context(), []int32{0}) }},
		"it takes long":  {timeout: time.Millisecond},
		"fresh":          {fresh: true},
		"the end of all": {then: func(_ *testing.T, s *Server) error { return s.Close() }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := listen(t, nil)
			sp := spec()
			sp.Fresh = tc.fresh
			x := beginSlow(t, s, sp)
			s.cfg.StartTimeout = cmp.Or(tc.timeout, s.cfg.StartTimeout) // it has started by now
			if !x.detach() {
				t.Fatal("it is not detached")
			}
			if tc.then != nil {
				if err := tc.then(t, s); err != nil {
					t.Fatal(err)
				}
			}
			x.awaitOver(t)
		})
	}
}

func TestAProcessThatIsDoneIsNotDetached(t *testing.T) {
	t.Parallel()
	s, _ := listen(t, nil)
	x := beginSlow(t, s, spec())
	x.open(t)
	x.await(t, "ended")
	if x.detach() {
		t.Error("a process whose trial has ended is detached")
	}
}

func TestATrialSaysThatItBegins(t *testing.T) {
	t.Parallel()
	s, _ := listen(t, nil)
	r := newRecorder()
	sess := begin(t, s, spec(), assignment(0, 0, "begins", t.TempDir()), r)
	r.await(t, "began")
	sess.Direct(outbidv1.Verdict_VERDICT_STOP, 0, "")
	r.await(t, "ended")
}
