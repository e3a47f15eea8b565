package program

import (
	"context"
	"io/fs"
	"os"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
	"github.com/outbid-dev/outbid/worker/trialfile"
)

// A program may save each checkpoint under the same name, as OUTBID_CHECKPOINT_OUT invites it to. A worker that is late then copies
// what a later line of the report file names. If the copy kept the step of the earlier line, the trial would later resume from the
// program's state at the later step, and the reports in between would be missing if the worker was killed before it read
// them. So a copy gets the step of the last line that was written before the copied file was opened, and it is offered only after the
// reports up to that line.

const (
	// lineDelay is how long a copy waits for the line that names a checkpoint which is newer than the last line.
	lineDelay = time.Second
	// linePoll is how often it looks for that line.
	linePoll = 5 * time.Millisecond
	// maxNamed limits how many lines are remembered until the running copy has opened its file.
	maxNamed = 4096
)

// named is a line of the report file that names a checkpoint.
type named struct {
	path string
	// end is the offset after the line in the report file.
	end    int64
	step   int64
	metric *float64
}

// open opens the checkpoint and sets c.covers to the size that the report file had at that moment.
func (c *pack) open(ctx context.Context) (*os.File, fs.FileInfo, error) {
	for deadline := time.Now().Add(lineDelay); ; {
		from, info, err := trialfile.Open(c.path)
		if err != nil || c.reports == nil {
			return from, info, err
		}
		size, settled := c.lines(info)
		if settled || !time.Now().Before(deadline) || !waitFor(ctx, linePoll) {
			c.covers.Store(size)
			return from, info, nil
		}
		if err := from.Close(); err != nil {
			return nil, nil, err
		}
	}
}

// lines returns the size of the report file. It reports whether the lines so far tell the step of the opened
// checkpoint: its path still leads to it, and the last line is not older.
func (c *pack) lines(opened fs.FileInfo) (size int64, settled bool) {
	reports, err := c.reports.Stat()
	if err != nil {
		return 0, true // reading the report file returns the error
	}
	now, err := os.Stat(c.path)
	if err != nil || !os.SameFile(opened, now) {
		return 0, false
	}
	return reports.Size(), !opened.ModTime().After(reports.ModTime())
}

// waitFor reports whether d has passed before ctx ended.
func waitFor(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// recordNamed records a line that names a checkpoint. It reports whether a copy that is not yet offered has the checkpoint's content.
func (r *Run) recordNamed(n named) (covered bool) {
	if len(r.named) >= maxNamed {
		r.named = append(r.named[:0], r.named[maxNamed/2:]...)
	}
	r.named = append(r.named, n)
	for _, c := range append(r.unlabelled[:len(r.unlabelled):len(r.unlabelled)], r.packer.busy) {
		if c != nil && c.path == n.path && c.covers.Load() >= n.end {
			return true
		}
	}
	return false
}

// offerCopies offers the finished copies for which the report file has been read far enough, in their order. With all it offers every copy.
func (r *Run) offerCopies(all bool) {
	for len(r.unlabelled) > 0 {
		c := r.unlabelled[0]
		if !all && c.reports != nil && c.covers.Load() > r.read {
			return
		}
		r.unlabelled = r.unlabelled[1:]
		r.labelCopy(c)
	}
	if r.packer.busy == nil && r.packer.next == nil {
		r.named = r.named[:0]
	}
}

// labelCopy gives a copy its step and offers it, unless a copy with the same content was offered before.
func (r *Run) labelCopy(c *pack) {
	for _, n := range r.named {
		if n.path == c.path && n.end > c.end && n.end <= c.covers.Load() {
			c.step, c.metric = n.step, n.metric
		}
	}
	kept, offered := c.to+".in", c.to+".ckpt"
	if c.step == r.inStep && c.path == r.savedPath {
		r.removeFile(kept)
		r.removeFile(offered)
		return
	}
	if r.in != "" && r.in != r.spec.Checkpoint {
		r.removeFile(r.in)
	}
	r.in, r.inStep, r.savedPath = kept, c.step, c.path
	r.trial.Packed(&outbidv1.ProcessSaved{Fork: r.spec.Fork, Path: offered, Step: c.step, Metric: c.metric})
}

func (r *Run) removeFile(path string) {
	if err := os.Remove(path); err != nil {
		r.spec.Logger.Warn("remove an old checkpoint", "error", err)
	}
}
