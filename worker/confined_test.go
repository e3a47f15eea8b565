package worker

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
	"github.com/outbid-dev/outbid/worker/confine"
)

// others lets trials run as other users, who can access a copy of this program.
func others(t *testing.T) func(c *Config) {
	t.Helper()
	if confine.CanSwitch() != nil {
		t.Skip("needs root")
	}
	dir, err := os.MkdirTemp("/var/tmp", "outbid-test-") //nolint:usetesting // other users must access it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	program := filepath.Join(dir, "trainer")
	if err := copyFile(os.Args[0], program); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, program} {
		if err := os.Chmod(path, 0o755); err != nil { //nolint:gosec // others run it
			t.Fatal(err)
		}
	}
	return func(c *Config) { c.TrialUser, c.FunctionCommand = confine.Auto, []string{program} }
}

// A trial can do everything as another user.
func TestTrialsOfOtherUsers(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(s *site, t *testing.T){
		"function": (*site).pauseAndResume, "program": (*site).programGoesOn,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			var own string
			stop := s.work(t, "", func(c *Config) {
				others(t)(c)
				own = c.Dir
			})
			do(s, t)
			var made struct{ Root string }
			text, err := os.ReadFile(filepath.Join(own, "confined.json"))
			if err == nil {
				err = json.Unmarshal(text, &made)
			}
			if err != nil || made.Root == "" {
				t.Fatalf("the record of the trials' directory is missing: %v, %s", err, text)
			}
			stop()
			if _, err := os.Stat(made.Root); !os.IsNotExist(err) {
				t.Errorf("%s is left: %v", made.Root, err)
			}
		})
	}
}

// A file that a trial names as its checkpoint is read with the trial's rights.
func TestATrialCannotNameFilesOfTheWorker(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	dir, err := os.MkdirTemp("/var/tmp", "outbid-test-") //nolint:usetesting // a trial does not see the files below /tmp
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	secret := filepath.Join(dir, "token")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.work(t, "", others(t))
	o := s.orch
	o.assign(script(1, fmt.Sprintf(`ln -s %s link; echo '{"step":1,"loss":1,"checkpoint":"'$PWD'/link"}' >> $OUTBID_REPORT
echo '{"step":2,"loss":1,"checkpoint":"%s"}' >> $OUTBID_REPORT; ln -s %s $OUTBID_CHECKPOINT_OUT
id -u; cat %s || true`, secret, secret, secret, secret), 0, 0))
	o.awaitText(t, 1, "ended FINISHED")
	text := o.heard(1)
	if strings.Contains(text, "\nsaved ") || strings.Count(text, "was not saved") != 3 {
		t.Errorf("a file of the worker was stored for the trial:\n%s", text)
	}
	s.awaitLog(t, 1, "Permission denied")
}

// A trial has its own /tmp, and checkpoints that it saves there are stored.
func TestATrialMaySaveInItsOwnTmp(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.work(t, "", others(t))
	s.orch.assign(script(1, `cd /tmp; echo weights > $USER; cd - >/dev/null; echo '{"step":1,"loss":1,"checkpoint":"/tmp/'$USER'"}' >> $OUTBID_REPORT; echo here: $(ls /tmp)`, 0, 0))
	s.orch.awaitText(t, 1, "ended FINISHED")
	if text := s.orch.heard(1); !strings.Contains(text, "\nsaved ") {
		t.Errorf("its checkpoint is not stored:\n%s", text)
	}
	s.awaitLog(t, 1, "here: outbid-")
}

// A trial that opens more connections to its worker than allowed gets one note about it. Trials of other users can
// start, report and save meanwhile.
func TestConnectionsOfOneTrialLeaveOthersAlone(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.work(t, "", others(t))
	o := s.orch
	o.assign(function(2, "train", 2, 1))
	o.awaitText(t, 2, "reached 2")
	attack := function(1, "connect", 0, 0)
	attack.Fork.Sweep = "s-2"
	o.assign(attack)
	o.awaitText(t, 1, "note it opens more connections")
	o.change(2, train, 4)
	o.assign(function(3, "train", 2, 2))
	o.awaitText(t, 2, "saved 4", "reached 4")
	o.awaitText(t, 3, "saved 2", "reached 2")
	o.awaitText(t, 1, "report 1")
	if n := o.metric(1, "opened"); n < 1000 {
		t.Errorf("it opened %v connections, too few for the test", n)
	}
	if text := o.heard(1); strings.Count(text, "note ") != 1 {
		t.Errorf("the attacker's messages are\n%s", text)
	}
	o.change(2, train, 5)
	o.awaitText(t, 2, "reached 5")
}

// A daemon of a trial is gone when the next trial starts on its device.
func TestNoDaemonOutlivesItsTrial(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(t *testing.T) func(*Config){
		"own user": func(*testing.T) func(*Config) { return nil }, "another user": others,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.work(t, "", change(t))
			lock := filepath.Join("/var/tmp", fmt.Sprintf("outbid-test-%d-%s.lock", os.Getpid(), name[:3]))
			f, err := os.OpenFile(lock, os.O_CREATE|os.O_RDWR, 0o666)
			if err == nil {
				err = errors.Join(f.Chmod(0o666), f.Close()) //nolint:gosec // written by several users
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.Remove(lock) })
			for leaseID := uint64(1); leaseID <= 4; leaseID++ {
				text := fmt.Sprintf(`exec 9<%q; flock -n 9 || exit 3
setsid sh -c 'touch up; exec sleep 600' & while [ ! -e up ]; do sleep 0.01; done; echo '{"loss":1}' >> $OUTBID_REPORT`, lock)
				s.orch.with(func() { s.orch.assignments = []*outbidv1.Assignment{script(leaseID, text, 0, 0)} })
				s.orch.awaitText(t, leaseID, "ended FINISHED at 1")
			}
		})
	}
}

// A worker that would run code of tenants as its own user ends with an error, unless it is configured to trust them.
func TestAWorkerRefusesTenants(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.orch.with(func() { s.orch.tenants = true })
	s.orch.assign(script(1, `true`, 0, 0))
	refused := make(chan error, 1)
	stop := s.workUntil(t, "", nil, func(err error) { refused <- err })
	if err := <-refused; !errors.Is(err, ErrTenants) {
		t.Errorf("it ended with %v", err)
	}
	stop()
	if text := s.orch.heard(1); text != "" {
		t.Errorf("the trial began: %s", text)
	}
	s.work(t, "", func(c *Config) { c.TrustTrials = true })
	s.orch.awaitText(t, 1, "ended FINISHED")
}

// A worker that the server refuses, such as for its version, ends with the server's reason.
func TestARefusedWorkerEnds(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.orch.with(func() { s.orch.refused = "the server has version 2.0.0 and this worker 1.0.0" })
	refused := make(chan error, 1)
	stop := s.workUntil(t, "", nil, func(err error) { refused <- err })
	if err := <-refused; err == nil || !strings.Contains(err.Error(), "refuses this worker: the server has version 2.0.0") {
		t.Errorf("it ended with %v", err)
	}
	stop()
}

// A trial that exceeds its memory is killed by the kernel, and its failure says so.
func TestOutOfMemoryIsNamed(t *testing.T) {
	t.Parallel()
	if _, controls, err := confine.Groups(); err != nil || !slices.Contains(controls, "memory") {
		t.Skipf("this machine cannot limit memory: %v", err)
	}
	s := newSite(t)
	s.work(t, "", nil)
	hog := script(1, `x=$(head -c 300000000 /dev/zero | tr '\0' x); echo ${#x}`, 0, 0)
	hog.Body.MemoryBytes = 48 << 20
	s.orch.assign(hog)
	s.orch.awaitText(t, 1, "ended FAILED at 0 ", "out of memory: used its 48 MiB (resources.memory)")
}
