package session

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
	"github.com/outbid-dev/outbid/worker/process"
	"github.com/outbid-dev/outbid/worker/session/sessiontest"
)

const patience = 30 * time.Second

func TestMain(m *testing.M) {
	if sessiontest.Enabled() {
		if os.Getenv("SESSION_TEST") == "deaf" {
			select {}
		}
		if os.Getenv("SESSION_TEST") == "broken" {
			fmt.Fprintln(os.Stderr, "Traceback (most recent call last):\n  File x\nModuleNotFoundError: No module named 'outbid'")
			os.Exit(1)
		}
		if err := sessiontest.Run(context.Background(), train); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// train is the training code of the tests; the configuration selects its behaviour.
func train(t *sessiontest.Trial) error {
	fmt.Printf("\x1eoutbid:%s/%d@%d\n", t.GetFork().GetSweep(), t.GetFork().GetTrial(), t.GetFork().GetLeaseId())
	fmt.Println("training", t.GetConfigJson())
	switch t.GetConfigJson() {
	case "error":
		return errors.New("ValueError: no such\nthing")
	case "crash":
		fmt.Fprintln(os.Stderr, "Traceback (most recent call last):\n  File x\nKeyError: 'lr'\nmore of it")
		os.Exit(1)
	case "slow": // until the test opens the other end
		if _, err := os.ReadFile(filepath.Join(t.GetScratch(), "fifo")); err != nil {
			return err
		}
		fmt.Println("slow", os.Getpid())
	case "begins":
		if err := t.Begin(); err != nil {
			return err
		}
		_, err := t.Wait()
		return err
	case "leave":
		os.Exit(0)
	case "flood":
		return flood(t)
	case "killed":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case "steps":
		for step := int64(1); ; step++ {
			if err := t.Report(step, map[string]float64{"loss": 1 / float64(step)}); err != nil {
				return err
			}
			if step == t.Until {
				if err := t.Save(step, []byte("weights")); err != nil {
					return err
				}
				if err := t.Reached(step); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// recorder is a Trial that records its events.
type recorder struct {
	events chan string
	save   func(*outbidv1.ProcessSaved)
	ended  *outbidv1.ForkEnded
}

func newRecorder() *recorder { return &recorder{events: make(chan string, 100)} }

func (r *recorder) Reports(reports []*outbidv1.Report) {
	for _, report := range reports {
		r.events <- fmt.Sprintf("report %d", report.GetStep())
	}
}

func (r *recorder) LastReports(reports []*outbidv1.Report) {
	r.events <- "last"
	r.Reports(reports)
}

func (r *recorder) Saved(s *outbidv1.ProcessSaved) {
	r.events <- fmt.Sprintf("saved %d", s.GetStep())
	if r.save != nil {
		r.save(s)
	}
}
func (r *recorder) Note(text string)   { r.events <- "note: " + text }
func (r *recorder) Began()             { r.events <- "began" }
func (r *recorder) Waiting()           { r.events <- "waiting" }
func (r *recorder) Reached(step int64) { r.events <- fmt.Sprintf("reached %d", step) }
func (r *recorder) Ended(e *outbidv1.ForkEnded) {
	r.ended = e
	r.events <- "ended"
}

func (r *recorder) await(t *testing.T, want ...string) {
	t.Helper()
	for _, w := range want {
		select {
		case got := <-r.events:
			if got != w {
				t.Fatalf("got %q, want %q", got, w)
			}
		case <-time.After(patience):
			t.Fatalf("never got %q", w)
		}
	}
}

type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) add(fork *outbidv1.ForkRef, stream process.Stream, line []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, fmt.Sprintf("%d %s %s", fork.GetTrial(), stream, line))
}

func (l *lines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.all, "\n")
}

func listen(t *testing.T, change func(*Config)) (*Server, *lines) {
	t.Helper()
	host, err := process.Open(t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var out lines
	cfg := Config{Dir: t.TempDir(), Host: host, Output: out.add, Logger: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&cfg)
	}
	s, err := Listen(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := host.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, &out
}

func spec(env ...string) Spec {
	return Spec{Argv: []string{os.Args[0]}, Env: append(os.Environ(), env...), Devices: []int32{0}}
}

func assignment(trial int32, until int64, what string, dir string) *outbidv1.TrialAssignment {
	return &outbidv1.TrialAssignment{
		Fork:       &outbidv1.ForkRef{Sweep: "s-1", Trial: trial, LeaseId: uint64(trial) + 1},
		ConfigJson: what, UntilStep: until, Scratch: dir,
	}
}

func begin(t *testing.T, s *Server, sp Spec, a *outbidv1.TrialAssignment, r *recorder) *Session {
	t.Helper()
	sess, err := s.Start(t.Context(), sp, a, r)
	if err != nil {
		t.Fatal(err)
	}
	return sess
}

func TestTrialsShareAProcess(t *testing.T) {
	t.Parallel()
	spec := spec()
	s, out := listen(t, nil)
	var sess *Session
	r := newRecorder()
	var trained sync.WaitGroup
	trained.Add(1)
	r.save = func(saved *outbidv1.ProcessSaved) {
		trained.Wait()
		sess.SaveDone(saved.GetStep(), "")
	}
	sess = begin(t, s, spec, assignment(0, 2, "steps", t.TempDir()), r)
	trained.Done()
	r.await(t, "report 1", "report 2", "saved 2", "reached 2")
	sess.Direct(outbidv1.Verdict_VERDICT_TRAIN, 3, "")
	sess.Acked(2)
	r.await(t, "report 3", "saved 3", "reached 3")
	sess.Direct(outbidv1.Verdict_VERDICT_PAUSE, 3, "")
	r.await(t, "ended")
	if r.ended.GetOutcome() != outbidv1.ForkOutcome_FORK_OUTCOME_ORDERED {
		t.Errorf("ended as %v", r.ended)
	}
	first := sess.proc
	for i, tc := range []struct {
		what    string
		outcome outbidv1.ForkOutcome
		detail  string
	}{
		{"nothing", outbidv1.ForkOutcome_FORK_OUTCOME_FINISHED, ""},
		{"error", outbidv1.ForkOutcome_FORK_OUTCOME_FAILED, "ValueError: no such thing"},
		{"nothing", outbidv1.ForkOutcome_FORK_OUTCOME_FINISHED, ""},
	} {
		r := newRecorder()
		sess := begin(t, s, spec, assignment(int32(i)+1, 0, tc.what, ""), r)
		r.await(t, "ended")
		if sess.proc != first {
			t.Error("another process")
		}
		if r.ended.GetOutcome() != tc.outcome || r.ended.GetDetail() != tc.detail {
			t.Errorf("ended as %v", r.ended)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"0 stdout training steps", "2 stdout training error", "3 stdout training nothing"} {
		if !strings.Contains(out.text(), want) {
			t.Errorf("output %q lacks %q", out.text(), want)
		}
	}
	if strings.Contains(out.text(), "outbid:") {
		t.Errorf("a marker shows: %q", out.text())
	}
}

func TestFreshProcesses(t *testing.T) {
	t.Parallel()
	s, _ := listen(t, nil)
	fresh := spec()
	fresh.Fresh = true
	seen := map[*proc]bool{}
	for i := range int32(3) {
		r := newRecorder()
		sess := begin(t, s, fresh, assignment(i, 0, "nothing", ""), r)
		r.await(t, "ended")
		if seen[sess.proc] {
			t.Error("a process ran a second trial")
		}
		seen[sess.proc] = true
		<-sess.proc.gone
	}
	r := newRecorder()
	warm := begin(t, s, spec(), assignment(3, 0, "nothing", ""), r)
	r.await(t, "ended")
	if next := begin(t, s, fresh, assignment(4, 0, "nothing", ""), newRecorder()); next.proc == warm.proc {
		t.Error("a trial that needs a fresh process got a warm one")
	}
}

func TestProcessDies(t *testing.T) {
	t.Parallel()
	s, _ := listen(t, nil)
	for what, want := range map[string]struct {
		kind   outbidv1.FailureKind
		detail string
	}{
		"crash":  {outbidv1.FailureKind_FAILURE_KIND_ERROR, "exited with code 1: KeyError: 'lr'"},
		"leave":  {outbidv1.FailureKind_FAILURE_KIND_ERROR, "exited in the middle of the trial, with exit code 0"},
		"killed": {outbidv1.FailureKind_FAILURE_KIND_SIGNAL, "killed by signal 9: perhaps out of memory"},
	} {
		r := newRecorder()
		begin(t, s, spec(), assignment(0, 0, what, ""), r)
		r.await(t, "ended")
		if r.ended.GetFailure() != want.kind || !strings.Contains(r.ended.GetDetail(), want.detail) ||
			r.ended.GetOutcome() != outbidv1.ForkOutcome_FORK_OUTCOME_FAILED {
			t.Errorf("%s: ended as %v, want %v", what, r.ended, want)
		}
	}
}

func TestKill(t *testing.T) {
	t.Parallel()
	s, _ := listen(t, nil)
	r := newRecorder()
	sess := begin(t, s, spec(), assignment(0, 1, "steps", t.TempDir()), r)
	r.await(t, "report 1", "saved 1")
	sess.Kill()
	r.await(t, "ended")
	if r.ended.GetFailure() != outbidv1.FailureKind_FAILURE_KIND_SIGNAL {
		t.Errorf("ended as %v", r.ended)
	}
	sess.Kill() // has no effect any more
	sess.Direct(outbidv1.Verdict_VERDICT_STOP, 0, "")
	sess.SaveDone(1, "")
}

func TestAnotherFunctionTakesTheDevices(t *testing.T) {
	t.Parallel()
	s, _ := listen(t, nil)
	r := newRecorder()
	one := begin(t, s, spec(), assignment(0, 0, "nothing", ""), r)
	r.await(t, "ended")
	other := spec()
	other.Function = "another"
	r = newRecorder()
	two := begin(t, s, other, assignment(1, 0, "nothing", ""), r)
	r.await(t, "ended")
	select {
	case <-one.proc.process.Done():
	default:
		t.Error("the process that had the device still runs")
	}
	if !one.proc.process.Outcome().OK() {
		t.Errorf("it did not exit cleanly: %v", one.proc.process.Outcome())
	}
	third := spec()
	third.Devices = []int32{1}
	r = newRecorder()
	begin(t, s, third, assignment(2, 0, "nothing", ""), r)
	r.await(t, "ended")
	select {
	case <-two.proc.process.Done():
		t.Error("a process on another device was ended")
	default:
	}
	if n := s.Processes(); n != 2 {
		t.Errorf("%d processes", n)
	}
}

func TestIdleProcessLeaves(t *testing.T) {
	t.Parallel()
	s, _ := listen(t, func(c *Config) { c.IdleAfter = time.Millisecond })
	r := newRecorder()
	sess := begin(t, s, spec(), assignment(0, 0, "nothing", ""), r)
	r.await(t, "ended")
	select {
	case <-sess.proc.gone:
	case <-time.After(patience):
		t.Fatal("the idle process stays")
	}
	if s.Processes() != 0 {
		t.Error("it is still counted")
	}
}

func TestStartFails(t *testing.T) {
	t.Parallel()
	patient, _ := listen(t, nil)
	hasty, _ := listen(t, func(c *Config) { c.StartTimeout = 200 * time.Millisecond })
	missing := spec()
	missing.Argv = []string{"no-such-python"}
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("not wanted any more"))
	for name, tc := range map[string]struct {
		s    *Server
		ctx  context.Context
		spec Spec
		want string
	}{
		"missing":  {patient, t.Context(), missing, `program "no-such-python" is not in the PATH`},
		"broken":   {patient, t.Context(), spec("SESSION_TEST=broken"), "exited with code 1: ModuleNotFoundError: No module named 'outbid'"},
		"deaf":     {hasty, t.Context(), spec("SESSION_TEST=deaf"), "did not attach within 200ms"},
		"canceled": {patient, ended, spec("SESSION_TEST=deaf"), "not wanted any more"},
	} {
		_, err := tc.s.Start(tc.ctx, tc.spec, assignment(0, 0, "nothing", ""), newRecorder())
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
	if patient.Processes() != 0 || hasty.Processes() != 0 {
		t.Error("processes are left")
	}
}

func TestSecret(t *testing.T) {
	t.Parallel()
	s, _ := listen(t, nil)
	for _, secret := range []string{"", "guess"} {
		c, err := sessiontest.Open(t.Context(), s.frames.path, secret)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Next(); err == nil || !strings.Contains(err.Error(), "EOF") {
			t.Errorf("attached with %q: %v", secret, err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// The stream knows what follows a trial's last reports before they are delivered, and an invalid message ends the
// stream.
func TestFrames(t *testing.T) {
	t.Parallel()
	ours, theirs := net.Pipe()
	in := &frameStream{conn: ours, in: bufio.NewReader(ours)}
	message := func(m *outbidv1.AttachRequest) []byte {
		data, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(data))), data...)
	}
	reports := message(&outbidv1.AttachRequest{Kind: &outbidv1.AttachRequest_Reports{Reports: &outbidv1.ReportBatch{}}})
	saved := message(&outbidv1.AttachRequest{Kind: &outbidv1.AttachRequest_Saved{Saved: &outbidv1.ProcessSaved{}}})
	end := message(&outbidv1.AttachRequest{Kind: &outbidv1.AttachRequest_Ended{Ended: &outbidv1.ProcessEnded{}}})
	var writer sync.WaitGroup
	defer writer.Wait()
	writer.Go(func() {
		for _, data := range [][]byte{
			reports, slices.Concat(reports, saved, end), slices.Concat(reports, end), binary.BigEndian.AppendUint32(nil, maxFrame+1),
		} {
			if _, err := theirs.Write(data); err != nil {
				t.Error(err)
			}
		}
	})
	for i, want := range []bool{false, false, true, false, true, false} {
		if _, err := in.Recv(); err != nil || in.EndFollows() != want {
			t.Fatalf("message %d: %v, the end follows: %v", i, err, !want)
		}
	}
	if _, err := in.Recv(); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Fatalf("too long a message: %v", err)
	}
	in.HangUp()
	if err := in.Send(&outbidv1.AttachResponse{}); err == nil {
		t.Fatal("sent when it was over")
	}
}

// A process that has not attached cannot make the server allocate much memory.
func TestALongHelloIsRefused(t *testing.T) {
	t.Parallel()
	ours, theirs := net.Pipe()
	in := &frameStream{conn: ours, in: bufio.NewReader(ours)}
	var writer sync.WaitGroup
	defer writer.Wait()
	writer.Go(func() {
		if _, err := theirs.Write(binary.BigEndian.AppendUint32(nil, maxHello+1)); err != nil {
			t.Error(err)
		}
	})
	if _, err := in.Recv(); err == nil || !strings.Contains(err.Error(), "at most 65536 bytes, got 65537") {
		t.Fatalf("want it refused by its length: %v", err)
	}
}

// FuzzFrames reads arbitrary input: it gives messages or an error, and does not allocate more memory than a message
// may take.
func FuzzFrames(f *testing.F) {
	hello, err := proto.Marshal(&outbidv1.AttachRequest{Kind: &outbidv1.AttachRequest_Hello{Hello: &outbidv1.ProcessHello{Session: "s", Pid: 1}}})
	if err != nil {
		f.Fatal(err)
	}
	framedHello := append(binary.BigEndian.AppendUint32(nil, uint32(len(hello))), hello...)
	f.Add(framedHello)
	f.Add(append(slices.Clone(framedHello), 0, 0, 0, 1, endTag))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0, 0, 0, 9, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		ours, theirs := net.Pipe()
		defer ours.Close() //nolint:errcheck // both ends belong to the test
		var writer sync.WaitGroup
		writer.Go(func() {
			_, _ = theirs.Write(data) // the reader may have hung up
			_ = theirs.Close()
		})
		defer writer.Wait()
		in := &frameStream{conn: ours, in: bufio.NewReader(ours)}
		for got := 0; ; got++ {
			if _, err := in.Recv(); err != nil {
				in.HangUp()
				return
			}
			if got > len(data)/lengthBytes {
				t.Fatalf("%d messages of %d bytes", got, len(data))
			}
			in.EndFollows()
		}
	})
}

func TestLongPath(t *testing.T) {
	t.Parallel()
	s, _ := listen(t, func(c *Config) {
		c.Dir = t.TempDir() + strings.Repeat("/long", 30)
		if err := os.MkdirAll(c.Dir, 0o700); err != nil {
			t.Fatal(err)
		}
	})
	r := newRecorder()
	begin(t, s, spec(), assignment(0, 0, "nothing", ""), r)
	r.await(t, "ended")
}

func TestParseMarker(t *testing.T) {
	t.Parallel()
	ref, ok := parseMarker([]byte("\x1eoutbid:digits-1/17@42\r"))
	if !ok || ref.GetSweep() != "digits-1" || ref.GetTrial() != 17 || ref.GetLeaseId() != 42 {
		t.Errorf("%v %v", ref, ok)
	}
	for _, line := range []string{"", "outbid:a/1@2", "\x1eoutbid:a/1", "\x1eoutbid:a@2", "\x1eoutbid:/1@2", "\x1eoutbid:a/x@2"} {
		if _, ok := parseMarker([]byte(line)); ok {
			t.Errorf("%q is parsed as a marker", line)
		}
	}
}

// A marker only applies to the process's recent trials: code of one tenant must not print into the log of another.
func TestOutputIsOfTheProcessesOwnTrials(t *testing.T) {
	t.Parallel()
	var got []string
	ref := func(sweep string, lease uint64) *outbidv1.ForkRef {
		return &outbidv1.ForkRef{Sweep: sweep, LeaseId: lease}
	}
	o := newOutput(func(f *outbidv1.ForkRef, _ process.Stream, line []byte) {
		got = append(got, fmt.Sprintf("%s %d %s", f.GetSweep(), f.GetLeaseId(), line))
	}, ref("own", 1))
	say := func(line string) { o.line(process.Stdout, []byte(line)) }
	say("\x1eoutbid:victim/0@7")
	say("forged")
	o.begin(ref("own", 2))
	say("\x1eoutbid:own/0@1")
	say("late")
	say("\x1eoutbid:own/0@2")
	say("new")
	say("\x1eoutbid:own/0@7")
	say("still")
	for i := range uint64(2 * recentTrials) {
		o.begin(ref("own", 100+i))
	}
	want := []string{"own 1 \x1eoutbid:victim/0@7", "own 1 forged", "own 1 late", "own 2 new", "own 2 \x1eoutbid:own/0@7", "own 2 still"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if len(o.recent) != recentTrials {
		t.Errorf("%d trials are kept", len(o.recent))
	}
}
