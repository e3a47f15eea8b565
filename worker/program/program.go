// Package program runs trials that are programs: command lines that are configured by environment variables and
// report by appending JSON lines to a file.
//
// Environment variables of a program:
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
//	OUTBID_TRIAL_SEED            the same for all forks that train the trial at once; OUTBID_SEED differs between them
//	OUTBID_FORK, OUTBID_FORKS    which of the processes that train the trial at once this is, from 0, and how many there are
//	OUTBID_DEVICES               indexes of the devices it may use, separated by commas
//
// A line of the report file is a JSON object. Its numbers are metrics. "step" is the number of steps done; the
// default is one more than in the line before. "checkpoint" names a file or directory that the program has saved and
// moved into place.
//
// Unlike a function, a program cannot wait for orders. When its report reaches the target, it has to save and exit;
// if the order then is to continue, it is started again from its checkpoint. A program that reports a step beyond the
// target did not check OUTBID_UNTIL_STEP: it is asked to stop (SIGTERM), as for a pause. The checkpoint in
// OUTBID_CHECKPOINT_OUT counts only if it exits by itself, with any code: a program that was ended by a signal may
// not have finished writing. So a program that has to support pauses and does not check its target should handle
// SIGTERM or name checkpoints in its reports.
package program

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
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

// DefaultCheckpointBytes is the default of Spec.CheckpointBytes: the weights and the optimizer state of 16 billion
// parameters.
const DefaultCheckpointBytes = 256 << 30

// Trial receives the events of a trial that a program runs. Its methods are called one at a time, in order; Ended is
// the last call. Reports may block, which delays the reading of the report file.
type Trial interface {
	Reports(reports []*outbidv1.Report)
	// Packed offers a checkpoint: a file in Spec.Keep that then belongs to the caller.
	Packed(saved *outbidv1.ProcessSaved)
	// Working is called when the trial waits for its worker, which makes progress with a checkpoint.
	Working()
	Reached(step int64)
	Ended(ended *outbidv1.ForkEnded)
	// Note receives a line for the user.
	Note(text string)
}

// Starter starts processes.
type Starter interface {
	Start(c process.Command) (*process.Process, error)
}

// Spec describes what to run.
type Spec struct {
	Host   Starter
	Fork   *outbidv1.ForkRef
	Logger *slog.Logger
	// In confines the program; if it is nil, the program has only its process group. Files that the program named or
	// may have changed are read with its rights.
	In *confine.Confinement
	// Argv, Env and Dir describe the program; the variables of the package's comment are added to Env.
	Argv []string
	Env  []string
	Dir  string
	// ConfigJSON is the configuration.
	ConfigJSON string
	// Scratch is the trial's directory. Keep is a directory for copies of checkpoints, which the trial need not have
	// access to; empty means Scratch.
	Scratch, Keep string
	// CheckpointBytes limits the sum of the lengths of a checkpoint's files; 0 means DefaultCheckpointBytes.
	CheckpointBytes int64
	// StartStep and Checkpoint (the path of a file of the worker) are where the trial starts.
	StartStep  int64
	Checkpoint string
	// UntilStep is the first target; 0 means none.
	UntilStep int64
	// Metric is the metric that is sent with checkpoints.
	Metric  string
	Seed    uint64
	Devices []int32
	// Gang describes the ranks of a gang that run here; nil for a program with one process.
	Gang *outbidv1.Gang
	// Part identifies this fork among those that train the trial at once; nil if it is the only one.
	Part *outbidv1.ForkPart
	// Grace is how long the program may take to end after SIGTERM; 0 means 10 s.
	Grace time.Duration
	// Speed is relative to full speed; 0 means full speed. See process.SetSpeed.
	Speed float64
	// Output receives what the program prints. The line is only valid during the call. nil discards the output.
	Output func(stream process.Stream, line []byte)
	// Mask replaces values of secrets in the program's output; nil replaces nothing.
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
	// ctx ends with a stop or a kill, which ends the worker's own work for the trial.
	ctx    context.Context //nolint:containedctx // the trial's life
	cancel context.CancelCauseFunc

	mu      sync.Mutex
	verdict outbidv1.Verdict
	until   int64
	killed  bool
	current *rankGroup

	// The following fields are owned by the goroutine that runs the trial.
	tail      process.Tail
	tailMu    sync.Mutex
	round     int
	seq       uint64
	step      int64
	saves     int
	in        string // the newest checkpoint, to start again from
	inStep    int64
	savedPath string // the path that the program gave for it
	metric    *float64
	began     time.Time
	trained   time.Duration
	noted     map[string]bool
	pending   []*outbidv1.Report
	packer    packer
	// reports is the report file of the current attempt; the first read bytes of it have been handled, with readAll all that will be.
	reports *os.File
	read    int64
	readAll bool
	// named are the newest lines that name checkpoints, and unlabelled the copies that wait for the lines before their opening.
	named      []named
	unlabelled []*pack
}

// Causes for which a trial's context ends.
var (
	errStopped = errors.New("the trial was stopped")
	errKilled  = errors.New("the trial was killed")
)

// Start starts the program. Unpacking its checkpoint stops when ctx ends. The error says in one line why the program
// cannot be started.
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

// Direct orders what the trial should do from now on. A later target takes effect when the program has reached the
// one that it was started with.
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

// Kill kills the program. The trial's Ended is called later.
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

// Acked does nothing: a program does not receive decisions.
func (r *Run) Acked(uint64) {}

// SaveDone does nothing: a program does not wait until its checkpoint is stored.
func (r *Run) SaveDone(int64, string) {}

// ShardDone does nothing: a program does not save shards.
func (r *Run) ShardDone(*outbidv1.SaveDone) {}

// Wait returns when the trial has ended and none of its processes runs any more.
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

// record handles one line of the report file.
func (r *Run) record(rec record) {
	if rec.step < 0 {
		rec.step = r.step + 1
		if len(rec.metrics) == 0 { // a line with only a checkpoint does not begin a step
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
		line := named{path: path, end: rec.end, step: r.step, metric: r.metric}
		if !r.recordNamed(line) {
			r.save(line)
		}
	}
}

// flush delivers the reports that were read.
func (r *Run) flush() {
	if len(r.pending) > 0 {
		r.trial.Reports(r.pending)
		r.pending = nil
	}
}

// badLine tells the user about the first bad line of each kind.
func (r *Run) badLine(line int, err error) {
	kind, _, _ := strings.Cut(err.Error(), ";")
	if r.isNews(kind) {
		r.trial.Note(fmt.Sprintf("line %d of the report file was not understood: %s", line, err))
	}
}

// note shows the user a text, once.
func (r *Run) note(text string) {
	if r.isNews(text) {
		r.trial.Note(text)
	}
}

// maxNotes limits how many notes a trial makes about its reports and checkpoints.
const maxNotes = 20

// isNews reports whether a text was not noted before, and records it.
func (r *Run) isNews(text string) bool {
	if r.noted[text] || len(r.noted) >= maxNotes {
		return false
	}
	r.noted[text] = true
	return true
}
