package endtoend

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// train is the training program of these tests. Its metric climbs to a height that its configuration determines; it
// saves after each step, and continues from its checkpoint. It locks each of its devices while it runs, so that a
// second owner of a device is detected.
func train(mode string) int {
	if mode == "fork" {
		return trainFork()
	}
	var config struct {
		Height float64 `json:"height"`
	}
	data, err := os.ReadFile(os.Getenv("OUTBID_CONFIG"))
	if err == nil {
		err = json.Unmarshal(data, &config)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	unlock, err := lockDevices()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 3
	}
	defer unlock()
	step := int64(0)
	if saved, err := os.ReadFile(os.Getenv("OUTBID_CHECKPOINT_IN")); err == nil {
		step, err = strconv.ParseInt(strings.TrimSpace(string(saved)), 10, 64)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 4
		}
	}
	until, err := strconv.ParseInt(os.Getenv("OUTBID_UNTIL_STEP"), 10, 64)
	if err != nil {
		return 5
	}
	return climb(mode, config.Height, step, until)
}

func climb(mode string, height float64, step, until int64) int {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	pace, err := time.ParseDuration(os.Getenv("PACE"))
	if err != nil {
		pace = 50 * time.Millisecond
	}
	for step < until {
		select {
		case <-stop:
			return saveAsked(step, height/float64(step))
		case <-time.After(pace):
		}
		step++
		if code, out := mishap(mode, step); out {
			return code
		}
		loss := height / float64(step)
		if mode == "nan" && step >= 2 {
			loss = math.NaN()
		}
		saved, err := "", error(nil)
		if os.Getenv("SAVES") != "never" && os.Getenv("SAVES") != "asked" {
			saved, err = save(step)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 6
		}
		if err := report(step, loss, saved); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 7
		}
	}
	return 0
}

// saveAsked saves when the program is told to end, if it does not save after each step.
func saveAsked(step int64, loss float64) int {
	if os.Getenv("SAVES") != "asked" || step == 0 {
		return 0
	}
	saved, err := save(step)
	if err == nil {
		err = report(step, loss, saved)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 8
	}
	return 0
}

// mishap is what goes wrong in a mode, once for each trial: its first process leaves a mark.
func mishap(mode string, step int64) (code int, out bool) {
	if step != 3 || mode == "well" || mode == "nan" {
		return 0, false
	}
	if mode == "deadly" {
		killWorker()
	}
	mark := filepath.Join(os.Getenv("MARKS"), strings.ReplaceAll(os.Getenv("OUTBID_SWEEP")+"-"+os.Getenv("OUTBID_TRIAL"), "/", "-"))
	f, err := os.OpenFile(mark, os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) && mode != "always" {
		return 0, false
	}
	if f != nil {
		_ = f.Close()
	}
	switch mode {
	case "crash", "always":
		fmt.Fprintln(os.Stderr, "RuntimeError: out of luck")
		return 9, true
	case "hang":
		select {}
	case "killed":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	return 0, false
}

func save(step int64) (path string, err error) {
	path = os.Getenv("OUTBID_CHECKPOINT_OUT")
	text := fmt.Sprintln(step)
	if n, err := strconv.Atoi(os.Getenv("CHECKPOINT_BYTES")); err == nil && n > len(text) {
		text += strings.Repeat(" ", n-len(text))
	}
	if err := os.WriteFile(path+".tmp", []byte(text), 0o600); err != nil {
		return "", err
	}
	return path, os.Rename(path+".tmp", path)
}

func report(step int64, loss float64, saved string) error {
	f, err := os.OpenFile(os.Getenv("OUTBID_REPORT"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	line := fmt.Sprintf("{\"step\": %d, \"loss\": %s", step, strconv.FormatFloat(loss, 'g', -1, 64))
	if saved != "" {
		line += fmt.Sprintf(", \"checkpoint\": %q", saved)
	}
	_, err = fmt.Fprintln(f, line+"}")
	return err
}

// lockDevices takes a lock for each device of the node and, with LOCK_TRIALS, for the trial.
func lockDevices() (unlock func(), err error) {
	dir := os.Getenv("LOCKS")
	if dir == "" {
		return func() {}, nil
	}
	var files []*os.File
	var names []string
	for _, d := range strings.Split(os.Getenv("OUTBID_DEVICES"), ",") {
		names = append(names, os.Getenv("OUTBID_NODE")+"-"+d)
	}
	if os.Getenv("LOCK_TRIALS") != "" {
		names = append(names, "trial-"+strings.ReplaceAll(os.Getenv("OUTBID_SWEEP")+"-"+os.Getenv("OUTBID_TRIAL"), "/", "-"))
	}
	for _, name := range names {
		path := filepath.Join(dir, name)
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, err
		}
		_ = f.Chmod(0o666) // trials of other users may get the device later
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			return nil, errors.Join(fmt.Errorf("TWO OWNERS of %s", path), os.WriteFile(path+".two-owners", nil, 0o600))
		}
		files = append(files, f)
	}
	return func() {
		for _, f := range files {
			_ = f.Close()
		}
	}, nil
}

// job describes a sweep of the training program.
type job struct {
	name  string
	mode  string
	tuner *outbidv1.Tuner
	// trials is the limit of trials, env the additional environment of the program.
	trials int32
	env    map[string]string
	change func(*outbidv1.SweepSpec)
}

// spec returns the sweep; its processes lock their devices in locks.
func (j job) spec(t testing.TB, locks string) *outbidv1.SweepSpec {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// With the race detector a process by default sleeps for a second before it exits.
	env := map[string]string{"CLIMB_MODE": j.mode, "LOCKS": locks, "MARKS": locks, "GORACE": "atexit_sleep_ms=0"}
	for k, v := range j.env {
		env[k] = v
	}
	spec := j.bare()
	spec.Workload = &outbidv1.SweepSpec_Program{Program: &outbidv1.Program{Command: []string{self}, Env: env, Grace: "2s"}}
	if j.change != nil {
		j.change(spec)
	}
	return spec
}

// bare returns the sweep without its workload.
func (j job) bare() *outbidv1.SweepSpec {
	return &outbidv1.SweepSpec{
		Name: j.name, Metric: "loss", Mode: "min", Tuner: j.tuner, Limits: &outbidv1.Limits{Trials: j.trials},
		Space: map[string]*outbidv1.Parameter{
			"height": {Kind: &outbidv1.Parameter_Float{Float: &outbidv1.FloatRange{Low: 1, High: 100}}},
		},
	}
}

func hyperband(steps int64) *outbidv1.Tuner {
	return &outbidv1.Tuner{Seed: new(uint64(7)), Kind: &outbidv1.Tuner_Hyperband{Hyperband: &outbidv1.Hyperband{MaxSteps: steps, Eta: 3}}}
}

func random(steps int64) *outbidv1.Tuner {
	return &outbidv1.Tuner{Seed: new(uint64(7)), Kind: &outbidv1.Tuner_Random{Random: &outbidv1.RandomSearch{MaxSteps: steps}}}
}

// noTwoOwners fails if any device ever had two processes.
func noTwoOwners(t testing.TB, locks string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(locks, "*.two-owners"))
	if err != nil || len(found) > 0 {
		t.Fatalf("devices with two owners: %v %v", found, err)
	}
}
