// Package program runs trials that are programs: a command line that learns what to do from its environment and
// reports by appending JSON lines to a file.
//
// What a program is given:
//
//	OUTBID_SWEEP, OUTBID_TRIAL   which trial it is
//	OUTBID_NODE                  name of the node it runs on
//	OUTBID_CONFIG                path of a JSON file with the configuration
//	OUTBID_REPORT                path of the file to append reports to
//	OUTBID_CHECKPOINT_IN         path of the checkpoint to start from; empty for a fresh start
//	OUTBID_CHECKPOINT_OUT        path to write the checkpoint to: a file or a directory
//	OUTBID_START_STEP            steps that the checkpoint holds
//	OUTBID_UNTIL_STEP            train until this step, save, and exit with code 0; 0 until it is done by itself
//	OUTBID_SEED                  seed of everything random in the trial
//	OUTBID_TRIAL_SEED            the same for all processes that train the trial at once, each of which has an OUTBID_SEED
//	OUTBID_FORK, OUTBID_FORKS    which of the processes that train the trial at once this is, from 0, and how many there are
//	OUTBID_DEVICES               indexes of the devices it may use, separated by commas
//
// A line of the report file is a JSON object: its numbers are metrics; "step" counts the steps done (one more than the
// line before if left out); "checkpoint" names a file or directory that the program has saved and moved into place.
//
// A program cannot wait for word as a function does. When its report says that the target is reached, it is to save
// and exit; the answer may be to go on, and then it is started again from its checkpoint. One that reports a step
// beyond the target did not look at OUTBID_UNTIL_STEP: it is asked to stop (SIGTERM), as for a pause. What it writes to
// OUTBID_CHECKPOINT_OUT counts only if it exits by itself, whatever the code: a program that a signal ended may have
// been in the middle of writing. So a program that is to be paused and does not look at its target should handle
// SIGTERM or name checkpoints in its reports.
package program

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
	"github.com/outbid-dev/outbid/worker/confine"
	"github.com/outbid-dev/outbid/worker/process"
	"github.com/outbid-dev/outbid/worker/redact"
)

const (
	defaultPoll  = 20 * time.Millisecond
	defaultGrace = 10 * time.Second
)

// DefaultCheckpointBytes is Spec.CheckpointBytes by default: the weights and the optimizer of 16 billion parameters.
const DefaultCheckpointBytes = 256 << 30

// Trial is who hears of a trial that a program runs. Its methods are called one at a time, in order; Ended is the last
// call. Reports may block: it holds up the reading of the report file.
type Trial interface {
	Reports(reports []*outbidv1.Report)
	// Packed offers a file of the worker's in Spec.Keep that nobody else uses.
	Packed(saved *outbidv1.ProcessSaved)
	// Working says that the trial waits for its worker, which makes progress with a checkpoint.
	Working()
	Reached(step int64)
	Ended(ended *outbidv1.ForkEnded)
	// Note is a line for the user.
	Note(text string)
}

// Starter starts processes.
type Starter interface {
	Start(c process.Command) (*process.Process, error)
}

// Spec says what to run.
type Spec struct {
	Host   Starter
	Fork   *outbidv1.ForkRef
	Logger *slog.Logger
	// In confines the program; nil for no more than its process group. What the program named, or may have changed, is
	// read with its rights.
	In *confine.Confinement
	// Argv, Env and Dir of the program; the variables of the package's comment are added to Env.
	Argv []string
	Env  []string
	Dir  string
	// ConfigJSON is the configuration.
	ConfigJSON string
	// Scratch is a directory of this trial's own. Keep is one of the worker's, which the trial need not reach, for copies of
	// checkpoints; empty means Scratch.
	Scratch, Keep string
	// CheckpointBytes bounds a checkpoint by the length of its files; 0 means 256 GiB.
	CheckpointBytes int64
	// StartStep and Checkpoint (a path to a file of the worker's) to start from.
	StartStep  int64
	Checkpoint string
	// UntilStep is the first target; 0 for none.
	UntilStep int64
	// Metric goes with checkpoints.
	Metric  string
	Seed    uint64
	Devices []int32
	// Gang says which ranks of a gang run here; nil for a program that is one process.
	Gang *outbidv1.Gang
	// Part says which of the forks that train the trial at once this is; nil if it is the only one.
	Part *outbidv1.ForkPart
	// Grace is how long the program may take to end after SIGTERM; 0 means 10 s.
	Grace time.Duration
	// Speed relative to full speed; 0 means full. See process.SetSpeed.
	Speed float64
	// Output gets what the program prints; the line is only valid during the call. nil drops it.
	Output func(stream process.Stream, line []byte)
	// Mask replaces values of secrets in what the program prints; nil replaces nothing.
	Mask *redact.Mask
	// Poll is how often the report file is read; 0 means 20 ms.
	Poll time.Duration
}

// Run is a trial that a program runs.
type Run struct {
	spec  Spec
	trial Trial
	wake  chan struct{}
	owner sync.WaitGroup
	// ctx ends with a stop or a kill: what the worker does for the trial then ends too.
	ctx    context.Context //nolint:containedctx // the trial's life
	cancel context.CancelCauseFunc

	mu      sync.Mutex
	verdict outbidv1.Verdict
	until   int64
	killed  bool
	current *rankGroup

	// Owned by the goroutine that runs the trial.
	tail      process.Tail
	tailMu    sync.Mutex
	round     int
	seq       uint64
	step      int64
	saves     int
	in        string // the newest checkpoint, to start again from
	inStep    int64
	savedPath string // where the program had it
	metric    *float64
	began     time.Time
	trained   time.Duration
	noted     map[string]bool
	pending   []*outbidv1.Report
	packer    packer
}

// Why what the worker does for a trial ends.
var (
	errStopped = errors.New("the trial was stopped")
	errKilled  = errors.New("the trial was killed")
)

// Start starts the program; to bring its checkpoint ends with ctx. An error says in one line why it cannot be started.
func Start(ctx context.Context, spec Spec, trial Trial) (*Run, error) {
	if spec.Grace == 0 {
		spec.Grace = defaultGrace
	}
	if spec.Poll == 0 {
		spec.Poll = defaultPoll
	}
	spec.Keep = cmp.Or(spec.Keep, spec.Scratch)
	spec.CheckpointBytes = cmp.Or(spec.CheckpointBytes, DefaultCheckpointBytes)
	r := &Run{
		spec: spec, trial: trial, wake: make(chan struct{}, 1), verdict: outbidv1.Verdict_VERDICT_TRAIN,
		until: spec.UntilStep, in: spec.Checkpoint, inStep: spec.StartStep, noted: make(map[string]bool),
	}
	r.packer.run = r
	r.ctx, r.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	starting := context.AfterFunc(ctx, func() { r.cancel(context.Cause(ctx)) })
	first, err := r.launch()
	starting()
	if err != nil {
		r.cancel(err)
		return nil, err
	}
	r.owner.Go(func() { r.run(first) })
	return r, nil
}

// Direct says what the trial should do from now on. A later target takes effect when the program has reached the one
// that it was started with.
func (r *Run) Direct(verdict outbidv1.Verdict, untilStep int64, _ string) {
	r.mu.Lock()
	r.verdict, r.until = verdict, untilStep
	if verdict != outbidv1.Verdict_VERDICT_TRAIN && r.current != nil {
		r.current.Stop(r.spec.Grace)
	}
	r.mu.Unlock()
	if verdict == outbidv1.Verdict_VERDICT_STOP {
		r.cancel(errStopped)
	}
	r.notify()
}

// Kill ends the program at once; the trial hears of it by Ended.
func (r *Run) Kill() {
	r.mu.Lock()
	r.killed = true
	if r.current != nil {
		r.current.Kill()
	}
	r.mu.Unlock()
	r.cancel(errKilled)
	r.notify()
}

// Acked does nothing: a program is not told what was decided on.
func (r *Run) Acked(uint64) {}

// SaveDone does nothing: a program does not wait for its checkpoint to be stored.
func (r *Run) SaveDone(int64, string) {}

// Wait returns when the trial has ended and nothing of it runs any more.
func (r *Run) Wait() { r.owner.Wait() }

func (r *Run) notify() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *Run) output(stream process.Stream, line []byte) {
	if stream == process.Stderr {
		r.tailMu.Lock()
		r.tail.Add(line)
		r.tailMu.Unlock()
	}
	if r.spec.Output != nil {
		r.spec.Output(stream, line)
	}
}

// record takes in one line of the report file.
func (r *Run) record(rec record) {
	if rec.step < 0 {
		rec.step = r.step + 1
		if len(rec.metrics) == 0 { // a checkpoint alone is no step
			rec.step = r.step
		}
	}
	r.step = rec.step
	if len(rec.metrics) > 0 {
		if v, ok := rec.metrics[r.spec.Metric]; ok {
			r.metric = &v
		}
		r.seq++
		now := time.Now()
		r.pending = append(r.pending, &outbidv1.Report{
			Seq: r.seq, Step: rec.step, Metrics: rec.metrics, Time: timestamppb.New(now),
			TrainSeconds: (r.trained + now.Sub(r.began)).Seconds(),
		})
	}
	if rec.checkpoint != "" || len(r.pending) >= maxPending {
		r.flush()
	}
	if rec.checkpoint != "" {
		path := rec.checkpoint
		if !filepath.IsAbs(path) {
			path = filepath.Join(r.spec.Dir, path)
		}
		r.save(path)
	}
}

// flush hands on the reports that were read.
func (r *Run) flush() {
	if len(r.pending) > 0 {
		r.trial.Reports(r.pending)
		r.pending = nil
	}
}

// badLine tells the user once about each kind of bad line.
func (r *Run) badLine(line int, err error) {
	kind, _, _ := strings.Cut(err.Error(), ";")
	if r.isNews(kind) {
		r.trial.Note(fmt.Sprintf("line %d of the report file was not understood: %s", line, err))
	}
}

// note tells the user something once.
func (r *Run) note(text string) {
	if r.isNews(text) {
		r.trial.Note(text)
	}
}

// maxNotes bounds how many notes a trial makes of what it reports and saves.
const maxNotes = 20

// isNews reports whether something was not noted before, and takes it for noted.
func (r *Run) isNews(text string) bool {
	if r.noted[text] || len(r.noted) >= maxNotes {
		return false
	}
	r.noted[text] = true
	return true
}
