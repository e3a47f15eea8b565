package process

import (
	"syscall"
	"time"
)

// period is how often a slowed process runs and pauses.
const period = 20 * time.Millisecond

// pacer slows a group down from a goroutine; stop ends it.
type pacer struct {
	speed float64
	stop  chan struct{}
}

// SetSpeed slows the whole group down to a part of full speed (above 0; 1 or more is full speed) by stopping and
// continuing it many times a second. This slows any program by the same factor of wall-clock time. It is for tests
// and demonstrations of clusters with different machines.
func (p *Process) SetSpeed(speed float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pace != nil && p.pace.speed == speed {
		return
	}
	p.unpace()
	if speed <= 0 || speed >= 1 || p.reaped || p.asked {
		return
	}
	p.pace = &pacer{speed: speed, stop: make(chan struct{})}
	pace := p.pace
	p.host.waits.Go(func() { pace.run(p) }) // the group is not reaped, so the host is waited for
}

// Hold stops the whole group, or continues it. A group that was asked to end is not stopped.
func (p *Process) Hold(held bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !held:
		p.resume()
	case !p.held && !p.asked && !p.reaped:
		p.held = true
		p.signal(syscall.SIGSTOP)
	}
}

// resume continues a held group. The caller holds the lock.
func (p *Process) resume() {
	if p.held {
		p.held = false
		p.signal(syscall.SIGCONT)
	}
}

// unpace ends the pacer and continues the group. The pacer's goroutine notices when it next wakes.
func (p *Process) unpace() {
	if p.pace == nil {
		return
	}
	close(p.pace.stop)
	p.pace = nil
	if !p.held {
		p.signal(syscall.SIGCONT)
	}
}

// run sends SIGSTOP and SIGCONT in turns. Each pause is in proportion to how long the group really ran, because
// timers fire late on a busy machine.
func (c *pacer) run(p *Process) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	rest := func(d time.Duration) bool {
		timer.Reset(d)
		select {
		case <-timer.C:
			return true
		case <-c.stop:
			return false
		}
	}
	for {
		began := time.Now()
		if !rest(time.Duration(c.speed*float64(period))) || !c.signal(p, syscall.SIGSTOP) {
			return
		}
		ran := time.Since(began)
		if !rest(time.Duration(float64(ran)*(1/c.speed-1))) || !c.signal(p, syscall.SIGCONT) {
			return
		}
	}
}

// signal sends sig unless this pacer was ended: a late SIGSTOP would never be followed by SIGCONT.
func (c *pacer) signal(p *Process, sig syscall.Signal) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pace != c {
		return false
	}
	if !p.held {
		p.signal(sig)
	}
	return true
}
