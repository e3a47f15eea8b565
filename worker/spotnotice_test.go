package worker

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// fakeSpot is a source of notices that a test sets.
type fakeSpot struct {
	mu     sync.Mutex
	notice string
	err    error
}

func (s *fakeSpot) Look(context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.notice, s.err
}

func (s *fakeSpot) set(notice string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notice, s.err = notice, err
}

// spotRig runs a test with a worker that looks for notices in a source.
func spotRig(t *testing.T, notice string, f func(t *testing.T, r *rig, s *fakeSpot, logged *record)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, logged := &fakeSpot{notice: notice}, &record{}
		r := newRigLogging(t, slog.NewTextHandler(logged, nil), func(err error) {
			if err != nil {
				t.Error(err)
			}
		}, func(l *workerLoop) {
			l.cfg.Spot = s
			l.checks.check = func(context.Context) []string { return nil }
		})
		pass(spotEvery / 4) // so that the test changes nothing at the moment of a look
		f(t, r, s, logged)
	})
}

// saysEnding fails the test unless the worker's last uplink said why the node ends.
func (r *rig) saysEnding(t *testing.T, want string) {
	t.Helper()
	synctest.Wait()
	h := r.bus.orch.healthSaid()
	if got := strings.Join(h.GetUnfit(), "; "); got != want || h.GetEnding() != (want != "") || h.GetCheck() == 0 {
		t.Errorf("it said %v, want %q", h, want)
	}
}

// A notice is said at once, and the trials are left to the server's orders. A notice can be withdrawn.
func TestASpotNoticeIsSaid(t *testing.T) {
	t.Parallel()
	spotRig(t, "", func(t *testing.T, r *rig, s *fakeSpot, _ *record) {
		r.bus.orch.assign(assignment(1, 9, 0))
		x := <-r.starts
		r.saysEnding(t, "")
		s.set("spot notice: terminate", nil)
		pass(spotEvery)
		r.saysEnding(t, "spot notice: terminate")
		r.bus.orch.change(1, outbidv1.Verdict_VERDICT_PAUSE, 9)
		x.heard(t, "PAUSE 9")
		x.save(t, 3)
		x.end(ordered)
		r.bus.orch.awaitText(t, 1, "saved 3 ", "ended ORDERED")
		s.set("", nil)
		pass(spotEvery)
		r.saysEnding(t, "")
		r.bus.orch.assign(assignment(2, 9, 0))
		y := <-r.starts
		pass(2 * orderPatience)
		y.end(finished)
	})
}

// Trials are paused even if no orders come, but not if they were told to stop already.
func TestASpotNoticeWithoutOrders(t *testing.T) {
	t.Parallel()
	spotRig(t, "", func(t *testing.T, r *rig, s *fakeSpot, _ *record) {
		r.bus.orch.assign(assignment(1, 9, 0))
		x := <-r.starts
		r.bus.orch.with(func() { r.bus.orch.mute = true })
		s.set("spot notice: terminate", nil)
		pass(spotEvery + orderPatience/2)
		if len(x.orders) != 0 {
			t.Error("it did not wait for orders")
		}
		pass(orderPatience)
		x.heard(t, "PAUSE 9")
		x.end(ordered)
		r.bus.orch.awaitText(t, 1, "ended ORDERED at 0")
	})
}

// A worker that starts on a machine with a notice says so with its devices.
func TestASpotNoticeBeforeTheStart(t *testing.T) {
	t.Parallel()
	spotRig(t, "spot notice", func(t *testing.T, r *rig, _ *fakeSpot, _ *record) {
		synctest.Wait()
		if h := r.bus.orch.healthWithDevices(); !h.GetEnding() || h.GetUnfit()[0] != "spot notice" {
			t.Errorf("with its devices it said %v", h)
		}
	})
}

// A source that fails is logged once, and changes nothing.
func TestABrokenSourceOfSpotNotices(t *testing.T) {
	t.Parallel()
	spotRig(t, "", func(t *testing.T, r *rig, s *fakeSpot, logged *record) {
		for range 2 {
			s.set("", errors.New("answers 500"))
			pass(10 * spotEvery)
			s.set("", nil)
			pass(spotEvery)
		}
		if failed, again := logged.count("answers 500"), logged.count("can look for a spot notice again"); failed != 2 || again != 2 {
			t.Errorf("logged %d failures and %d recoveries", failed, again)
		}
		s.set("spot notice: terminate", nil)
		pass(spotEvery)
		s.set("", errors.New("answers 500"))
		pass(2 * spotEvery)
		r.saysEnding(t, "spot notice: terminate")
	})
}

// A worker that is stopped says so before its trials have saved, so that it gets no others.
func TestAStoppingWorkerSaysSo(t *testing.T) {
	t.Parallel()
	spotRig(t, "", func(t *testing.T, r *rig, _ *fakeSpot, _ *record) {
		r.bus.orch.assign(assignment(1, 9, 0))
		x := <-r.starts
		synctest.Wait()
		r.stop()
		x.heard(t, "PAUSE 9")
		r.saysEnding(t, "the worker is stopping")
		x.save(t, 1)
		x.end(ordered)
		<-r.done
		r.bus.orch.awaitText(t, 1, "saved 1 ")
	})
}
