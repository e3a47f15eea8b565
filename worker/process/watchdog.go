package process

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/outbid-dev/outbid/worker/confine"
	"github.com/outbid-dev/outbid/worker/proctable"
)

// The watchdog is another process of this program that ends the trials of its worker when the worker cannot: when the
// worker's lease expires while the worker is paused or hangs, and when the worker is gone. Otherwise the trials would
// continue, with their effects on the outside, while the server runs them again on another node.

// WatchdogMargin is how long after the end of a lease the watchdog ends the trials. A worker that runs has ended them by
// then. It is less than the margin of the server (nodes.LeaseMargin), which then gives the trials to other nodes.
const WatchdogMargin = time.Second

const (
	// watchdogName is the name (argv[0]) of a watchdog, which WatchdogMain recognises.
	watchdogName = "outbid-watchdog"
	// watchdogAgain is the time between two attempts to end trials, or to start a watchdog that was killed.
	watchdogAgain = 200 * time.Millisecond
	// watchdogIdle is how often the watchdog of a worker without a lease looks for one.
	watchdogIdle = time.Second
)

// watchdogReady is set once WatchdogMain was called, so that this program can be started again as a watchdog.
var watchdogReady atomic.Bool //nolint:gochecknoglobals // a property of the program

// Token identifies the worker in its records and in the environment of its processes.
func (h *Host) Token() string { return h.token }

// Renew gives the worker's processes until a time. Without it the watchdog ends them only if the worker is gone.
func (h *Host) Renew(until time.Time) {
	if h.dog != nil {
		h.dog.renew(time.Until(until) + WatchdogMargin)
	}
}

// Bites returns how often the watchdog has begun to end the worker's processes because the lease was not renewed.
func (h *Host) Bites() int64 {
	if h.dog == nil {
		return 0
	}
	return h.dog.bites()
}

// endAll ends all processes of the worker with a token that used a directory, and those below its subreapers. It stops
// early once stop returns true.
func endAll(dir, token string, stop func() bool) error {
	h := &Host{dir: dir}
	old, err := h.load()
	if err != nil || old == nil || old.Token != token {
		return err // the next worker has the directory, and has ended them
	}
	tellReapers(old)
	err = proctable.KillAll(func() ([]int, error) {
		pids, err := leftovers(*old)
		if stop() { // after they were listed: later ones belong to a later lease
			return nil, nil
		}
		return pids, err
	}, time.Now().Add(proctable.Timeout))
	return errors.Join(err, confine.EndTrials(dir, token, stop))
}
