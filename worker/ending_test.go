package worker

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/objects"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func TestStoreIsFull(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		o := r.bus.orch
		o.assign(assignment(1, 9, 0))
		x := <-r.starts
		r.store.fail(objects.ErrFull)
		x.save(t, 1)
		o.awaitText(t, 1, "note the checkpoint of step 1 of s-1/1 waits: the store")
		x.report(2) // training continues
		o.awaitText(t, 1, "report 2")
		x.save(t, 2)
		x.saved(t, "1 overtaken by a later checkpoint")
		x.fork.Reached(9)
		pass(time.Minute)
		synctest.Wait()
		if strings.Contains(o.heard(1), "reached") || strings.Contains(o.heard(1), "saved") {
			t.Errorf("it said\n%s", o.heard(1))
		}
		r.store.fail(nil)
		x.saved(t, "2 ")
		o.awaitText(t, 1, "reached 9")
		text := o.heard(1)
		saved, reached := strings.Index(text, "saved 2 "), strings.Index(text, "reached 9")
		if saved < 0 || saved > reached || strings.Contains(text, "saved 1 ") || strings.Count(text, "waits:") != 1 ||
			strings.Count(text, "is stored after 1m") != 1 {
			t.Errorf("it said\n%s", text)
		}
		x.end(finished)
	})
}

// A paused fork keeps its device until its checkpoint is stored. A fork that is stopped, or whose lease has expired,
// does not wait.
func TestEndWaitsForCheckpoint(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		then func(r *rig)
		want string
	}{
		"stored": {func(r *rig) { r.store.fail(nil) }, "saved 1 checkpoints/s-1/1/000000000001-1.safetensors\nended ORDERED at 1\n"},
		"stop":   {func(r *rig) { r.bus.orch.change(1, stop, 0) }, "\nended ORDERED at 1\n"},
		"lease": {
			func(r *rig) {
				r.bus.setCut(true)
				pass(time.Minute)
				r.bus.setCut(false)
			}, "ended EXPIRED at 1: no orders",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, r *rig) {
				o := r.bus.orch
				o.assign(assignment(1, 9, 0))
				x := <-r.starts
				x.report(1)
				x.heard(t, "acked 1")
				r.store.fail(objects.ErrUnavailable)
				o.change(1, pause, 9)
				x.heard(t, "PAUSE 9")
				x.save(t, 1)
				x.end(ordered)
				pass(5 * time.Minute)
				synctest.Wait()
				if strings.Contains(o.heard(1), "ended") {
					t.Fatalf("it said\n%s", o.heard(1))
				}
				o.await(t, "ending", func() bool { return len(o.forks) == 1 && o.forks[0].GetPhase() == "ending" })
				tc.then(r)
				o.awaitText(t, 1, tc.want)
			})
		})
	}
}

func TestPauseIsNotObeyed(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		o := r.bus.orch
		o.assign(assignment(1, 9, 0))
		x := <-r.starts
		o.change(1, pause, 9)
		began := time.Now()
		<-x.killed
		if d := time.Since(began); d != pauseGrace {
			t.Errorf("killed after %s", d)
		}
		o.awaitText(t, 1, "note did not save and end within 2m0s", "ended ORDERED at 0: killed")
	})
}

// A worker that may take its time to stop gives its trials that time too.
func TestDrainGivesTrialsItsTime(t *testing.T) {
	t.Parallel()
	const given = 10 * time.Minute
	synctest.Test(t, func(t *testing.T) {
		r := newRigLogging(t, slog.DiscardHandler, func(err error) {
			if err != nil {
				t.Error(err)
			}
		}, func(l *workerLoop) { l.cfg.DrainTimeout = given })
		o := r.bus.orch
		o.assign(assignment(1, 9, 0))
		x := <-r.starts
		synctest.Wait()
		began := time.Now()
		r.stop()
		x.heard(t, "PAUSE 9")
		pass(given - time.Minute)
		x.save(t, 1)
		x.end(ordered)
		<-r.done
		if d := time.Since(began); d < given-time.Minute || d > given {
			t.Errorf("drained in %s", d)
		}
		o.awaitText(t, 1, "saved 1 ", "ended ORDERED at 0\n")
	})
}

func TestDrain(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		o := r.bus.orch
		o.assign(assignment(1, 9, 0))
		o.assign(assignment(2, 9, 1))
		x, y := <-r.starts, <-r.starts
		if x.fork.ref.GetLeaseId() == 2 {
			x, y = y, x
		}
		synctest.Wait()
		began := time.Now()
		r.stop()
		x.heard(t, "PAUSE 9")
		y.heard(t, "PAUSE 9")
		o.change(1, train, 10) // ignored by now
		o.assign(assignment(3, 9, 2))
		x.report(1)
		x.save(t, 1)
		x.end(ordered)
		<-r.done // the other ignores the order
		if d := time.Since(began); d != defaultDrain {
			t.Errorf("drained in %s", d)
		}
		o.await(t, "goodbye", func() bool { return o.leaving })
		if len(r.starts) != 0 {
			t.Errorf("%d starts", len(r.starts))
		}
		o.awaitText(t, 1, "saved 1 ", "ended ORDERED at 1\n")
		o.awaitText(t, 2, "ended ORDERED at 0: the worker is stopping\n")
	})
}

// A worker leaves even if no orchestrator receives its last messages.
func TestDrainAlone(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		r.bus.orch.assign(assignment(1, 9, 0))
		x := <-r.starts
		synctest.Wait()
		r.bus.setCut(true)
		began := time.Now()
		r.stop()
		x.heard(t, "PAUSE 9")
		x.end(ordered)
		<-r.done
		if d := time.Since(began); d != defaultFlush {
			t.Errorf("left after %s", d)
		}
	})
}

// A function would offer a checkpoint that is too large forever, so its trial fails with the reason.
func TestACheckpointThatIsTooLargeFailsItsTrial(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		o := r.bus.orch
		o.assign(assignment(1, 9, 0))
		x := <-r.starts
		x.fork.cfg.CheckpointBytes = int64(len("weights"))
		x.save(t, 1)
		x.saved(t, "1 ")
		x.fork.cfg.CheckpointBytes--
		x.save(t, 2)
		o.awaitText(t, 1, "saved 1 ", "ended FAILED at 0 ERROR: the checkpoint of step 2 is too large: it has 7 bytes, at most 6")
	})
}

// A checkpoint that is not a regular file of the trial is refused at once, and blocks nothing.
func TestWhatIsNoCheckpointIsRefused(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		r.bus.orch.assign(assignment(1, 9, 0))
		x := <-r.starts
		x.save(t, 1)
		x.saved(t, "1 ")
		at := func(name string) string { return filepath.Join(x.fork.files.dir, name) }
		secret := filepath.Join(t.TempDir(), "secret")
		for _, err := range []error{
			os.WriteFile(secret, []byte("secret"), 0o600), os.Symlink(secret, at("link")), os.Symlink(filepath.Dir(secret), at("dir")),
			syscall.Mkfifo(at("fifo"), 0o600), os.Mkdir(at("sub"), 0o700), os.Symlink("/proc/self/fd", at("fds")),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		for step, name := range []string{"link", "dir/secret", "fifo", "sub", "fds/0", ".", "../1"} {
			x.fork.Saved(&outbidv1.ProcessSaved{Path: at(name), Step: int64(step) + 2})
			select {
			case got := <-x.saves:
				if _, why, _ := strings.Cut(got, " "); why == "" {
					t.Errorf("%s was taken", name)
				}
			case <-time.After(patience):
				t.Fatalf("no answer to %s", name)
			}
		}
		x.end(finished)
		r.bus.orch.awaitText(t, 1, "ended FINISHED")
	})
}

// Training code runs, and may save, before its starter returns.
func TestAnswerToASaveBeforeTheStartReturns(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		r.hold = make(chan struct{})
		r.bus.orch.assign(assignment(1, 9, 0))
		x := <-r.starts
		x.fork.Saved(&outbidv1.ProcessSaved{Path: x.fork.files.dir + "/none", Step: 1})
		synctest.Wait()
		close(r.hold)
		select {
		case got := <-x.saves:
			if !strings.Contains(got, "no such file") {
				t.Error(got)
			}
		case <-time.After(patience):
			t.Error("no answer")
		}
		x.end(finished)
	})
}

func TestCheckpointOutsideScratch(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		r.bus.orch.assign(assignment(1, 9, 0))
		x := <-r.starts
		x.fork.Saved(&outbidv1.ProcessSaved{Path: x.fork.files.dir + "/../../lock", Step: 1})
		select {
		case got := <-x.saves:
			if !strings.Contains(got, "not in the trial's scratch directory") {
				t.Error(got)
			}
		case <-time.After(patience):
			t.Error("no answer")
		}
		x.fork.Saved(&outbidv1.ProcessSaved{Path: x.fork.files.dir + "/none", Step: 1})
		select {
		case got := <-x.saves:
			if !strings.Contains(got, "no such file") {
				t.Error(got)
			}
		case <-time.After(patience):
			t.Error("no answer")
		}
		x.end(finished)
	})
}
