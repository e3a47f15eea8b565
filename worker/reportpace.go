package worker

import (
	"context"
	"sync"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// reportPace is a token bucket that delays the reports of a fork whose tenant exceeds its sustained rate
// (report_rate). The zero value delays nothing.
type reportPace struct {
	mu sync.Mutex
	// rate is in bytes a second; 0 means no limit. left is how many bytes may be reported at once; it is negative
	// after a report that was larger.
	rate, left float64
	at         time.Time
	// granted is how many bytes may be reported beyond the rate.
	granted float64
	// open is set once nothing is delayed any more, because the fork ends.
	open bool
	// changed is closed when rate or open changes; nil if nothing waits for that.
	changed chan struct{}
}

// setRate sets the limit in bytes a second; 0 means no limit.
func (p *reportPace) setRate(rate int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if next := float64(max(0, rate)); next != p.rate {
		p.refill(time.Now())
		p.rate, p.left = next, min(p.left, next)
		p.wake()
	}
}

// pauseBytes is how much a fork with an order to pause may report at once, whatever its rate: reports that its
// program has written and the worker has not read yet. A line of a report file takes up to ten times as many bytes as
// a report.
const pauseBytes = 12 << 20

// grantPause lets reports made before a pause through, so that the pause does not wait for them.
func (p *reportPace) grantPause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.granted = pauseBytes
	p.wake()
}

// release ends all delays for good.
func (p *reportPace) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = true
	p.wake()
}

// wake makes waiting callers check again. The caller holds the lock.
func (p *reportPace) wake() {
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

// refill adds the tokens for the time that has passed. The caller holds the lock.
func (p *reportPace) refill(now time.Time) {
	if p.rate > 0 && !p.at.IsZero() {
		p.left = min(p.left+now.Sub(p.at).Seconds()*p.rate, p.rate)
	}
	p.at = now
}

// takeTokens returns how many of the reports may be sent now. If none may, it returns how long to wait and a channel
// that is closed when the limit changes.
func (p *reportPace) takeTokens(reports []*outbidv1.Report) (n int, wait time.Duration, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rate == 0 || p.open {
		return len(reports), 0, nil
	}
	p.refill(time.Now())
	for ; n < len(reports) && (p.left >= 0 || p.granted > 0); n++ {
		size := float64(reportSize(reports[n]))
		if p.granted > 0 {
			p.granted -= size
		} else {
			p.left -= size
		}
	}
	if n > 0 {
		return n, 0, nil
	}
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	return 0, time.Duration(-p.left/p.rate*float64(time.Second)) + time.Millisecond, p.changed
}

// await waits until some of the reports may be sent and returns how many, or 0 if ctx ends first. It calls waits once
// before it waits.
func (p *reportPace) await(ctx context.Context, reports []*outbidv1.Report, waits func(rate float64)) int {
	for told := false; ; told = true {
		n, wait, changed := p.takeTokens(reports)
		if n > 0 {
			return n
		}
		if !told {
			p.mu.Lock()
			rate := p.rate
			p.mu.Unlock()
			waits(rate)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-changed:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return 0
		}
	}
}
