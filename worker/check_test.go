package worker

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// A worker checks its machine before it offers its devices, then periodically, and at once after a trial did not
// start because of the machine. Every uplink has the result of the last check.
func TestChecksOfTheMachine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		unfit := []string{"disk of /data: full"}
		find := func(why ...string) {
			mu.Lock()
			defer mu.Unlock()
			unfit = why
		}
		r := newRigLogging(t, slog.DiscardHandler, func(err error) {
			if err != nil {
				t.Error(err)
			}
		}, func(a *workerLoop) {
			a.train = a.checks.checkAfter(a.train)
			a.checks.check = func(context.Context) []string {
				mu.Lock()
				defer mu.Unlock()
				return unfit
			}
		})
		says := func(want string, check uint64) {
			t.Helper()
			synctest.Wait()
			h := r.bus.orch.healthSaid()
			if got := strings.Join(h.GetUnfit(), "; "); got != want || h.GetCheck() != check {
				t.Errorf("after check %d it said %q, want %q after check %d", h.GetCheck(), got, want, check)
			}
		}
		synctest.Wait()
		if first := r.bus.orch.healthWithDevices(); len(first.GetUnfit()) != 1 {
			t.Errorf("with its devices it said %v", first)
		}
		says("disk of /data: full", 1)
		find()
		<-time.After(checkAgain + time.Millisecond)
		says("", 2)
		<-time.After(checkEvery - checkAgain)
		says("", 2)
		<-time.After(checkAgain + beatEvery)
		says("", 3)

		r.fail = fail(outbidv1.FailureKind_FAILURE_KIND_NODE, "no room left")
		find("no room")
		r.bus.orch.assign(assignment(1, 9, 0))
		r.bus.orch.awaitText(t, 1, "no room left")
		says("no room", 4)
	})
}

// healthSaid returns the result of the worker's checks in its last uplink.
func (o *orch) healthSaid() *outbidv1.NodeHealth {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.health[len(o.health)-1]
}

// healthWithDevices returns the result of the checks when the worker introduced itself.
func (o *orch) healthWithDevices() *outbidv1.NodeHealth {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.health[o.introduced-1]
}
