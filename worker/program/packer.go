package program

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/outbid-dev/outbid/worker/trialfile"
)

const (
	// packPatience is how long the copy of a checkpoint may make no progress before it is given up.
	packPatience = 2 * time.Minute
	// packEnd is how long a copy that is given up may take to end. One that waits for a file system is left behind.
	packEnd = 5 * time.Second
	// keptMode is that of a copy, which is the worker's and never written again.
	keptMode = 0o400
)

// errStalled says that a checkpoint could not be read for packPatience.
var errStalled = fmt.Errorf("nothing of it could be read for %s", packPatience)

// pack is the copy of one checkpoint that is being made, or that waits to be.
type pack struct {
	// path is where the program has it, to where the copy is made.
	path, to string
	step     int64
	metric   *float64
	cancel   context.CancelCauseFunc
	done     chan error
	// progress counts the parts that were copied.
	progress atomic.Int64
	// seen is the progress that was seen last, and since when.
	seen  int64
	since time.Time
}

// packer copies the checkpoints that a program names while the program runs and reports, one at a time. Only the newest
// waits. It belongs to the goroutine that runs the trial.
type packer struct {
	run  *Run
	busy *pack
	next *pack
}

// finished is closed, or has a value, when the copy that is being made is over; nil if there is none.
func (p *packer) finished() <-chan error {
	if p.busy == nil {
		return nil
	}
	return p.busy.done
}

// offer takes in a checkpoint. Nothing of it is copied any more after a stop or a kill.
func (p *packer) offer(c *pack) {
	p.next = c
	p.begin()
}

// begin begins the copy that waits, unless one is being made.
func (p *packer) begin() {
	if p.busy != nil || p.next == nil {
		return
	}
	c := p.next
	p.busy, p.next = c, nil
	ctx, cancel := context.WithCancelCause(p.run.ctx)
	c.cancel, c.done, c.since = cancel, make(chan error, 1), time.Now()
	go func() { c.done <- c.copy(ctx, &p.run.spec) }()
}

// take takes in how the copy ended.
func (p *packer) take(err error) {
	c := p.busy
	p.busy = nil
	c.cancel(nil)
	p.run.packed(c, err)
	p.begin()
}

// check gives up a copy that makes no progress, and reports whether there was progress since the last check.
func (p *packer) check(now time.Time) bool {
	c := p.busy
	if c == nil {
		return false
	}
	if seen := c.progress.Load(); seen != c.seen {
		c.seen, c.since = seen, now
		return true
	}
	if now.Sub(c.since) >= packPatience {
		c.cancel(errStalled)
		p.leave(errStalled)
	}
	return false
}

// leave waits a while for a copy that was cancelled, and goes on without it.
func (p *packer) leave(why error) {
	timer := time.NewTimer(packEnd)
	defer timer.Stop()
	select {
	case err := <-p.busy.done:
		p.take(errors.Join(err, why))
	case <-timer.C:
		p.take(why)
	}
}

// wait returns once nothing is being copied any more, or the trial was stopped or killed.
func (p *packer) wait() {
	tick := time.NewTicker(p.run.spec.Poll)
	defer tick.Stop()
	for p.busy != nil {
		select {
		case err := <-p.busy.done:
			p.take(err)
		case now := <-tick.C:
			if p.check(now) {
				p.run.trial.Working()
			}
		case <-p.run.ctx.Done():
			p.next = nil
			p.leave(context.Cause(p.run.ctx))
		}
	}
}

// soon waits as long for a small copy as for the next look at the reports, so that it is done before them.
func (p *packer) soon() {
	timer := time.NewTimer(p.run.spec.Poll)
	defer timer.Stop()
	select {
	case err := <-p.finished():
		p.take(err)
	case <-timer.C:
	}
}

// copy makes the copy: of a file as it is, of a directory an archive. It is read with the trial's rights and is the worker's.
func (c *pack) copy(ctx context.Context, s *Spec) (err error) {
	out, err := os.OpenFile(c.to, os.O_RDWR|os.O_CREATE|os.O_EXCL, keptMode)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, out.Close()); err != nil {
			_ = os.Remove(c.to) // half of it is of no use
		}
	}()
	moved := func() { c.progress.Add(1) }
	return s.In.As(func() error {
		from, info, err := trialfile.Open(c.path)
		if err != nil {
			return err
		}
		defer from.Close()
		return c.fill(ctx, out, from, info, s, moved)
	})
}

func (c *pack) fill(ctx context.Context, out, from *os.File, info fs.FileInfo, s *Spec, moved func()) error {
	if info.IsDir() {
		return trialfile.Archive(ctx, out, from, trialfile.Within(s.CheckpointBytes), moved)
	}
	if err := trialfile.CheckSize(info.Size(), s.CheckpointBytes); err != nil {
		return err
	}
	return trialfile.Copy(ctx, out, from, info.Size(), moved)
}

// save has what the program named, or left, copied.
func (r *Run) save(path string) {
	r.saves++
	to := filepath.Join(r.spec.Keep, fmt.Sprintf("%012d-%d", r.step, r.saves))
	idle := r.packer.busy == nil
	r.packer.offer(&pack{path: path, to: to, step: r.step, metric: r.metric})
	if idle {
		r.packer.soon()
	}
}
