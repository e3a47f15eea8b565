package worker

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/outbid-dev/outbid/orchestrator/objects"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

const (
	train    = outbidv1.Verdict_VERDICT_TRAIN
	pause    = outbidv1.Verdict_VERDICT_PAUSE
	stop     = outbidv1.Verdict_VERDICT_STOP
	ordered  = outbidv1.ForkOutcome_FORK_OUTCOME_ORDERED
	finished = outbidv1.ForkOutcome_FORK_OUTCOME_FINISHED
)

// bubble runs a test on virtual time.
func bubble(t *testing.T, f func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newRig(t)) })
}

func (x *fakeTraining) heard(t *testing.T, want ...string) {
	t.Helper()
	for _, w := range want {
		select {
		case got := <-x.orders:
			if got != w {
				t.Fatalf("training code heard %q, want %q", got, w)
			}
		case <-time.After(patience):
			t.Fatalf("training code never heard %q", w)
		}
	}
}

func (x *fakeTraining) saved(t *testing.T, want string) {
	t.Helper()
	select {
	case got := <-x.saves:
		if got != want {
			t.Fatalf("save answered %q, want %q", got, want)
		}
	case <-time.After(patience):
		t.Fatalf("save never answered, want %q", want)
	}
}

// equal compares what a fork said.
func (o *orch) equal(t *testing.T, epoch uint64, want string) {
	t.Helper()
	if got := o.heard(epoch); got != want {
		t.Errorf("fork %d said\n%swant\n%s", epoch, got, want)
	}
}

func TestIntroduction(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		o := r.bus.orch
		o.await(t, "info", func() bool { return o.info != nil })
		if len(o.info.GetDevices()) != 4 || o.info.GetCpus() != 4 || o.info.GetMemoryBytes() != 1<<30 || o.info.GetPid() == 0 {
			t.Errorf("info %v", o.info)
		}
		if string(o.proof) != string(Proof([]byte("key"), "n1", "b")) {
			t.Error("the proof does not fit")
		}
		synctest.Wait()
		var before int
		o.with(func() { o.info, before = nil, o.uplinks })
		time.Sleep(10*time.Second + time.Millisecond)
		synctest.Wait()
		o.with(func() {
			if n := o.uplinks - before; n != 10 || o.info != nil {
				t.Errorf("%d heartbeats in 10 s, info again: %v", n, o.info)
			}
		})
		r.stop()
		<-r.done
		o.await(t, "goodbye", func() bool { return o.leaving })
	})
}

func TestTrialInPlace(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		o := r.bus.orch
		o.assign(assignment(1, 2, 0))
		x := <-r.starts
		x.report(1)
		x.heard(t, "acked 1")
		x.report(2)
		x.save(t, 2)
		x.saved(t, "2 ")
		x.fork.Reached(2)
		o.awaitText(t, 1, "reached 2")
		x.heard(t, "acked 2")
		o.change(1, train, 3)
		x.heard(t, "TRAIN 3")
		x.report(3)
		x.fork.Reached(3)
		o.awaitText(t, 1, "reached 3")
		x.heard(t, "acked 3")
		o.change(1, pause, 3)
		x.heard(t, "PAUSE 3")
		x.end(ordered)
		o.awaitText(t, 1, "ended")
		o.equal(t, 1, `began 0
report 1
report 2
saved 2 checkpoints/s-1/1/000000000002-1.safetensors
reached 2
report 3
reached 3
ended ORDERED at 3
`)
		o.with(func() {}) // the end is acknowledged, and the fork still ordered: it must not start again
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if len(r.starts) != 0 {
			t.Errorf("%d starts", len(r.starts))
		}
		o.await(t, "no forks", func() bool { return len(o.forks) == 0 })
		o.drop(1)
		synctest.Wait()
		if len(r.agent.forks) != 0 {
			t.Error("the fork is remembered for ever")
		}
	})
}

// A target that moves on before the old one is reached is no news for the orchestrator.
func TestReachedIsOldNews(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		o := r.bus.orch
		o.assign(assignment(1, 2, 0))
		x := <-r.starts
		o.change(1, train, 4)
		x.heard(t, "TRAIN 4")
		x.fork.Reached(2)
		x.fork.Reached(4)
		o.awaitText(t, 1, "reached 4")
		o.equal(t, 1, "began 0\nreached 4\n")
		x.end(finished)
		o.awaitText(t, 1, "ended FINISHED at 4")
	})
}

func TestForkNotInOrdersIsStopped(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		o := r.bus.orch
		o.assign(assignment(1, 2, 0))
		x := <-r.starts
		o.drop(1)
		x.heard(t, "STOP 0")
		began := time.Now()
		<-x.killed // it does not listen
		if d := time.Since(began); d != stopGrace {
			t.Errorf("killed after %s", d)
		}
		o.awaitText(t, 1, "ended ORDERED")
	})
}

func TestDevicesHaveOneOwner(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		o := r.bus.orch
		o.assign(assignment(1, 2, 0, 1))
		x := <-r.starts
		o.with(func() { o.assignments = []*outbidv1.Assignment{assignment(2, 2, 1, 2), assignment(3, 2, 3)} })
		if y := <-r.starts; y.fork.ref.GetEpoch() != 3 {
			t.Errorf("fork %d started", y.fork.ref.GetEpoch())
		}
		x.heard(t, "STOP 0")
		synctest.Wait()
		if len(r.starts) != 0 {
			t.Fatal("a device has two owners")
		}
		x.end(ordered)
		if y := <-r.starts; y.fork.ref.GetEpoch() != 2 {
			t.Errorf("fork %d started", y.fork.ref.GetEpoch())
		}
	})
}

func TestLeaseExpires(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		o := r.bus.orch
		o.assign(assignment(1, 2, 0))
		x := <-r.starts
		x.report(1)
		o.awaitText(t, 1, "report 1")
		synctest.Wait()
		r.bus.setCut(true)
		x.report(2)
		cut := time.Now()
		<-x.killed
		if d := time.Since(cut); d > o.lease || d < o.lease-beatEvery {
			t.Errorf("killed after %s", d)
		}
		time.Sleep(time.Minute)
		r.bus.setCut(false)
		o.awaitText(t, 1, "ended EXPIRED")
		o.equal(t, 1, "began 0\nreport 1\nreport 2\nended EXPIRED at 2: no word from the orchestrator for the time of the lease\n")
		o.with(func() { o.assignments = []*outbidv1.Assignment{assignment(2, 2, 0)} })
		if y := <-r.starts; y.fork.ref.GetEpoch() != 2 {
			t.Errorf("fork %d", y.fork.ref.GetEpoch())
		}
	})
}

func TestCutIsBridged(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		o := r.bus.orch
		o.assign(assignment(1, 0, 0))
		x := <-r.starts
		x.report(1)
		o.awaitText(t, 1, "report 1")
		r.bus.setCut(true)
		time.Sleep(2 * time.Second)
		x.report(2)
		x.report(3)
		r.bus.setCut(false)
		synctest.Wait()
		o.equal(t, 1, "began 0\nreport 1\nreport 2\nreport 3\n")
		o.with(func() { o.mute = true }) // taken in, but the acknowledgement is lost
		x.report(4)
		time.Sleep(3*resendAfter + time.Millisecond)
		synctest.Wait()
		o.await(t, "repeats", func() bool { return o.repeated >= 2 })
		o.with(func() { o.mute = false })
		synctest.Wait()
		if !r.agent.out.empty() {
			t.Error("not acknowledged")
		}
	})
}

func TestOldOrdersAreIgnored(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		o := r.bus.orch
		o.assign(assignment(1, 0, 0))
		x := <-r.starts
		synctest.Wait()
		for _, old := range []*outbidv1.Orders{
			{Term: 0, Generation: 1000}, {Term: 1, Generation: 1}, {Term: 9, Generation: 1, Boot: "another"},
		} {
			old.Node = "n1"
			if old.Boot == "" {
				old.Boot = "b"
			}
			o.send(old)
			synctest.Wait()
		}
		if len(x.orders) != 0 {
			t.Errorf("training code heard %q", <-x.orders)
		}
		o.with(func() { o.term, o.generation = 2, 0 })
		o.change(1, stop, 0)
		x.heard(t, "STOP 0")
		x.end(ordered)
	})
}

// An orchestrator that has lost its memory of this worker meets a new worker.
func TestHello(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		o := r.bus.orch
		o.assign(assignment(1, 0, 0))
		x := <-r.starts
		o.awaitText(t, 1, "began 0")
		synctest.Wait()
		o.with(func() { o.boot, o.seen, o.messages, o.assignments = "", 0, nil, nil })
		<-x.killed
		o.await(t, "another boot", func() bool { return o.boot == "b-1" })
		o.with(func() { o.assignments = []*outbidv1.Assignment{assignment(1, 0, 0)} })
		y := <-r.starts
		y.report(1)
		o.awaitText(t, 1, "began 0\nreport 1\n")
		y.end(finished)
	})
}

func TestHang(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		o := r.bus.orch
		a := assignment(1, 2, 0)
		a.Body.HangTimeout = durationpb.New(time.Minute)
		o.assign(a)
		x := <-r.starts
		for range 3 {
			time.Sleep(59 * time.Second)
			x.report(1)
		}
		x.fork.Reached(2)
		time.Sleep(5 * time.Minute) // it waits for word, which is no hanging
		synctest.Wait()
		o.change(1, train, 4)
		began := time.Now()
		<-x.killed
		if d := time.Since(began); d != time.Minute {
			t.Errorf("killed after %s", d)
		}
		o.awaitText(t, 1, "ended FAILED at 2 HANG: sent nothing for 1m0s")
	})
}

func TestStartFails(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		o := r.bus.orch
		r.fail = fail(outbidv1.FailureKind_FAILURE_KIND_CHECKPOINT, "it is damaged")
		o.assign(assignment(1, 2, 0))
		o.awaitText(t, 1, "ended FAILED at 0 CHECKPOINT: it is damaged")
		r.fail = errors.New("no such\nprogram")
		o.assign(assignment(2, 2, 0))
		o.awaitText(t, 2, "ended FAILED at 0 START: no such program")
		if strings.Contains(o.heard(2), "began") {
			t.Error("it began")
		}
	})
}

func TestStoppedBeforeItRuns(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		o := r.bus.orch
		r.block = true
		o.assign(assignment(1, 2, 0))
		o.assign(assignment(2, 2, 0)) // waits for its device
		synctest.Wait()
		o.change(2, pause, 2)
		o.awaitText(t, 2, "ended ORDERED at 0")
		o.change(1, stop, 2)
		o.awaitText(t, 1, "ended ORDERED at 0")
		a := assignment(3, 2, 0)
		a.Verdict = stop // revoked before it came here
		o.assign(a)
		o.awaitText(t, 3, "ended ORDERED at 0")
		o.assign(assignment(4, 2, 0))
		synctest.Wait()
		r.bus.setCut(true)
		time.Sleep(time.Minute)
		r.bus.setCut(false)
		o.awaitText(t, 4, "ended EXPIRED at 0")
	})
}

func TestStoreIsFull(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		o := r.bus.orch
		o.assign(assignment(1, 9, 0))
		x := <-r.starts
		r.store.fail(objects.ErrFull)
		x.save(t, 1)
		o.awaitText(t, 1, "note the checkpoint of step 1 of s-1/1 waits: store")
		x.report(2) // training goes on
		o.awaitText(t, 1, "report 2")
		x.save(t, 2)
		x.saved(t, "1 overtaken by a later checkpoint")
		x.fork.Reached(9)
		time.Sleep(time.Minute)
		synctest.Wait()
		if strings.Contains(o.heard(1), "reached") || strings.Contains(o.heard(1), "saved") {
			t.Errorf("it said\n%s", o.heard(1))
		}
		r.store.fail(nil)
		x.saved(t, "2 ")
		o.awaitText(t, 1, "reached 9")
		text := o.heard(1)
		saved, reached := strings.Index(text, "saved 2 "), strings.Index(text, "reached 9")
		if saved < 0 || saved > reached || strings.Contains(text, "saved 1 ") || strings.Count(text, "waits:") != 2 ||
			strings.Count(text, "is stored after 1m") != 1 {
			t.Errorf("it said\n%s", text)
		}
		x.end(finished)
	})
}

// A paused fork keeps its device until its checkpoint is stored; a stopped one does not wait; nor does one whose lease
// is over.
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
				time.Sleep(time.Minute)
				r.bus.setCut(false)
			}, "ended EXPIRED at 1: no word",
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
				time.Sleep(5 * time.Minute)
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

func TestDrain(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		o := r.bus.orch
		o.assign(assignment(1, 9, 0))
		o.assign(assignment(2, 9, 1))
		x, y := <-r.starts, <-r.starts
		if x.fork.ref.GetEpoch() == 2 {
			x, y = y, x
		}
		synctest.Wait()
		began := time.Now()
		r.stop()
		x.heard(t, "PAUSE 9")
		y.heard(t, "PAUSE 9")
		o.change(1, train, 10) // not any more
		o.assign(assignment(3, 9, 2))
		x.report(1)
		x.save(t, 1)
		x.end(ordered)
		<-r.done // the other does not listen
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

// Without an orchestrator to hear the last words the worker leaves all the same.
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

func TestCheckpointOutsideScratch(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		r.bus.orch.assign(assignment(1, 9, 0))
		x := <-r.starts
		x.fork.Saved(&outbidv1.ProcessSaved{Path: x.fork.scratch() + "/../../lock", Step: 1})
		select {
		case got := <-x.saves:
			if !strings.Contains(got, "not in the trial's scratch directory") {
				t.Error(got)
			}
		case <-time.After(patience):
			t.Error("no answer")
		}
		x.fork.Saved(&outbidv1.ProcessSaved{Path: x.fork.scratch() + "/none", Step: 1})
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

func TestHugeReportIsDropped(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		o := r.bus.orch
		o.assign(assignment(1, 9, 0))
		x := <-r.starts
		x.fork.Reports([]*outbidv1.Report{
			{Seq: 1, Step: 1, Metrics: map[string]float64{strings.Repeat("x", maxReportBytes): 1}}, report(2),
		})
		o.awaitText(t, 1, "note the report of step 1 is dropped", "report 2")
		x.end(finished)
	})
}
