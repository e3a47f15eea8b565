package api

import (
	"context"
	"sync"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

const (
	// watchEvery is the shortest time between two updates of WatchSweep.
	watchEvery = 100 * time.Millisecond
	// watcherCost is what each watcher adds to that interval, so a thousand watchers get two updates per second each.
	// It keeps the server responsive with any number of watchers.
	watcherCost = 500 * time.Microsecond
	// wakeGroups is the number of groups in which the watchers of a sweep wake, one group after the other.
	wakeGroups = 32
	// keptUpdates and keptBytes limit what a feed keeps for slow watchers.
	keptUpdates = 16
	keptBytes   = 4 << 20
)

// feeds reads each watched sweep once for all of its watchers.
type feeds struct {
	control Control

	mu       sync.Mutex
	open     map[feedKey]*feed
	watchers int
}

type feedKey struct {
	sweep   string
	reports bool
}

// position is a watcher's position: the sweep's version, and the number of reports sent.
type position struct {
	version uint64
	reports int64
}

// update is what changed between two places.
type update struct {
	from, to position
	sweep    *outbidv1.Sweep
	reports  []*outbidv1.TrialReport
	messages []*encoded
	bytes    int
	ended    bool
}

// feed produces the updates of one sweep while it has watchers.
type feed struct {
	key     feedKey
	control Control
	pace    func() time.Duration
	stop    context.CancelFunc
	done    chan struct{}
	users   int // users counts the current watchers, joined all watchers ever; guarded by feeds.mu
	joined  int

	mu      sync.Mutex
	first   int // the number of updates[0]
	updates []*update
	bytes   int
	changed chan struct{} // closed at the next update or the end
	err     error
}

func newFeeds(c Control) *feeds { return &feeds{control: c, open: map[feedKey]*feed{}} }

// join returns the feed of a sweep, and the turn of the caller among its watchers. A new feed starts at the given
// position. The caller must call leave.
func (f *feeds) join(key feedKey, at position) (one *feed, turn int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watchers++
	one = f.open[key]
	if one == nil || one.over() {
		ctx, stop := context.WithCancel(context.Background())
		one = &feed{
			key: key, control: f.control, pace: f.pace, stop: stop, done: make(chan struct{}), changed: make(chan struct{}),
		}
		f.open[key] = one
		go one.run(ctx, at)
	}
	one.users++
	one.joined++
	return one, one.joined % wakeGroups
}

func (f *feeds) leave(one *feed) {
	f.mu.Lock()
	f.watchers--
	one.users--
	last := one.users == 0
	if last && f.open[one.key] == one {
		delete(f.open, one.key)
	}
	f.mu.Unlock()
	if last {
		one.stop()
		<-one.done
	}
}

// pace returns the time between two updates.
func (f *feeds) pace() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return max(watchEvery, time.Duration(f.watchers)*watcherCost)
}

func (f *feed) over() bool {
	select {
	case <-f.done:
		return true
	default:
		return false
	}
}

func (f *feed) run(ctx context.Context, at position) {
	defer close(f.done)
	for first := true; ; first = false {
		began := time.Now()
		u, next, err := f.changesSince(ctx, at)
		if err == nil && (!first || u.to != u.from || u.ended) { // the first watcher already knows this state
			at = u.to
			f.publish(u)
		}
		if err != nil || u.ended {
			f.end(err)
			return
		}
		if !wait(ctx, next) || !waitUntil(ctx, began.Add(f.pace())) {
			f.end(ctx.Err())
			return
		}
	}
}

func wait(ctx context.Context, c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	case <-ctx.Done():
		return false
	}
}

func waitUntil(ctx context.Context, t time.Time) bool {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// changesSince returns what changed since a position.
func (f *feed) changesSince(ctx context.Context, at position) (*update, <-chan struct{}, error) {
	v, err := lookAt(f.control, f.key.sweep, at.version)
	if err != nil {
		return nil, nil, err
	}
	u := &update{from: at, to: position{v.version, at.reports}, sweep: v.sweep, ended: sweepEnded(v.sweep.GetState())}
	if f.key.reports {
		err = f.control.ReportsAfter(ctx, f.key.sweep, at.reports, func(trial int32, r *outbidv1.Report) error {
			u.reports = append(u.reports, &outbidv1.TrialReport{Trial: trial, Report: r})
			return nil
		})
		if err != nil {
			return nil, nil, err
		}
		u.to.reports += int64(len(u.reports))
	}
	u.messages, err = chunks(v.sweep, v.trials, u.reports)
	for _, m := range u.messages {
		u.bytes += len(m.data)
	}
	return u, v.next, err
}

func (f *feed) publish(u *update) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.updates, f.bytes = append(f.updates, u), f.bytes+u.bytes
	for len(f.updates) > 1 && (len(f.updates) > keptUpdates || f.bytes > keptBytes) {
		f.bytes -= f.updates[0].bytes
		f.updates[0] = nil
		f.updates, f.first = f.updates[1:], f.first+1
	}
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *feed) end(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
	close(f.changed)
	f.changed = nil
}

// awaitUpdate returns the oldest kept update with a number of at least n, and its number. It waits for one if necessary. Each
// watcher also waits for its turn, because answering all of them at once would starve the control loop.
func (f *feed) awaitUpdate(ctx context.Context, n int, turn time.Duration) (*update, int, error) {
	for waited := false; ; waited = true {
		f.mu.Lock()
		n = max(n, f.first)
		if at := n - f.first; at < len(f.updates) {
			u := f.updates[at]
			f.mu.Unlock()
			if waited && turn > 0 && !waitUntil(ctx, time.Now().Add(turn)) {
				return nil, 0, ctx.Err()
			}
			return u, n, nil
		}
		changed, err := f.changed, f.err
		f.mu.Unlock()
		if changed == nil {
			return nil, 0, err
		}
		if !wait(ctx, changed) {
			return nil, 0, ctx.Err()
		}
	}
}
