package confine

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// patientIn names the idle group that TestMain makes this process enter, for TestWhoWaitsInVainHasAShareForSomeTime.
const patientIn = "CONFINE_PATIENT_IN"

// shortPatience is the patience with that process.
const shortPatience = 100 * time.Millisecond

// bePatient enters an idle group and computes until standard input ends.
func bePatient(dir string) (status int) {
	if EnterIdleGroup(dir) != nil {
		return 1
	}
	go func() {
		for { //nolint:staticcheck // it computes
		}
	}()
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// A process in an idle group that gets almost no CPU time, because another process always uses its CPU, has an
// ordinary share for some time, and then is idle again.
func TestWhoWaitsInVainHasAShareForSomeTime(t *testing.T) {
	t.Parallel()
	c, err := Open(t.Context(), Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	behind := c.IdleGroup()
	if behind == "" {
		t.Skip("this machine's control groups do not share CPUs or cannot be idle")
	}
	if waited(os.Getpid()) == (waiting{}) {
		t.Skip("this kernel does not count how long threads wait")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	patient := exec.Command(self)
	patient.Env = append(os.Environ(), patientIn+"="+behind)
	in, err := patient.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	busy := exec.Command("sh", "-c", "while :; do :; done")
	// In its own session, because the kernel shares CPUs between sessions: in a session with many other processes,
	// its part of this CPU could be so small that the idle process does not starve.
	busy.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	startOnOneCPU(t, patient, busy)
	stop := watchStarvation(behind, patient.Process.Pid, shortPatience)
	look := time.NewTicker(shortPatience / 20)
	defer look.Stop()
	deadline := time.After(time.Minute)
	for _, want := range []string{"1\n", "0\n", "1\n"} {
		for is := ""; is != want; {
			select {
			case <-look.C:
				text, err := os.ReadFile(filepath.Join(behind, "cpu.idle"))
				if err != nil {
					t.Fatal(err)
				}
				is = string(text)
			case <-deadline:
				t.Fatalf("cpu.idle is not %q in time; it has waited %+v", want, waited(patient.Process.Pid))
			}
		}
	}
	stop()
	if text, err := os.ReadFile(filepath.Join(behind, "cpu.idle")); err != nil || string(text) != "1\n" {
		t.Errorf("after it cpu.idle is %q, %v; want 1", text, err)
	}
	if err := in.Close(); err != nil {
		t.Error(err)
	}
}

// startOnOneCPU starts commands that can only use the same CPU. They are ended with the test.
func startOnOneCPU(t *testing.T, commands ...*exec.Cmd) {
	t.Helper()
	started := make(chan error, len(commands))
	go func() {
		runtime.LockOSThread() // and is not unlocked: the thread ends with this goroutine
		var all, one unix.CPUSet
		err := unix.SchedGetaffinity(0, &all)
		for cpu := 0; err == nil && one.Count() == 0; cpu++ {
			if all.IsSet(cpu) {
				one.Set(cpu)
			}
		}
		if err == nil {
			err = unix.SchedSetaffinity(0, &one)
		}
		for _, cmd := range commands {
			if err == nil {
				err = cmd.Start()
			}
			started <- err
		}
	}()
	for _, cmd := range commands {
		if err := <-started; err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill() // it may have ended
			_ = cmd.Wait()
		})
	}
}

func TestStarved(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before, now waiting
		want        bool
	}{
		"it is not counted":                {waiting{}, waiting{}, true},
		"it had nothing to do":             {waiting{7, 9, false}, waiting{7, 9, false}, false},
		"it went whenever it could":        {waiting{7, 9, true}, waiting{1000, 9, true}, false},
		"it went for half of its time":     {waiting{0, 1000, true}, waiting{500, 1500, true}, false},
		"it went for a tenth of its time":  {waiting{0, 0, true}, waiting{100, 900, true}, false},
		"it went for less than a tenth":    {waiting{0, 0, true}, waiting{99, 900, true}, true},
		"it went for nothing at all of it": {waiting{500, 0, true}, waiting{500, 1, false}, true},
		"it waits still, and did not go":   {waiting{7, 9, true}, waiting{7, 9, true}, true},
	} {
		if got := c.now.starved(c.before); got != c.want {
			t.Errorf("%s: starved is %t", name, got)
		}
	}
}
