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
	// packPatience is how long the copy of a checkpoint may make no progress before it is canceled.
	packPatience = 2 * time.Minute
	// packEnd is how long a canceled copy may take to end. A copy that is blocked in a file system is abandoned.
	packEnd = 5 * time.Second
	// keptMode is the mode of a copy, which belongs to the worker and is never written again.
	keptMode = 0o400
)

// errStalled is the error of a checkpoint that could not be read for packPatience.
var errStalled = fmt.Errorf("reading it made no progress for %s", packPatience)

// pack is the copy of one checkpoint that is running or waiting.
type pack struct {
	// path is the program's checkpoint, and to the path of the copy.
	path, to string
	step     int64
	metric   *float64
	// end is the offset after the line that names the checkpoint. reports is the report file, nil if no line names it.
	end     int64
	reports *os.File
	// covers is the size of the report file when the checkpoint was opened, 0 before.
	covers atomic.Int64
	cancel context.CancelCauseFunc
	done   chan error
	// progress counts the parts that were copied.
	progress atomic.Int64
	// seen is the progress at the last check, and since is when it was reached.
	seen  int64
	since time.Time
}

// packer copies the checkpoints that a program names while the program continues to run and report, one at a time.
// Only the newest checkpoint waits. A packer belongs to the goroutine that runs the trial.
type packer struct {
	run  *Run
	busy *pack
	next *pack
}

// finished returns a channel that receives the result of the running copy, or nil if no copy runs.
func (p *packer) finished() <-chan error {
	if p.busy == nil {
		return nil
	}
	return p.busy.done
}

// offer queues a checkpoint in place of the one that waits. After a stop or a kill its copy fails at once.
func (p *packer) offer(c *pack) {
	p.next = c
	p.begin()
}

// begin starts the copy that waits, unless one is running.
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

// finish handles the end of the copy.
func (p *packer) finish(err error) {
	c := p.busy
	p.busy = nil
	c.cancel(nil)
	p.run.packed(c, err)
	p.begin()
}

// check cancels a copy that makes no progress, and reports whether there was progress since the last check.
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
		p.abandon(errStalled)
	}
	return false
}

// abandon waits a while for a canceled copy, and then continues without it.
func (p *packer) abandon(why error) {
	timer := time.NewTimer(packEnd)
	defer timer.Stop()
	select {
	case err := <-p.busy.done:
		p.finish(errors.Join(err, why))
	case <-timer.C:
		p.finish(why)
	}
}

// wait returns once no copy is running, or the trial was stopped or killed.
func (p *packer) wait() {
	tick := time.NewTicker(p.run.spec.Poll)
	defer tick.Stop()
	for p.busy != nil {
		select {
		case err := <-p.busy.done:
			p.finish(err)
		case now := <-tick.C:
			if p.check(now) {
				p.run.trial.Working()
			}
		case <-p.run.ctx.Done():
			p.next = nil
			p.abandon(context.Cause(p.run.ctx))
		}
	}
}

// soon waits for a small copy as long as until the next read of the reports, so that the copy is done before them.
func (p *packer) soon() {
	timer := time.NewTimer(p.run.spec.Poll)
	defer timer.Stop()
	select {
	case err := <-p.finished():
		p.finish(err)
	case <-timer.C:
	}
}

// copy copies a file as it is and a directory as an archive. The source is read with the trial's rights; the copy
// belongs to the worker.
func (c *pack) copy(ctx context.Context, s *Spec) (err error) {
	out, err := os.OpenFile(c.to, os.O_RDWR|os.O_CREATE|os.O_EXCL, keptMode)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, out.Close()); err != nil {
			_ = os.Remove(c.to) // a partial copy is useless
		}
	}()
	moved := func() { c.progress.Add(1) }
	return s.In.As(func() error {
		from, info, err := c.open(ctx)
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

// save starts the copy of a checkpoint that the program named or left.
func (r *Run) save(line named) {
	r.saves++
	to := filepath.Join(r.spec.Keep, fmt.Sprintf("%012d-%d", line.step, r.saves))
	idle := r.packer.busy == nil
	c := &pack{path: line.path, to: to, step: line.step, metric: line.metric, end: line.end}
	if line.end > 0 {
		c.reports = r.reports
	}
	r.packer.offer(c)
	if idle {
		r.packer.soon()
	}
}
