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
	// watcherCost is how much of a second each watcher may add to that time: a thousand get two updates a second each, so
	// that however many watch, the server has time for what it is there for.
	watcherCost = 500 * time.Microsecond
	// turns is how many groups the watchers of a sweep wake in, one after the other.
	turns = 32
	// keptUpdates and keptBytes bound what a feed keeps for watchers that lag behind.
	keptUpdates = 16
	keptBytes   = 4 << 20
)

// feeds looks at each watched sweep once for all of its watchers.
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

// place is how far a watcher is: the sweep's version, and how many of its reports were told.
type place struct {
	version uint64
	reports int64
}

// update is what happened between two places.
type update struct {
	from, to place
	sweep    *outbidv1.Sweep
	reports  []*outbidv1.TrialReport
	messages []*encoded
	bytes    int
	ended    bool
}

// feed makes the updates of one sweep as long as somebody watches it.
type feed struct {
	key     feedKey
	control Control
	pace    func() time.Duration
	stop    context.CancelFunc
	done    chan struct{}
	users   int // who watch, and joined those who ever did; of feeds.mu
	joined  int

	mu      sync.Mutex
	first   int // the number of updates[0]
	updates []*update
	bytes   int
	changed chan struct{} // closed at the next update or the end
	err     error
}

func newFeeds(c Control) *feeds { return &feeds{control: c, open: map[feedKey]*feed{}} }

// join returns the feed of a sweep, and whose turn of its watchers the caller is; a feed that has just been made begins
// at a place. Every join wants a leave.
func (f *feeds) join(key feedKey, at place) (one *feed, turn int) {
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
	return one, one.joined % turns
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

// pace is the time between two updates.
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

func (f *feed) run(ctx context.Context, at place) {
	defer close(f.done)
	for first := true; ; first = false {
		began := time.Now()
		u, next, err := f.look(ctx, at)
		if err == nil && (!first || u.to != u.from || u.ended) { // else the one who came first knows it all
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

// look returns what happened since a place.
func (f *feed) look(ctx context.Context, at place) (*update, <-chan struct{}, error) {
	v, err := lookAt(f.control, f.key.sweep, at.version)
	if err != nil {
		return nil, nil, err
	}
	u := &update{from: at, to: place{v.version, at.reports}, sweep: v.sweep, ended: sweepEnded(v.sweep.GetState())}
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

// after returns the first update there still is of those from number n on, and its number, and waits for it. All that
// look at once do not answer at once: that would keep the control loop from the processor; so each waits its turn.
func (f *feed) after(ctx context.Context, n int, turn time.Duration) (*update, int, error) {
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
