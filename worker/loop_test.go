package worker

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

const (
	train    = outbidv1.Verdict_VERDICT_TRAIN
	pause    = outbidv1.Verdict_VERDICT_PAUSE
	stop     = outbidv1.Verdict_VERDICT_STOP
	ordered  = outbidv1.ForkOutcome_FORK_OUTCOME_ORDERED
	finished = outbidv1.ForkOutcome_FORK_OUTCOME_FINISHED
)

// pass lets virtual time pass.
func pass(d time.Duration) { <-time.After(d) }

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
				t.Fatalf("training code got %q, want %q", got, w)
			}
		case <-time.After(patience):
			t.Fatalf("training code never got %q", w)
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

// equal compares the messages of a fork.
func (o *orch) equal(t *testing.T, leaseID uint64, want string) {
	t.Helper()
	if got := o.heard(leaseID); got != want {
		t.Errorf("fork %d said\n%swant\n%s", leaseID, got, want)
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
		synctest.Wait()
		var before int
		o.with(func() { o.info, before = nil, o.uplinks })
		pass(10*time.Second + time.Millisecond)
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

// A worker sends fewer heartbeats if its orders say so, but one within a second after a change.
func TestFewerHeartbeats(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, r *rig) {
		o := r.bus.orch
		o.await(t, "info", func() bool { return o.info != nil })
		var before int
		o.with(func() { o.beat, before = 3*time.Second, o.uplinks })
		pass(30*time.Second + time.Millisecond)
		synctest.Wait()
		o.with(func() {
			if n := o.uplinks - before; n < 9 || n > 11 {
				t.Errorf("%d heartbeats in 30 s, want one in 3 s", n)
			}
		})
		pass(time.Second)
		o.assign(assignment(1, 2, 0))
		<-r.starts
		pass(beatEvery + time.Millisecond)
		synctest.Wait()
		o.with(func() {
			if len(o.forks) != 1 {
				t.Errorf("a second after its assignment the worker says %v", o.forks)
			}
		})
		o.with(func() { o.beat = 0 })
		synctest.Wait()
		o.with(func() { before = o.uplinks })
		pass(10*time.Second + time.Millisecond)
		synctest.Wait()
		o.with(func() {
			if n := o.uplinks - before; n != 10 {
				t.Errorf("%d heartbeats in 10 s, want 10", n)
			}
		})
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
		mustBe(t, r.store, o.last(1))
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
		o.with(func() {}) // the end is acknowledged and the fork is still ordered: it must not start again
		pass(3 * time.Second)
		synctest.Wait()
		if len(r.starts) != 0 {
			t.Errorf("%d starts", len(r.starts))
		}
		o.await(t, "no forks", func() bool { return len(o.forks) == 0 })
		o.drop(1)
		synctest.Wait()
		if len(r.loop.forks) != 0 {
			t.Error("the fork is never forgotten")
		}
	})
}

// If a target is extended before it is reached, the old one is not reported as reached.
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
		<-x.killed // it ignores the order
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
		if y := <-r.starts; y.fork.ref.GetLeaseId() != 3 {
			t.Errorf("fork %d started", y.fork.ref.GetLeaseId())
		}
		x.heard(t, "STOP 0")
		synctest.Wait()
		if len(r.starts) != 0 {
			t.Fatal("a device has two owners")
		}
		x.end(ordered)
		if y := <-r.starts; y.fork.ref.GetLeaseId() != 2 {
			t.Errorf("fork %d started", y.fork.ref.GetLeaseId())
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
		pass(time.Minute)
		r.bus.setCut(false)
		o.awaitText(t, 1, "ended EXPIRED")
		o.equal(t, 1, "began 0\nreport 1\nreport 2\nended EXPIRED at 2: no orders from the orchestrator for the duration of the lease\n")
		o.with(func() { o.assignments = []*outbidv1.Assignment{assignment(2, 2, 0)} })
		if y := <-r.starts; y.fork.ref.GetLeaseId() != 2 {
			t.Errorf("fork %d", y.fork.ref.GetLeaseId())
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
		pass(2 * time.Second)
		x.report(2)
		x.report(3)
		r.bus.setCut(false)
		synctest.Wait()
		o.equal(t, 1, "began 0\nreport 1\nreport 2\nreport 3\n")
		o.with(func() { o.mute = true }) // the uplink arrives, but the acknowledgement is lost
		x.report(4)
		pass(3*resendAfter + time.Millisecond)
		synctest.Wait()
		o.await(t, "repeats", func() bool { return o.repeated >= 2 })
		o.with(func() { o.mute = false })
		synctest.Wait()
		if !r.loop.out.empty() {
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
		o.with(func() {}) // sends the same again: the first orders are outdated now
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
			t.Errorf("training code got %q", <-x.orders)
		}
		o.with(func() { o.term, o.generation = 2, 0 })
		o.change(1, stop, 0)
		x.heard(t, "STOP 0")
		x.end(ordered)
	})
}

// An orchestrator that has lost its state of this worker gets a new boot.
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
			pass(59 * time.Second)
			x.report(1)
		}
		x.fork.Reached(2)
		pass(5 * time.Minute) // it waits for an order, which is not a hang
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
		o.awaitText(t, 2, "ended FAILED at 0 START: no such program (node n1)")
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
		a.Verdict = stop // revoked before it arrived
		o.assign(a)
		o.awaitText(t, 3, "ended ORDERED at 0")
		o.assign(assignment(4, 2, 0))
		synctest.Wait()
		r.bus.setCut(true)
		pass(time.Minute)
		r.bus.setCut(false)
		o.awaitText(t, 4, "ended EXPIRED at 0")
	})
}
