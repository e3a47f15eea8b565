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
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
	"github.com/outbid-dev/outbid/worker/confine"
	"github.com/outbid-dev/outbid/worker/process"
)

const (
	defaultPoll  = 20 * time.Millisecond
	defaultGrace = 10 * time.Second
)

// Trial is who hears of a trial that a program runs. Its methods are called one at a time, in order; Ended is the last
// call. Reports may block: it holds up the reading of the report file.
type Trial interface {
	Reports(reports []*outbidv1.Report)
	// Saved offers a file that nobody else uses.
	Saved(saved *outbidv1.ProcessSaved)
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
	// Scratch is a directory of this trial's own.
	Scratch string
	// StartStep and Checkpoint (a path) to start from.
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
	// Poll is how often the report file is read; 0 means 20 ms.
	Poll time.Duration
}

// Run is a trial that a program runs.
type Run struct {
	spec  Spec
	trial Trial
	wake  chan struct{}
	owner sync.WaitGroup

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
}

// Start starts the program. An error says in one line why it cannot be started.
func Start(spec Spec, trial Trial) (*Run, error) {
	if spec.Grace == 0 {
		spec.Grace = defaultGrace
	}
	if spec.Poll == 0 {
		spec.Poll = defaultPoll
	}
	r := &Run{
		spec: spec, trial: trial, wake: make(chan struct{}, 1), verdict: outbidv1.Verdict_VERDICT_TRAIN,
		until: spec.UntilStep, in: spec.Checkpoint, inStep: spec.StartStep, noted: make(map[string]bool),
	}
	first, err := r.launch()
	if err != nil {
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

// attempt is one start of the program.
type attempt struct {
	process *rankGroup
	reports *reportFile
	// config, report, in and out are paths of what the program is given.
	config, report, in, out string
	until                   int64
	overran                 bool
}

// lay makes the files that the program finds.
func (r *Run) lay(dir string, a *attempt) (err error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("make a scratch directory: %w", err)
	}
	if err := os.WriteFile(a.config, []byte(r.spec.ConfigJSON+"\n"), 0o600); err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	if r.in != "" {
		if a.in, err = unpack(r.in, filepath.Join(dir, "checkpoint-in")); err != nil {
			return err
		}
	}
	a.reports, err = openReports(a.report, r.record, r.badLine)
	return err
}

func (r *Run) launch() (*attempt, error) {
	r.round++
	dir := filepath.Join(r.spec.Scratch, "run-"+strconv.Itoa(r.round))
	a := &attempt{
		out: filepath.Join(dir, "checkpoint-out"), config: filepath.Join(dir, "config.json"),
		report: filepath.Join(dir, "report.jsonl"),
	}
	err := r.spec.In.As(func() error { return r.lay(dir, a) })
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	a.until, r.step = r.until, r.inStep
	if r.killed {
		err = errors.New("killed before it was started")
	} else {
		a.process, err = startRanks(&r.spec, r.commands(dir, r.environment(a)))
	}
	if err != nil {
		return nil, errors.Join(err, a.reports.close())
	}
	if r.spec.Speed > 0 && r.spec.Speed < 1 {
		a.process.SetSpeed(r.spec.Speed)
	}
	r.current, r.began = a.process, time.Now()
	return a, nil
}

// commands are what is started: one process, or one for each rank of a gang that runs here. Rank 0 speaks for all.
func (r *Run) commands(dir string, common []string) []process.Command {
	commands := make([]process.Command, r.spec.size())
	for local := range commands {
		env := append(r.spec.Env[:len(r.spec.Env):len(r.spec.Env)], common...)
		env = append(env, r.spec.rankEnvironment(local)...)
		if local > 0 || r.spec.follows() {
			env = append(env, muted(dir, local)...)
		}
		commands[local] = process.Command{Argv: r.spec.Argv, Env: env, Dir: r.spec.Dir, In: r.spec.In, Output: r.output}
	}
	return commands
}

func (r *Run) environment(a *attempt) []string {
	devices := make([]string, len(r.spec.Devices))
	for i, d := range r.spec.Devices {
		devices[i] = strconv.Itoa(int(d))
	}
	return []string{
		"OUTBID_SWEEP=" + r.spec.Fork.GetSweep(),
		"OUTBID_TRIAL=" + strconv.Itoa(int(r.spec.Fork.GetTrial())),
		"OUTBID_CONFIG=" + a.config,
		"OUTBID_REPORT=" + a.report,
		"OUTBID_CHECKPOINT_IN=" + a.in,
		"OUTBID_CHECKPOINT_OUT=" + a.out,
		"OUTBID_START_STEP=" + strconv.FormatInt(r.inStep, 10),
		"OUTBID_UNTIL_STEP=" + strconv.FormatInt(a.until, 10),
		"OUTBID_SEED=" + strconv.FormatUint(r.spec.Seed, 10),
		"OUTBID_FORK=" + strconv.Itoa(int(r.spec.Part.GetIndex())),
		"OUTBID_TRIAL_SEED=" + strconv.FormatUint(cmp.Or(r.spec.Part.GetTrialSeed(), r.spec.Seed), 10),
		"OUTBID_FORKS=" + strconv.Itoa(max(1, int(r.spec.Part.GetCount()))),
		"OUTBID_DEVICES=" + strings.Join(devices, ","),
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
	if r.noted[kind] || len(r.noted) >= 10 {
		return
	}
	r.noted[kind] = true
	r.trial.Note(fmt.Sprintf("line %d of the report file was not understood: %s", line, err))
}
