package worker

import (
	"context"
	"errors"
	"slices"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
	"github.com/outbid-dev/outbid/worker/health"
)

const (
	// checkEvery is the time between two checks of a machine; checkAgain is the time while it cannot run trials.
	checkEvery = 10 * time.Second
	checkAgain = 2 * time.Second
)

// checks holds the state of the checks of a worker's machine.
type checks struct {
	// check returns why the machine cannot run trials. If it is nil, the machine is not checked.
	check func(context.Context) []string
	// again requests a check now, and found receives the result of each check. Both are shared.
	again chan struct{}
	found chan []string
	// last is the result of the newest check; nil before the first.
	last *outbidv1.NodeHealth
}

func newChecks() checks { return checks{again: make(chan struct{}, 1), found: make(chan []string)} }

// watch checks the machine periodically until ctx ends.
func (c *checks) watch(ctx context.Context, unfit bool) {
	for {
		pause := checkEvery
		if unfit {
			pause = checkAgain
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-c.again:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		timer.Stop()
		why := c.check(ctx)
		unfit = len(why) > 0
		select {
		case c.found <- why:
		case <-ctx.Done():
			return
		}
	}
}

// recordHealth records the result of a check, and reports whether it has changed.
func (l *workerLoop) recordHealth(unfit []string) bool {
	old := l.checks.last
	l.checks.last = &outbidv1.NodeHealth{Unfit: unfit, Check: old.GetCheck() + 1}
	if slices.Equal(old.GetUnfit(), unfit) {
		return false
	}
	if len(unfit) > 0 {
		l.cfg.Logger.Warn("this machine cannot run new trials", "reasons", unfit)
	} else {
		l.cfg.Logger.Info("this machine can run trials again")
	}
	return true
}

// checkAfter returns a starter that requests a check when a trial did not start because of the machine.
func (c *checks) checkAfter(start func(context.Context, *fork) (training, error)) func(context.Context, *fork) (training, error) {
	return func(ctx context.Context, f *fork) (training, error) {
		t, err := start(ctx, f)
		if kindOf(err) == outbidv1.FailureKind_FAILURE_KIND_NODE {
			poke(c.again)
		}
		return t, err
	}
}

// kindOf returns the kind of failure that an error at the start of a trial is.
func kindOf(err error) outbidv1.FailureKind {
	switch f := (*failure)(nil); {
	case err == nil:
		return outbidv1.FailureKind_FAILURE_KIND_UNSPECIFIED
	case errors.As(err, &f):
		return f.kind
	case health.OfNode(err):
		return outbidv1.FailureKind_FAILURE_KIND_NODE
	}
	return outbidv1.FailureKind_FAILURE_KIND_START
}
