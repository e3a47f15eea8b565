package worker

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// forkOf is an assignment of one fork of trial 0 of s-1.
func forkOf(leaseID uint64, until int64) *outbidv1.Assignment {
	a := assignment(leaseID, until, 0)
	a.Fork.Trial = 0
	return a
}

// Two forks of one trial run on two nodes, each under its own lease: they report and save under it, end on their own, and
// one whose lease is over is ended without the other's noticing.
func TestTwoForksOfATrialOnTwoNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := newRig(t), newRig(t)
		a.bus.orch.assign(forkOf(1, 9))
		b.bus.orch.assign(forkOf(2, 9))
		x, y := <-a.starts, <-b.starts
		x.report(1)
		y.report(1)
		y.report(2)
		x.save(t, 1)
		x.saved(t, "1 ")
		y.save(t, 2)
		y.saved(t, "2 ")
		a.bus.orch.awaitText(t, 1, "saved 1 checkpoints/s-1/0/000000000001-1.")
		b.bus.orch.awaitText(t, 2, "saved 2 checkpoints/s-1/0/000000000002-2.")
		if said := a.bus.orch.heard(2) + b.bus.orch.heard(1); said != "" {
			t.Errorf("under the other's lease was said %s", said)
		}

		// Node b is cut off until its lease is over: its fork ends, the other goes on.
		b.bus.setCut(true)
		<-y.killed
		x.report(2)
		a.bus.orch.awaitText(t, 1, "report 2")
		select {
		case <-x.killed:
			t.Error("the fork on node a was ended")
		default:
		}
		pass(time.Minute)
		b.bus.orch.with(func() { b.bus.orch.assignments = nil }) // its lease is nobody's any more
		b.bus.setCut(false)
		b.bus.orch.awaitText(t, 2, "ended EXPIRED at 2")

		// The trial gets another lease on node b, which starts anew beside the one on node a.
		b.bus.orch.assign(forkOf(3, 9))
		z := <-b.starts
		z.report(1)
		b.bus.orch.awaitText(t, 3, "report 1")

		// What node a is not ordered to do any more it ends, and node b goes on.
		a.bus.orch.drop(1)
		heardStop(t, x)
		x.end(ordered)
		a.bus.orch.awaitText(t, 1, "ended ORDERED")
		z.report(2)
		b.bus.orch.awaitText(t, 3, "report 2")
		if said := b.bus.orch.heard(2); strings.Contains(said, "report 3") || strings.Count(said, "ended") != 1 {
			t.Errorf("under the lease that is over was said %s", said)
		}
		synctest.Wait()
	})
}

// heardStop waits until training code was told to stop.
func heardStop(t *testing.T, x *fakeTraining) {
	t.Helper()
	for {
		select {
		case got := <-x.orders:
			if strings.HasPrefix(got, "STOP") {
				return
			}
		case <-time.After(patience):
			t.Fatal("training code was never told to stop")
		}
	}
}
