package worker

import (
	"context"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/sanitize"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

const (
	// spotEvery is the time between two looks for a spot notice.
	spotEvery = 2 * time.Second
	// orderPatience is how long the worker waits for orders to pause its trials after it has said that the node ends. Then
	// it pauses them by itself.
	orderPatience = 5 * time.Second
)

// spotWatch watches for the notice that the machine is about to be taken away.
type spotWatch struct {
	cfg *Config
	// found receives each new notice, and "" when one was withdrawn.
	found chan string
	// notice is the newest. broken reports that the last look failed.
	notice string
	broken bool
}

// look looks for a notice, and reports whether it has changed. The first failure in a row is logged; meanwhile the last
// notice holds.
func (w *spotWatch) look(ctx context.Context) (changed bool) {
	notice, err := w.cfg.Spot.Look(ctx)
	if err != nil {
		if !w.broken && ctx.Err() == nil {
			w.cfg.Logger.Warn("cannot look for a spot notice; trying again", "error", sanitize.Line(err.Error(), limits.Detail))
			w.broken = true
		}
		return false
	}
	if w.broken {
		w.cfg.Logger.Info("can look for a spot notice again")
		w.broken = false
	}
	changed = notice != w.notice
	w.notice = notice
	return changed
}

// run looks periodically until ctx ends.
func (w *spotWatch) run(ctx context.Context) {
	tick := time.NewTicker(spotEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if !w.look(ctx) {
			continue
		}
		select {
		case w.found <- w.notice:
		case <-ctx.Done():
			return
		}
	}
}

// watchSpot looks for a notice, first before the worker offers its devices.
func (l *workerLoop) watchSpot(ctx context.Context) {
	if l.cfg.Spot == nil {
		return
	}
	w := &spotWatch{cfg: &l.cfg, found: l.noticed}
	if w.look(ctx) {
		l.recordEnding(w.notice)
	}
	l.run.Go(func() { w.run(ctx) })
}

// recordEnding records why the node ends soon, or that it does not because why is "". The server then pauses its trials.
func (l *workerLoop) recordEnding(why string) {
	if l.draining {
		return // it ends anyway
	}
	l.ending, l.pauseAt = why, time.Time{}
	if why == "" {
		l.cfg.Logger.Info("the spot notice was withdrawn")
		return
	}
	l.pauseAt = time.Now().Add(orderPatience)
	l.cfg.Logger.Warn("this node ends soon: its trials save and continue on other nodes", "reason", why)
}

// pauseUnordered pauses the trials of a node that ends soon if no orders to do so have come.
func (l *workerLoop) pauseUnordered() {
	if l.pauseAt.IsZero() || time.Now().Before(l.pauseAt) {
		return
	}
	l.pauseAt = time.Time{}
	for _, f := range l.forks {
		if !f.hasEnded() && f.orders.ordered().verdict == outbidv1.Verdict_VERDICT_TRAIN {
			f.orders.drain(l.ending)
		}
	}
}

// health returns the newest result of the checks. A node that ends soon gets no trials, whatever they say.
func (l *workerLoop) health() *outbidv1.NodeHealth {
	if l.ending == "" {
		return l.checks.last
	}
	return &outbidv1.NodeHealth{
		Unfit: append([]string{l.ending}, l.checks.last.GetUnfit()...), Check: l.checks.last.GetCheck(), Ending: true,
	}
}
