package worker

import (
	"context"
	"fmt"
	"sync"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// reportPace is a token bucket that holds up the reports of a fork whose tenant reports faster than it may for longer
// (report_rate). The zero value holds nothing up.
type reportPace struct {
	mu sync.Mutex
	// rate is in bytes a second, 0 for no bound; left is how much may be reported at once at a time, in bytes. It is negative
	// after a report that took more than there was.
	rate, left float64
	at         time.Time
	// granted is what may be reported beyond the rate, in bytes.
	granted float64
	// open is set once nothing is held up any more, because the fork ends.
	open bool
	// changed is closed when rate or open changes; nil if nothing waits for that.
	changed chan struct{}
}

// setRate sets the bound in bytes a second; 0 for none.
func (p *reportPace) setRate(rate int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if next := float64(max(0, rate)); next != p.rate {
		p.refill(time.Now())
		p.rate, p.left = next, min(p.left, next)
		p.wake()
	}
}

// pauseBytes is what a fork that is told to pause may still report at once, however fast it did before: what a program is ahead of its worker. A
// line of its report file takes up to ten times as many bytes as a report.
const pauseBytes = 12 << 20

// grantPause lets what was reported before a pause through, so that the pause does not wait for it.
func (p *reportPace) grantPause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.granted = pauseBytes
	p.wake()
}

// release ends all waiting for good.
func (p *reportPace) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = true
	p.wake()
}

// wake has what waits look again. The caller holds the lock.
func (p *reportPace) wake() {
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

// refill counts the time that has passed. The caller holds the lock.
func (p *reportPace) refill(now time.Time) {
	if p.rate > 0 && !p.at.IsZero() {
		p.left = min(p.left+now.Sub(p.at).Seconds()*p.rate, p.rate)
	}
	p.at = now
}

// take returns how many of the reports may be sent now. If none may, it returns how long to wait and what is closed when the bound changes.
func (p *reportPace) take(reports []*outbidv1.Report) (n int, wait time.Duration, changed <-chan struct{}) {
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

// await waits until some of the reports may be sent and returns how many, or 0 if ctx ends before. It calls waits once before it waits.
func (p *reportPace) await(ctx context.Context, reports []*outbidv1.Report, waits func(rate float64)) int {
	for told := false; ; told = true {
		n, wait, changed := p.take(reports)
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

// send queues reports as fast as the fork may report. Meanwhile the training code waits.
func (f *fork) send(reports []*outbidv1.Report, delayed bool) {
	for len(reports) > 0 {
		n := f.pace.await(f.ctx, reports, f.notePace)
		if n == 0 {
			return
		}
		f.out.addReports(f.ctx, f, reports[:n], delayed && n == len(reports))
		reports = reports[n:]
	}
}

// notePace tells the user once that the reports of the fork are held up.
func (f *fork) notePace(rate float64) {
	f.paced.Do(func() {
		f.note("warning", fmt.Sprintf("%s waits when it reports: the trials of tenant %s report more bytes a second than they may for "+
			"longer (report_rate), so this one may report %.0f a second; report less often to run at full speed", f.name(), f.tenant(), max(rate, 1)))
	})
}

// tenant returns the owner of the fork's sweep.
func (f *fork) tenant() string {
	if t := f.body.GetTenant(); t != "" {
		return t
	}
	return "default"
}
