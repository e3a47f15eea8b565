package program

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// heardUntil returns the events up to a given one.
func (r *recorder) heardUntil(t *testing.T, last string) string {
	t.Helper()
	var heard []string
	deadline := time.After(patience)
	for {
		select {
		case got := <-r.events:
			heard = append(heard, got)
			if strings.HasPrefix(got, last) {
				return strings.Join(heard, "\n")
			}
		case <-deadline:
			t.Fatalf("never got %q; got\n%s", last, strings.Join(heard, "\n"))
		}
	}
}

// A checkpoint that is refused is noted, and the program continues.
func TestWhatIsNoCheckpointIsNoted(t *testing.T) {
	t.Parallel()
	secret, err := os.Create(filepath.Join(t.TempDir(), "another tenant's"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = secret.Close() }) // after the subtests
	for path, want := range map[string]string{
		fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), secret.Fd()): "leads into a kernel file system",
		fmt.Sprintf("/proc/self/fd/%d", secret.Fd()):            "leads into a kernel file system",
		fmt.Sprintf("/dev/fd/%d", secret.Fd()):                  "leads into a kernel file system",
		"/proc/self/environ":                                    "leads into a kernel file system",
		"fds/1":                                                 "leads into a kernel file system",
		"/dev/zero":                                             "is neither a file nor a directory",
		"fifo":                                                  "is neither a file nor a directory",
		"with-fifo":                                             "is neither a file nor a directory",
		"socket":                                                "no such device or address",
		"large":                                                 "is too large: it has 4,097 bytes, at most 4,096",
		"deep":                                                  "more than 100 deep",
		"loop":                                                  "too many links",
		strings.Repeat("x", 5000):                               "file name too long",
	} {
		t.Run(path[:min(len(path), 20)], func(t *testing.T) {
			t.Parallel()
			spec := newSpec(t, 0, `mkfifo fifo; mkdir with-fifo; mkfifo with-fifo/x; ln -s /proc/self/fd fds; ln -s loop loop
head -c 4097 /dev/zero > large; d=deep; for i in $(seq 101); do d=$d/d; done; mkdir -p $d
echo "{\"step\": 1, \"loss\": 1, \"checkpoint\": \"$NAMED\"}" >> $OUTBID_REPORT
echo '{"step": 2, "loss": 2}' >> $OUTBID_REPORT`)
			spec.Env, spec.CheckpointBytes = append(spec.Env, "NAMED="+path), 4096
			l, err := new(net.ListenConfig).Listen(t.Context(), "unix", filepath.Join(spec.Dir, "socket"))
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			_, r := start(t, spec)
			heard := r.heardUntil(t, "ended")
			if !strings.Contains(heard, "note the checkpoint of step 1 was not saved: ") || !strings.Contains(heard, want) ||
				!strings.Contains(heard, "report 2") || strings.Contains(heard, "\nsaved") || strings.Contains(heard, secret.Name()) {
				t.Errorf("got\n%s\nwant %q", heard, want)
			}
			if r.ended.GetOutcome() != outbidv1.ForkOutcome_FORK_OUTCOME_FINISHED {
				t.Errorf("ended as %v", r.ended)
			}
		})
	}
}

// A sparse checkpoint is copied quickly, and reports do not wait for a checkpoint that takes long.
func TestReportsDoNotWaitForACheckpoint(t *testing.T) {
	t.Parallel()
	spec := newSpec(t, 0, `truncate -s 1T hole; mkdir big; truncate -s 1T big/hole
echo '{"step": 1, "loss": 1, "checkpoint": "hole"}' >> $OUTBID_REPORT
echo '{"step": 2, "loss": 2, "checkpoint": "big"}' >> $OUTBID_REPORT
echo '{"step": 3, "loss": 3}' >> $OUTBID_REPORT; exec sleep 600`)
	spec.CheckpointBytes = 1 << 40
	trial := &measured{recorder: newRecorder()}
	run, err := Start(t.Context(), spec, trial)
	if err != nil {
		t.Fatal(err)
	}
	trial.awaitAll(t, "report 1 loss 1", "saved 1", "report 2 loss 2", "report 3 loss 3")
	run.Direct(outbidv1.Verdict_VERDICT_STOP, 0, "") // while a TiB of zeros is being read
	trial.awaitEnd(t, outbidv1.ForkOutcome_FORK_OUTCOME_ORDERED, 3)
	run.Wait()
	left, err := filepath.Glob(filepath.Join(spec.Scratch, "*-2*"))
	if err != nil || len(left) > 0 {
		t.Errorf("a partial copy is left: %v, %v", left, err)
	}
}

// A report file with a hole of many TiB is read to its end, where it has a report.
func TestAHoleInAReportFileIsSkipped(t *testing.T) {
	t.Parallel()
	_, r := start(t, newSpec(t, 0, `echo '{"loss": 1}' >> $OUTBID_REPORT; truncate -s 8T $OUTBID_REPORT
printf '\n{"loss": 2}\n' >> $OUTBID_REPORT`))
	heard := r.heardUntil(t, "ended")
	if !strings.Contains(heard, "report 1 loss 1\n") || !strings.Contains(heard, "report 2 loss 2\n") || !strings.Contains(heard, "line 2 of the report file") {
		t.Errorf("got\n%s", heard)
	}
}

// measured is a recorder that does not read checkpoints.
type measured struct{ *recorder }

func (m *measured) Packed(s *outbidv1.ProcessSaved) { m.events <- fmt.Sprint("saved ", s.GetStep()) }

// A killed or stopped trial ends without delay, even if a large checkpoint or an endless report file is left to read.
func TestATrialEndsWhateverIsLeftToRead(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"a report file of holes":         `truncate -s 8T $OUTBID_REPORT; touch began; exec sleep 600`,
		"a report file that grows":       `touch began; yes '{"loss": 1, "x": "'$(seq -s. 300)'"}' | head -c 300M >> $OUTBID_REPORT; exec sleep 600`,
		"a checkpoint of holes":          `mkdir big; truncate -s 8T big/hole; echo '{"step": 1, "loss": 1, "checkpoint": "big"}' >> $OUTBID_REPORT; touch began; exec sleep 600`,
		"a checkpoint as it ends":        `trap 'exit 0' TERM; mkdir $OUTBID_CHECKPOINT_OUT; truncate -s 8T $OUTBID_CHECKPOINT_OUT/hole; touch began; while :; do sleep .01; done`,
		"a process that ignores SIGTERM": `trap '' TERM; touch began; while :; do sleep .01; done`,
	} {
		for _, how := range []string{"stop", "kill", "pause and kill"} {
			t.Run(name+", "+how, func(t *testing.T) {
				t.Parallel()
				spec := newSpec(t, 0, script)
				spec.CheckpointBytes, spec.Grace = 1<<50, 100*time.Millisecond
				trial := &unheard{ended: make(chan struct{})}
				run, err := Start(t.Context(), spec, trial)
				if err != nil {
					t.Fatal(err)
				}
				awaitFile(t, filepath.Join(spec.Dir, "began"))
				switch how {
				case "stop":
					run.Direct(outbidv1.Verdict_VERDICT_STOP, 0, "")
				case "pause and kill":
					run.Direct(outbidv1.Verdict_VERDICT_PAUSE, 0, "")
					run.Kill()
				default:
					run.Kill()
				}
				select {
				case <-trial.ended:
				case <-time.After(patience):
					t.Fatal("it does not end")
				}
				run.Wait()
			})
		}
	}
}

// unheard is a Trial that only records its end.
type unheard struct{ ended chan struct{} }

func (*unheard) Reports([]*outbidv1.Report)    {}
func (*unheard) Packed(*outbidv1.ProcessSaved) {}
func (*unheard) Working()                      {}
func (*unheard) Reached(int64)                 {}
func (*unheard) Note(string)                   {}
func (u *unheard) Ended(*outbidv1.ForkEnded)   { close(u.ended) }

func awaitFile(t *testing.T, path string) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for {
		if _, err := os.Stat(path); err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("never made: %s", path)
		}
	}
}
