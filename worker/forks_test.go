package worker

import (
	"cmp"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// forkOf returns an assignment of one fork of trial 0 of s-1.
func forkOf(leaseID uint64, until int64) *outbidv1.Assignment {
	a := assignment(leaseID, until, 0)
	a.Fork.Trial = 0
	return a
}

// Two forks of one trial run on two nodes, each under its own lease. They report and save under it and end
// independently, and if one lease expires the other fork is not affected.
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
			t.Errorf("messages under the other's lease: %s", said)
		}

		// Node b is cut off until its lease has expired: its fork ends, the other continues.
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
		b.bus.orch.with(func() { b.bus.orch.assignments = nil }) // its lease has ended
		b.bus.setCut(false)
		b.bus.orch.awaitText(t, 2, "ended EXPIRED at 2")

		// The trial gets another lease on node b, where a new fork starts, while the one on node a runs.
		b.bus.orch.assign(forkOf(3, 9))
		z := <-b.starts
		z.report(1)
		b.bus.orch.awaitText(t, 3, "report 1")

		// Node a ends the fork that it is no longer ordered to run, and node b continues.
		a.bus.orch.drop(1)
		x.hears(t, "STOP")
		x.end(ordered)
		a.bus.orch.awaitText(t, 1, "ended ORDERED")
		z.report(2)
		b.bus.orch.awaitText(t, 3, "report 2")
		if said := b.bus.orch.heard(2); strings.Contains(said, "report 3") || strings.Count(said, "ended") != 1 {
			t.Errorf("messages under the expired lease: %s", said)
		}
		synctest.Wait()
	})
}

// A fork of several that gets an order to pause before its first step ends at once, detached from its process. Its
// files stay until the process is done with them. A fork that has begun, cannot be detached, or is the only one of
// its trial has the usual time for a pause.
func TestALateForkHoldsUpNobody(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		does     func(t *testing.T, x *fakeTraining)
		alone    bool
		verdict  outbidv1.Verdict
		detached bool
	}{
		"has sent nothing":   {detached: true},
		"reported its start": {does: func(_ *testing.T, x *fakeTraining) { x.report(0) }, detached: true},
		"has begun":          {does: func(_ *testing.T, x *fakeTraining) { x.fork.Began() }},
		"reported a step":    {does: func(_ *testing.T, x *fakeTraining) { x.report(1) }},
		"saved a step":       {does: func(t *testing.T, x *fakeTraining) { t.Helper(); x.save(t, 1); x.saved(t, "1 ") }},
		"cannot be detached": {does: func(_ *testing.T, x *fakeTraining) { x.stays = true }},
		"is the only fork":   {alone: true},
		"has to stop":        {verdict: stop},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, r *rig) {
				o, a := r.bus.orch, forkOf(1, 9)
				if !tc.alone {
					a.Body.Part = &outbidv1.ForkPart{Count: 2, Share: 9}
				}
				o.assign(a)
				x := <-r.starts
				if err := os.MkdirAll(x.fork.files.dir, 0o700); err != nil { // as the starter of functions does
					t.Fatal(err)
				}
				if tc.does != nil {
					tc.does(t, x)
				}
				synctest.Wait()
				began := time.Now()
				o.change(1, cmp.Or(tc.verdict, pause), 9)
				if tc.detached {
					o.awaitText(t, 1, "ended ORDERED at 0: it had not begun its first step")
				} else {
					x.hears(t, strings.TrimPrefix(cmp.Or(tc.verdict, pause).String(), "VERDICT_"))
					x.end(ordered)
					o.awaitText(t, 1, "ended ORDERED")
				}
				if d := time.Since(began); d > time.Second {
					t.Errorf("it was ended after %s", d)
				}
				if tc.detached {
					checkFilesOfDetached(t, x)
				}
			})
		})
	}
}

// checkFilesOfDetached checks that the files of a trial whose process was detached stay until the process is done
// with them.
func checkFilesOfDetached(t *testing.T, x *fakeTraining) {
	t.Helper()
	files := x.fork.files.dir
	if _, err := os.Stat(files); err != nil {
		t.Errorf("its files are gone too early: %v", err)
	}
	(<-x.over)()
	if _, err := os.Stat(files); !os.IsNotExist(err) {
		t.Errorf("its files were not removed: %v", err)
	}
}

// hears waits until training code is given a verdict.
func (x *fakeTraining) hears(t *testing.T, verdict string) {
	t.Helper()
	for {
		select {
		case got := <-x.orders:
			if strings.HasPrefix(got, verdict) {
				return
			}
		case <-time.After(patience):
			t.Fatalf("training code was never told to %s", verdict)
		}
	}
}
