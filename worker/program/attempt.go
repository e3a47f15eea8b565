package program

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/outbid-dev/outbid/worker/gang"
	"github.com/outbid-dev/outbid/worker/process"
	"github.com/outbid-dev/outbid/worker/trialfile"
)

// attempt is one start of the program.
type attempt struct {
	process *rankGroup
	reports *reportFile
	// config, report, in and out are the paths of the program's files.
	config, report, in, out string
	until                   int64
	overran                 bool
}

// createFiles creates the program's files with the program's rights, and unpacks its checkpoint from a file of the
// worker, or none if it is nil. It does not write to files that the trial may have put there before.
func (r *Run) createFiles(dir string, a *attempt, checkpoint *os.File) (err error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("create a scratch directory: %w", err)
	}
	config, err := os.OpenFile(a.config, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		_, err = config.WriteString(r.spec.ConfigJSON + "\n")
		err = errors.Join(err, config.Close())
	}
	if err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	if checkpoint != nil {
		a.in = filepath.Join(dir, "checkpoint-in")
		if err := trialfile.Restore(r.ctx, checkpoint, a.in, r.trial.Working); err != nil {
			return fmt.Errorf("unpack the checkpoint: %w", err)
		}
	}
	if a.reports, err = openReports(a.report, r.record, r.badLine); err == nil {
		a.reports.mask = r.spec.Mask
	}
	return err
}

// prepare opens the start checkpoint and creates the files of an attempt.
func (r *Run) prepare(dir string, a *attempt) error {
	var checkpoint *os.File
	if r.in != "" {
		var err error
		if checkpoint, err = os.Open(r.in); err != nil {
			return fmt.Errorf("open the checkpoint: %w", err)
		}
		defer checkpoint.Close()
	}
	return r.spec.In.As(func() error { return r.createFiles(dir, a, checkpoint) })
}

func (r *Run) launch() (*attempt, error) {
	r.round++
	dir := filepath.Join(r.spec.Scratch, "run-"+strconv.Itoa(r.round))
	a := &attempt{
		out: filepath.Join(dir, "checkpoint-out"), config: filepath.Join(dir, "config.json"),
		report: filepath.Join(dir, "report.jsonl"),
	}
	err := r.prepare(dir, a)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	a.until, r.step = r.until, r.inStep
	if r.killed {
		err = errors.New("the trial was killed before its program started")
	} else {
		a.process, err = startRanks(&r.spec, r.commands(dir, r.environment(a)))
	}
	if err != nil {
		return nil, errors.Join(err, a.reports.close())
	}
	if r.spec.Speed > 0 && r.spec.Speed < 1 {
		a.process.SetSpeed(r.spec.Speed)
	}
	a.reports.throttle.hold = a.process.Hold
	r.reports, r.read, r.readAll = a.reports.file, 0, false
	r.current, r.began = a.process, time.Now()
	return a, nil
}

// commands returns the processes to start: one, or one for each rank of a gang that runs here. Only reports of rank 0
// count.
func (r *Run) commands(dir string, common []string) []process.Command {
	commands := make([]process.Command, r.spec.size())
	for local := range commands {
		env := append(r.spec.Env[:len(r.spec.Env):len(r.spec.Env)], common...)
		env = append(env, gang.Environment(r.spec.Gang, r.spec.Fork, local, r.spec.size())...)
		if local > 0 || r.spec.follows() {
			env = append(env, muted(dir, local)...)
		}
		commands[local] = process.Command{Argv: r.spec.Argv, Env: env, Dir: r.spec.Dir, In: r.spec.In, Output: r.output, Mask: r.spec.Mask}
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
