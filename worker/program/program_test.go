package program

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
	"github.com/outbid-dev/outbid/worker/process"
	"github.com/outbid-dev/outbid/worker/subreaper"
	"github.com/outbid-dev/outbid/worker/subreaper/subreapertest"
	"github.com/outbid-dev/outbid/worker/trialfile"
)

const patience = 30 * time.Second

func TestMain(m *testing.M) {
	if subreaper.Main() {
		return
	}
	goleak.VerifyTestMain(m)
}

// recorder is a Trial that records its events.
type recorder struct {
	events chan string
	ended  *outbidv1.ForkEnded
}

func newRecorder() *recorder { return &recorder{events: make(chan string, 1000)} }

func (r *recorder) Reports(reports []*outbidv1.Report) {
	for _, report := range reports {
		r.events <- fmt.Sprintf("report %d loss %v", report.GetStep(), report.GetMetrics()["loss"])
	}
}

func (r *recorder) Packed(s *outbidv1.ProcessSaved) {
	data, err := os.ReadFile(s.GetPath())
	r.events <- fmt.Sprintf("saved %d %.40s %v metric %v", s.GetStep(), strings.TrimSpace(string(data)), err, s.GetMetric())
	_ = os.Remove(s.GetPath()) // as the worker does once it is stored
}
func (r *recorder) Working()           {}
func (r *recorder) Reached(step int64) { r.events <- fmt.Sprintf("reached %d", step) }
func (r *recorder) Note(text string)   { r.events <- "note " + text }
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

// awaitAll waits for events in any order.
func (r *recorder) awaitAll(t *testing.T, want ...string) {
	t.Helper()
	left := slices.Clone(want)
	for len(left) > 0 {
		select {
		case got := <-r.events:
			at := slices.Index(left, got)
			if at < 0 {
				t.Fatalf("heard %q, want %q", got, left)
			}
			left = slices.Delete(left, at, at+1)
		case <-time.After(patience):
			t.Fatalf("never heard %q", left)
		}
	}
}

func (r *recorder) awaitEnd(t *testing.T, outcome outbidv1.ForkOutcome, step int64) {
	t.Helper()
	r.await(t, "ended")
	if r.ended.GetOutcome() != outcome || r.ended.GetStep() != step {
		t.Errorf("ended as %v", r.ended)
	}
}

func newSpec(t *testing.T, until int64, script string) Spec {
	t.Helper()
	host, err := process.Open(t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := host.Close(); err != nil {
			t.Error(err)
		}
	})
	return Spec{
		Host: host, Fork: &outbidv1.ForkRef{Sweep: "s-1", Trial: 4, LeaseId: 9}, Logger: slog.New(slog.DiscardHandler),
		Argv: []string{"sh", "-ec", script}, Env: os.Environ(), Dir: t.TempDir(), ConfigJSON: `{"lr":0.1}`,
		In: subreapertest.Inside(t), Scratch: t.TempDir(), UntilStep: until, Metric: "loss", Seed: 7, Devices: []int32{1, 3},
	}
}

func start(t *testing.T, spec Spec) (*Run, *recorder) {
	t.Helper()
	r := newRecorder()
	run, err := Start(t.Context(), spec, r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		run.Kill()
		run.Wait()
	})
	return run, r
}

// steps trains to its target, and saves where it started and how far it got.
const steps = `
step=$OUTBID_START_STEP
from=$(cat "$OUTBID_CHECKPOINT_IN" 2>/dev/null || echo nothing)
while [ $step -lt $OUTBID_UNTIL_STEP ]; do
  step=$((step+1)); echo "{\"step\": $step, \"loss\": 0.$step}" >> $OUTBID_REPORT
done
echo "$from>$step" > $OUTBID_CHECKPOINT_OUT
`

func TestPromotedInPlace(t *testing.T) {
	t.Parallel()
	run, r := start(t, newSpec(t, 2, steps))
	r.await(t, "report 1 loss 0.1", "report 2 loss 0.2", "saved 2 nothing>2 <nil> metric 0.2", "reached 2")
	run.Direct(outbidv1.Verdict_VERDICT_TRAIN, 2, "") // the same orders again
	run.Direct(outbidv1.Verdict_VERDICT_TRAIN, 3, "")
	r.await(t, "report 3 loss 0.3", "saved 3 nothing>2>3 <nil> metric 0.3", "reached 3")
	run.Direct(outbidv1.Verdict_VERDICT_PAUSE, 3, "")
	r.awaitEnd(t, outbidv1.ForkOutcome_FORK_OUTCOME_ORDERED, 3)
}

func TestStartsFromCheckpoint(t *testing.T) {
	t.Parallel()
	spec := newSpec(t, 6, steps)
	spec.StartStep, spec.Checkpoint = 5, filepath.Join(t.TempDir(), "start")
	if err := os.WriteFile(spec.Checkpoint, []byte("five"), 0o600); err != nil {
		t.Fatal(err)
	}
	run, r := start(t, spec)
	r.await(t, "report 6 loss 0.6", "saved 6 five>6 <nil> metric 0.6", "reached 6")
	run.Direct(outbidv1.Verdict_VERDICT_STOP, 0, "")
	r.awaitEnd(t, outbidv1.ForkOutcome_FORK_OUTCOME_ORDERED, 6)
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	spec := newSpec(t, 0, `grep -q '{"lr":0.1}' $OUTBID_CONFIG
echo "$OUTBID_SWEEP $OUTBID_TRIAL $OUTBID_SEED/$OUTBID_TRIAL_SEED $OUTBID_DEVICES $OUTBID_START_STEP $OUTBID_UNTIL_STEP [$OUTBID_CHECKPOINT_IN]" >&2
echo '{"loss": 1}' >> $OUTBID_REPORT; exit 1`)
	_, r := start(t, spec)
	r.await(t, "report 1 loss 1")
	r.awaitEnd(t, outbidv1.ForkOutcome_FORK_OUTCOME_FAILED, 1)
	if want := "exited with code 1: s-1 4 7/7 1,3 0 0 []"; r.ended.GetDetail() != want {
		t.Errorf("detail %q, want %q", r.ended.GetDetail(), want)
	}
}

func TestEndsByItself(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		until   int64
		script  string
		outcome outbidv1.ForkOutcome
		kind    outbidv1.FailureKind
		detail  string
	}{
		"without target": {0, `echo '{"step":5,"loss":NaN}' >> $OUTBID_REPORT`, outbidv1.ForkOutcome_FORK_OUTCOME_FINISHED, 0, ""},
		"before target":  {9, `printf '{"step":5,"loss":NaN}' >> $OUTBID_REPORT`, outbidv1.ForkOutcome_FORK_OUTCOME_FINISHED, 0, ""},
		"fails": {
			9, `echo '{"step":5,"loss":NaN}' >> $OUTBID_REPORT; echo no room >&2; exit 4`,
			outbidv1.ForkOutcome_FORK_OUTCOME_FAILED, outbidv1.FailureKind_FAILURE_KIND_ERROR, "exited with code 4: no room",
		},
		"killed": {
			9, `echo '{"step":5,"loss":NaN}' >> $OUTBID_REPORT; kill -9 $$`,
			outbidv1.ForkOutcome_FORK_OUTCOME_FAILED, outbidv1.FailureKind_FAILURE_KIND_SIGNAL, "killed by signal 9",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, r := start(t, newSpec(t, tc.until, tc.script))
			r.await(t, "report 5 loss NaN")
			r.awaitEnd(t, tc.outcome, 5)
			if r.ended.GetFailure() != tc.kind || !strings.HasPrefix(r.ended.GetDetail(), tc.detail) {
				t.Errorf("ended as %v", r.ended)
			}
		})
	}
}

// A program that does not check its target is stopped beyond it, and counts as having reached it.
func TestOverrun(t *testing.T) {
	t.Parallel()
	run, r := start(t, newSpec(t, 2, `
trap 'echo late > $OUTBID_CHECKPOINT_OUT; exit 1' TERM
for s in 1 2 3; do echo '{"loss": 1}' >> $OUTBID_REPORT; done
while :; do sleep 0.01; done`))
	r.await(t, "report 1 loss 1", "report 2 loss 1", "report 3 loss 1", "saved 3 late <nil> metric 1", "reached 3")
	run.Direct(outbidv1.Verdict_VERDICT_PAUSE, 2, "")
	r.awaitEnd(t, outbidv1.ForkOutcome_FORK_OUTCOME_ORDERED, 3)
}

func TestPauseSaves(t *testing.T) {
	t.Parallel()
	run, r := start(t, newSpec(t, 100, `
trap 'echo saved > $OUTBID_CHECKPOINT_OUT; exit 143' TERM
echo '{"loss": 1}' >> $OUTBID_REPORT
while :; do sleep 0.01; done`))
	r.await(t, "report 1 loss 1")
	run.Direct(outbidv1.Verdict_VERDICT_PAUSE, 100, "")
	r.await(t, "saved 1 saved <nil> metric 1")
	r.awaitEnd(t, outbidv1.ForkOutcome_FORK_OUTCOME_ORDERED, 1)
}

// The checkpoint of a killed program may be incomplete.
func TestPauseByForceDoesNotSave(t *testing.T) {
	t.Parallel()
	spec := newSpec(t, 100, `
trap '' TERM
echo half > $OUTBID_CHECKPOINT_OUT
echo '{"loss": 1}' >> $OUTBID_REPORT
while :; do sleep 0.01; done`)
	spec.Grace = time.Millisecond
	run, r := start(t, spec)
	r.await(t, "report 1 loss 1")
	run.Direct(outbidv1.Verdict_VERDICT_PAUSE, 100, "")
	r.awaitEnd(t, outbidv1.ForkOutcome_FORK_OUTCOME_ORDERED, 1)
}

func TestCheckpointInReport(t *testing.T) {
	t.Parallel()
	run, r := start(t, newSpec(t, 2, `
if [ -n "$OUTBID_CHECKPOINT_IN" ]; then cat $OUTBID_CHECKPOINT_IN/weights >&2; exit 5; fi
mkdir model; echo first > model/weights
echo '{"step": 1, "loss": 1, "checkpoint": "model"}' >> $OUTBID_REPORT
echo '{"step": 2, "loss": 1}' >> $OUTBID_REPORT`))
	if heard := r.heardUntil(t, "reached 2"); !strings.Contains(heard, "\nsaved 1 "+trialfile.DirectoryMark) || !strings.Contains(heard, "report 2 loss 1") {
		t.Fatalf("heard\n%s", heard)
	}
	run.Direct(outbidv1.Verdict_VERDICT_TRAIN, 4, "")
	r.await(t, "ended")
	if r.ended.GetDetail() != "exited with code 5: first" {
		t.Errorf("ended as %v", r.ended)
	}
}

func TestBadLinesAreNotedOnce(t *testing.T) {
	t.Parallel()
	_, r := start(t, newSpec(t, 0, `
printf '{"loss": 1}\n{}\n{}\n{"loss": 2}\n{"step": -3, "loss": 1}\n' >> $OUTBID_REPORT
echo '{"loss": 3, "checkpoint": "none"}' >> $OUTBID_REPORT`))
	var got []string
	for len(got) == 0 || got[len(got)-1] != "ended" {
		select {
		case e := <-r.events:
			got = append(got, e)
		case <-time.After(patience):
			t.Fatalf("got %q", got)
		}
	}
	text := strings.Join(got, "\n")
	for _, want := range []string{
		"line 2 of the report file was not understood: no metric", "line 5 of the report file was not understood: step is -3",
		"the checkpoint of step 3 was not saved: open /", "report 2 loss 2",
	} {
		if strings.Count(text, want) != 1 {
			t.Errorf("got\n%s\nwant %q once", text, want)
		}
	}
	if strings.Contains(text, "line 3") {
		t.Errorf("noted twice:\n%s", text)
	}
}

func TestKill(t *testing.T) {
	t.Parallel()
	run, r := start(t, newSpec(t, 1, `echo '{"loss": 1}' >> $OUTBID_REPORT; while :; do sleep 0.01; done`))
	r.await(t, "report 1 loss 1")
	run.Kill()
	r.awaitEnd(t, outbidv1.ForkOutcome_FORK_OUTCOME_FAILED, 1)
	waits, r2 := start(t, newSpec(t, 1, steps))
	r2.await(t, "report 1 loss 0.1", "saved 1 nothing>1 <nil> metric 0.1", "reached 1")
	waits.Kill()
	r2.awaitEnd(t, outbidv1.ForkOutcome_FORK_OUTCOME_FAILED, 1)
}

func TestStartFails(t *testing.T) {
	t.Parallel()
	spec := newSpec(t, 1, "")
	spec.Argv = []string{"no-such-program"}
	if _, err := Start(t.Context(), spec, newRecorder()); err == nil || !strings.Contains(err.Error(), "not in the PATH") {
		t.Errorf("missing program: %v", err)
	}
	spec = newSpec(t, 1, "")
	spec.Scratch = filepath.Join(spec.Scratch, "none")
	if _, err := Start(t.Context(), spec, newRecorder()); err == nil || !strings.Contains(err.Error(), "scratch") {
		t.Errorf("missing scratch: %v", err)
	}
}

// Exit codes, signals, output, stops and grace are the same with a subreaper.
func TestTheSameBelowASubreaper(t *testing.T) {
	t.Parallel()
	subreapertest.Again(t, "^Test")
}
