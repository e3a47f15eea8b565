package endtoend

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// killWorker is a training program that kills its worker.
func killWorker() {
	data, err := os.ReadFile(filepath.Join(os.Getenv("MARKS"), os.Getenv("OUTBID_NODE")+".pid"))
	if err != nil {
		return
	}
	if pid, err := strconv.Atoi(string(data)); err == nil {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	select {} // whatever ends workers' processes ends this one too
}

// supervised starts a worker and restarts it whenever it is killed, like systemd. It counts the deaths.
func (c *cluster) supervised(name, devices string, stop <-chan struct{}, deaths chan<- string) {
	c.t.Helper()
	run := func() *proc {
		p := c.worker(name, devices, "")
		if err := os.WriteFile(filepath.Join(c.locks, name+".pid"), fmt.Append(nil, p.cmd.Process.Pid), 0o600); err != nil {
			c.t.Error(err)
		}
		return p
	}
	p := run()
	go func() {
		for {
			<-p.ended
			select {
			case <-stop:
				return
			default:
			}
			deaths <- name
			p = run()
		}
	}()
}

func TestATrialThatKillsItsWorkerFailsAndNobodyElse(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	stop, deaths := make(chan struct{}), make(chan string, 100)
	defer close(stop)
	c.supervised("a", "cpu:2", stop, deaths)
	pace := map[string]string{"PACE": "300ms"}
	restarts := func(n int32) func(*outbidv1.SweepSpec) {
		return func(s *outbidv1.SweepSpec) { s.MaxRestarts = new(n) }
	}
	bad := c.submit(job{name: "bad", mode: "deadly", tuner: random(9), trials: 1, env: pace, change: restarts(3)}.spec(t, c.locks))
	good := c.submit(job{name: "good", mode: "well", tuner: random(20), trials: 3, env: pace, change: restarts(0)}.spec(t, c.locks))
	c.wait(bad)
	trial := c.trials(bad)[0]
	if trial.GetState() != outbidv1.TrialState_TRIAL_STATE_FAILED || !strings.Contains(trial.GetReason(), "4 nodes in a row were lost while they ran it") {
		t.Errorf("the trial is %s: %s", trial.GetState(), trial.GetReason())
	}
	sw := c.mustDone(good)
	if n := len(deaths); n != 4 {
		t.Errorf("the worker died %d times", n)
	}
	for _, trial := range c.trials(good) {
		if trial.GetRestarts() != 0 || trial.GetStep() != 20 {
			t.Errorf("trial %d did %d steps after %d restarts; notes %v", trial.GetNumber(), trial.GetStep(), trial.GetRestarts(), sw.GetNotes())
		}
	}
	noTwoOwners(t, c.locks)
}

// TestAWorkerThatIsKilledIsHeldAgainstNoTrial checks that a worker that is repeatedly killed from outside does not
// count against trials that run as other users and cannot have done it.
func TestAWorkerThatIsKilledIsHeldAgainstNoTrial(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can run trials as other users")
	}
	c := newCluster(t, "--lease", "30s") // longer than a worker takes to restart
	run := func() *proc {
		return start(t, c.dir, "worker", "--nats", c.Info.NATS, "--keys", c.Info.Keys, "--name", "a", "--devices", "cpu:1",
			"--dir", filepath.Join(c.dir, "worker-a"), "--trial-user", "auto")
	}
	worker := run()
	spec := job{name: "well", mode: "well", tuner: random(1_000_000), trials: 1, env: map[string]string{"PACE": "20ms"}}.spec(t, openDir(t))
	spec.GetProgram().Command, spec.MaxRestarts = []string{trojan(t, openDir(t))}, new(int32(0))
	id := c.submit(spec)
	for range 4 {
		c.waitSteps(id, c.sweep(id).GetSteps()+5)
		before := killedForMemory(t)
		worker.kill()
		worker = run()
		c.waitSteps(id, c.sweep(id).GetSteps()+1)
		if killedForMemory(t) != before {
			t.Skip("the kernel killed another test's process because memory ran out, so it is unknown why the worker ended")
		}
	}
	if trial := c.trials(id)[0]; trial.GetState() != outbidv1.TrialState_TRIAL_STATE_RUNNING || trial.GetNodeLosses() > 0 || trial.GetSuspected() {
		t.Errorf("after 4 kills it is %v", trial)
	}
	c.command(id, outbidv1.SweepCommand_SWEEP_COMMAND_STOP)
	c.wait(id)
	worker.stop()
	c.stop()
}

// killedForMemory returns the kernel's count of out-of-memory kills.
func killedForMemory(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("/proc/vmstat")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(data), "\noom_kill ")
	n, _, _ := strings.Cut(after, "\n")
	return n
}

func TestADamagedCheckpointFallsBackToTheOneBefore(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.worker("a", "cpu:1", "")
	spec := job{name: "damaged", mode: "well", tuner: random(12), trials: 1, env: map[string]string{"PACE": "100ms"}, change: func(s *outbidv1.SweepSpec) {
		s.MaxRestarts = new(int32(0))
	}}.spec(t, c.locks)
	id := c.submit(spec)
	c.waitSteps(id, 6)
	c.command(id, outbidv1.SweepCommand_SWEEP_COMMAND_PAUSE)
	poll(t, "its devices are free", func() bool { return c.sweep(id).GetCounts().GetRunning() == 0 })
	kept := c.trials(id)[0].GetCheckpoints()
	if len(kept) < 2 {
		t.Fatalf("it keeps %v", kept)
	}
	newest := kept[len(kept)-1]
	if err := os.WriteFile(filepath.Join(c.dir, "store", newest.GetKey()), []byte("not what was saved"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.command(id, outbidv1.SweepCommand_SWEEP_COMMAND_RESUME)
	sw := c.mustDone(id)
	if !told(sw, "is damaged") || !told(sw, fmt.Sprintf("continues from step %d instead", kept[len(kept)-2].GetStep())) {
		t.Errorf("no note about it: %v", sw.GetNotes())
	}
}

func TestTheSameErrorTwiceIsFinal(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.worker("a", "cpu:1", "")
	id := c.submit(job{name: "same", mode: "always", tuner: random(9), trials: 1}.spec(t, c.locks))
	c.wait(id)
	trial := c.trials(id)[0]
	if trial.GetState() != outbidv1.TrialState_TRIAL_STATE_FAILED || trial.GetRestarts() != 1 ||
		!strings.Contains(trial.GetReason(), "out of luck") || !strings.Contains(trial.GetReason(), "twice in the same way at step") {
		t.Errorf("it is %s after %d restarts: %s", trial.GetState(), trial.GetRestarts(), trial.GetReason())
	}
}

func TestAStoppedSweepGoesOnWithItsTrials(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.worker("a", "cpu:2", "")
	id := c.submit(job{name: "stopped", mode: "well", tuner: hyperband(9), env: map[string]string{"PACE": "100ms"}}.spec(t, c.locks))
	c.waitSteps(id, 12)
	c.command(id, outbidv1.SweepCommand_SWEEP_COMMAND_STOP)
	c.wait(id)
	before := c.trials(id)
	c.kill()
	c.restart()
	c.command(id, outbidv1.SweepCommand_SWEEP_COMMAND_RESUME)
	c.mustDone(id)
	cancelled := 0
	for i, trial := range c.trials(id)[:len(before)] {
		if before[i].GetState() == outbidv1.TrialState_TRIAL_STATE_CANCELLED {
			cancelled++
		}
		if trial.GetState() == outbidv1.TrialState_TRIAL_STATE_CANCELLED || trial.GetStep() < before[i].GetStep() {
			t.Errorf("trial %d was %s at step %d and is %s at step %d", i, before[i].GetState(), before[i].GetStep(), trial.GetState(), trial.GetStep())
		}
	}
	if cancelled == 0 {
		t.Error("the stop cancelled nothing")
	}
	calm := c.outcome(c.submit(job{name: "calm", mode: "well", tuner: hyperband(9)}.spec(t, c.locks)))
	if got := c.outcome(id); got != calm {
		t.Errorf("a stop and a resume changed the outcome:\n%s\nwithout:\n%s", got, calm)
	}
}

// command pauses, resumes or stops a sweep.
func (s *server) command(id string, what outbidv1.SweepCommand) {
	s.t.Helper()
	if _, err := s.ControlSweep(context.Background(), &outbidv1.ControlSweepRequest{Sweep: id, Command: what}); err != nil {
		s.t.Fatal(err)
	}
}

func TestAMetricThatIsNeverReportedIsSaid(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.worker("a", "cpu:1", "")
	id := c.submit(job{name: "typo", mode: "well", tuner: random(3), trials: 2, change: func(s *outbidv1.SweepSpec) { s.Metric = "loos" }}.spec(t, c.locks))
	sw := c.wait(id)
	if sw.GetState() != outbidv1.SweepState_SWEEP_STATE_FAILED || !strings.Contains(sw.GetReason(), "is loss what was meant?") {
		t.Errorf("the sweep is %s: %s", sw.GetState(), sw.GetReason())
	}
	if !told(sw, `it reported no "loos", which the sweep is to optimise; it reported loss; is loss what was meant?`) {
		t.Errorf("no note about it: %v", sw.GetNotes())
	}
	for _, trial := range c.trials(id) {
		if trial.GetState() != outbidv1.TrialState_TRIAL_STATE_FAILED {
			t.Errorf("trial %d is %s", trial.GetNumber(), trial.GetState())
		}
	}
}
