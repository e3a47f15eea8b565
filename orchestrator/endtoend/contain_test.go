package endtoend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// containment is a server with one worker, which runs trials as separate users if possible. Two healthy sweeps of one
// tenant continuously train there: one saves at each step, and the other only reports.
type containment struct {
	*server
	dir, healthy, reports string
	// began is when the healthy sweeps had trained alone for a moment.
	began time.Time
}

// contain starts it with the given number of devices for other sweeps.
func contain(t *testing.T, devices int, args ...string) *containment {
	t.Helper()
	dir := t.TempDir()
	user := "none"
	if os.Geteuid() == 0 {
		user = "auto"
	}
	return containOn(t, dir, serve(t, dir, append([]string{
		"up", "--devices", fmt.Sprintf("cpu:%d", devices+2), "--trial-user", user, "--policy", "drf",
	}, args...)...))
}

// containOn starts the healthy sweeps on a server.
func containOn(t *testing.T, dir string, s *server) *containment {
	t.Helper()
	c := &containment{dir: dir, server: s}
	c.healthy, c.reports = c.train(t, "healthy", "each step"), c.train(t, "reports", "never")
	c.waitSteps(c.healthy, 50)
	c.waitSteps(c.reports, 50)
	c.began = time.Now()
	return c
}

// train submits a healthy sweep.
func (c *containment) train(t *testing.T, name, saves string) string {
	t.Helper()
	env := map[string]string{"PACE": "20ms", "SAVES": saves}
	spec := job{name: name, mode: "well", tuner: random(1_000_000), trials: 1, env: env}.spec(t, openDir(t))
	spec.Workload.(*outbidv1.SweepSpec_Program).Program.Command = []string{trojan(t, openDir(t))} //nolint:forcetypeassert // it is a program
	spec.Tenant, spec.Checkpoints = "good", &outbidv1.Checkpoints{Last: true}
	return c.submit(spec)
}

// run runs a shell script as a sweep of one trial of another tenant.
func (c *containment) run(name, script string, change ...func(*outbidv1.SweepSpec)) string {
	c.t.Helper()
	spec := job{name: name, tuner: random(0), trials: 1}.bare()
	spec.Tenant, spec.MaxRestarts = "bad", new(int32(0))
	spec.Workload = &outbidv1.SweepSpec_Program{Program: &outbidv1.Program{
		Command: []string{"sh", "-c", strings.NewReplacer("{", "{{", "}", "}}").Replace(script)}, Grace: "1s",
	}}
	for _, f := range change {
		f(spec)
	}
	return c.submit(spec)
}

// leastRate is the minimum share of its step rate that a healthy trial must keep. Alone on the machine it keeps 99 % or
// more, or 78 % if it saves at each step (docs/benchmarks.md); here other tests may have started in the meantime.
const leastRate = 0.25

// stillTrains fails unless the healthy trials still run on the same node, were never paused while the others ran, and
// kept their step rate.
func (c *containment) stillTrains() {
	c.t.Helper()
	c.kept("that only reports", c.reports)
	c.kept("that saves at each step", c.healthy)
}

func (c *containment) kept(who, id string) {
	c.t.Helper()
	who = "the healthy trial " + who
	c.waitSteps(id, c.sweep(id).GetSteps()+3)
	trial := c.trials(id)[0]
	if trial.GetRestarts() > 0 || trial.GetState() != outbidv1.TrialState_TRIAL_STATE_RUNNING {
		c.t.Errorf("%s is %s after %d restarts", who, trial.GetState(), trial.GetRestarts())
	}
	stream, err := c.ListReports(c.t.Context(), &outbidv1.ListReportsRequest{Sweep: id})
	var last, first time.Time
	step, alone := int64(0), int64(0)
	err = drain(stream, err, func(m *outbidv1.ListReportsResponse) error {
		for _, r := range m.GetReports() {
			at := r.GetReport().GetTime().AsTime()
			if gap := at.Sub(last); !last.IsZero() && gap > 10*time.Second {
				c.t.Errorf("%s reported nothing for %s before step %d", who, gap, r.GetReport().GetStep())
			}
			if step++; r.GetReport().GetStep() != step {
				c.t.Errorf("step %d is reported where %d should be", r.GetReport().GetStep(), step)
			}
			if last = at; first.IsZero() {
				first = at
			}
			if at.Before(c.began) {
				alone = step
			}
		}
		return nil
	})
	if err != nil {
		c.t.Error(err)
	}
	before, beside := float64(alone-1)/c.began.Sub(first).Seconds(), float64(step-alone)/last.Sub(c.began).Seconds()
	c.t.Logf("%s made %.1f steps a second alone and %.1f during the attacks: %.0f%%", who, before, beside, 100*beside/before)
	if beside < leastRate*before {
		c.t.Errorf("%s made %.1f steps per second, after %.1f before", who, beside, before)
	}
}

// TestWordsThatAreNotTextArrive (B2) checks that a program may end with any bytes: its sweep shows them, and the worker
// keeps serving others.
func TestWordsThatAreNotTextArrive(t *testing.T) {
	t.Parallel()
	c := contain(t, 1)
	for name, script := range map[string]string{
		"latin":  `printf 'K\366nnte nicht lesen\n' >&2; exit 3`,
		"cut":    `i=0; while [ $i -lt 999 ]; do printf a; i=$((i+1)); done >&2; printf 'ä more\n' >&2; exit 3`,
		"binary": `head -c 100000 /dev/urandom >&2; exit 3`,
		"zeros":  `printf '\000\001\033[31m\n' >&2; exit 3`,
		"shot":   `printf '\377\n' >&2; kill -9 $$`,
	} {
		id := c.run(name, script)
		sw := c.wait(id)
		if sw.GetCounts().GetFailed() != 1 {
			t.Errorf("%s: %s", name, sw.GetReason())
		}
		reason := c.trials(id)[0].GetReason()
		if name == "latin" && !strings.Contains(reason, "exited with code 3: K\uFFFDnnte nicht lesen") {
			t.Errorf("the reason is %q", reason)
		}
		if name == "latin" && !slices.Contains(c.printed(id, 0), "K\uFFFDnnte nicht lesen") {
			t.Errorf("it printed %q", c.printed(id, 0))
		}
	}
	c.stillTrains()
	c.stop()
}

// TestACheckpointHoldsNothingUp (H5 and M8) checks that a checkpoint that blocks, is endless or consists of holes
// occupies neither its own device nor others.
func TestACheckpointHoldsNothingUp(t *testing.T) {
	t.Parallel()
	c := contain(t, 1)
	const again = `while :; do echo '{"step": 1, "loss": 1, "checkpoint": "'$PWD/ckpt'"}' >> $OUTBID_REPORT; sleep .05; done`
	for name, script := range map[string]string{
		"swapped": `mkdir ckpt; echo x > ckpt/a; mkfifo b; (while :; do mv ckpt/a t; mv b ckpt/a; mv ckpt/a b; mv t ckpt/a; done) & ` + again,
		"fifo":    `mkfifo ckpt; ` + again,
		"endless": `mkdir ckpt; truncate -s 8T ckpt/hole; ` + again,
		"reports": `truncate -s 8T $OUTBID_REPORT; sleep 600`,
	} {
		id := c.run(name, script, func(sp *outbidv1.SweepSpec) { sp.Tuner = random(9) })
		poll(t, "a device for "+name, func() bool {
			trials := c.trials(id)
			return len(trials) == 1 && (trials[0].GetStep() > 0 || name == "reports" && trials[0].GetState() == outbidv1.TrialState_TRIAL_STATE_RUNNING)
		})
		began := time.Now()
		c.command(id, outbidv1.SweepCommand_SWEEP_COMMAND_STOP)
		if state := c.wait(id).GetState(); state != outbidv1.SweepState_SWEEP_STATE_STOPPED {
			t.Errorf("%s is %s", name, state)
		}
		t.Logf("%s was stopped after %s", name, time.Since(began).Round(time.Millisecond))
	}
	// Reports after a checkpoint with 3 GB of holes do not wait.
	id := c.run("sparse", `truncate -s 3G ckpt; echo '{"step": 1, "loss": 1, "checkpoint": "'$PWD/ckpt'"}' >> $OUTBID_REPORT
echo '{"step": 2, "loss": 1}' >> $OUTBID_REPORT; exec sleep 600`, func(sp *outbidv1.SweepSpec) { sp.Tuner = random(9) })
	poll(t, "the report behind the holes", func() bool {
		trials := c.trials(id)
		return len(trials) == 1 && trials[0].GetStep() == 2
	})
	c.command(id, outbidv1.SweepCommand_SWEEP_COMMAND_STOP)
	c.wait(id)
	c.stillTrains()
	c.stop()
}

// thieves is a script that names files of its worker as its checkpoints, while its victim saves.
const thieves = `ln -s /proc/self/fd fds; ln -s /proc/self/root root; ln -s $STORE store; step=0
name() { step=$((step+1)); printf '{"step": %d, "loss": 1, "checkpoint": "%s"}\n' $step "$1" >> $OUTBID_REPORT; }
round=0; while [ $round -lt 60 ]; do round=$((round+1))
for n in $(seq 0 40); do name /proc/self/fd/$n; name $PWD/fds/$n; name /dev/fd/$n; done
name /proc/self/root$STORE; name $PWD/root/etc/shadow; name /etc/shadow; name /proc/self/environ; name $STORE; name $PWD/store; name /proc/1/root; name $VICTIM
sleep .1; done; [ $step -gt 1000 ]; ls -R $STORE; cat $STORE/*/*/*/*`

// TestCheckpointsOfOthersAreNotStolen (B4 and H1) checks that a program gets nothing of another tenant's weights,
// whatever it names as its own, and cannot read the store's directory.
func TestCheckpointsOfOthersAreNotStolen(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can run trials as other users, so nothing confines them here")
	}
	open := openDir(t)
	store := filepath.Join(open, "store")
	c := contain(t, 2, "--store", store)
	const secret = "the weights of another tenant"
	victim := c.run("victim", `yes '`+secret+`' | head -c 10000000 > w; i=0; while [ $i -lt 100000 ]; do i=$((i+1)); cp w $OUTBID_CHECKPOINT_OUT.tmp; mv $OUTBID_CHECKPOINT_OUT.tmp $OUTBID_CHECKPOINT_OUT
echo '{"step": '$i', "loss": 1, "checkpoint": "'$OUTBID_CHECKPOINT_OUT'"}' >> $OUTBID_REPORT; sleep .1; [ $i -lt 20 ] || sleep 1; done`, func(sp *outbidv1.SweepSpec) {
		sp.Tuner, sp.Checkpoints = random(100_000), &outbidv1.Checkpoints{All: true}
	})
	poll(t, "the victim's weights", func() bool {
		trials := c.trials(victim)
		return len(trials) == 1 && len(trials[0].GetCheckpoints()) > 0
	})
	thief := c.run("thief", thieves, func(sp *outbidv1.SweepSpec) {
		sp.Checkpoints = &outbidv1.Checkpoints{All: true}
		sp.GetProgram().Env = map[string]string{"STORE": store, "VICTIM": filepath.Join(store, "checkpoints", victim, "0")}
	})
	sw := c.wait(thief)
	trial := c.trials(thief)[0]
	if n := len(trial.GetCheckpoints()); n > 0 {
		t.Errorf("it has %d checkpoints, one of %d bytes", n, trial.GetCheckpoints()[0].GetBytes())
		for _, ck := range trial.GetCheckpoints() {
			if bytes.Contains(c.checkpointAt(thief, ck.GetStep()), []byte(secret)) {
				t.Fatalf("the checkpoint of step %d contains another tenant's weights", ck.GetStep())
			}
		}
	}
	text := strings.Join(c.printed(thief, 0), "\n")
	if strings.Contains(text, secret) || strings.Count(text, "ermission denied") < 2 {
		t.Errorf("of the store it read\n%.500s", text)
	}
	if trial.GetStep() < 1000 || len(notes(sw, "leads into a kernel file system")) == 0 || len(notes(sw, "ermission denied")) == 0 {
		t.Errorf("it reached step %d, with notes %v", trial.GetStep(), sw.GetNotes())
	}
	poll(t, "ten checkpoints of the victim", func() bool { return len(c.trials(victim)[0].GetCheckpoints()) >= 10 })
	c.command(victim, outbidv1.SweepCommand_SWEEP_COMMAND_STOP)
	c.wait(victim)
	err := filepath.WalkDir(store, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s is %v", path, info.Mode())
		}
		return err
	})
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	c.stillTrains()
	c.stop()
}

// checkpointAt returns the checkpoint of a step, or its beginning.
func (c *containment) checkpointAt(id string, step int64) []byte {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	stream, err := c.GetCheckpoint(ctx, &outbidv1.GetCheckpointRequest{Sweep: id, Step: &step})
	var data []byte
	for err == nil && len(data) < 1<<20 {
		var part *outbidv1.GetCheckpointResponse
		if part, err = stream.Recv(); err == nil {
			data = append(data, part.GetData()...)
		}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		c.t.Log(err)
	}
	return data
}
