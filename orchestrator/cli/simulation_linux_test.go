package cli

import (
	"os"
	"os/exec"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// The process of a simulation runs only when the server does not want the processor: each of its threads, also later ones.
func TestASimulationYieldsToTheServer(t *testing.T) {
	const inProcess = "OUTBID_TEST_YIELDS"
	if os.Getenv(inProcess) == "" {
		t.Parallel()
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestASimulationYieldsToTheServer$")
		cmd.Env = append(os.Environ(), inProcess+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	yieldToServer()
	for range 3 {
		found := make(chan *unix.SchedAttr)
		go func() {
			runtime.LockOSThread() // it is not unlocked, so that each runs on another thread
			a, err := unix.SchedGetAttr(0, 0)
			if err != nil {
				t.Error(err)
			}
			found <- a
		}()
		if a := <-found; a.Policy != unix.SCHED_IDLE {
			t.Errorf("a thread has the scheduling policy %d, want %d", a.Policy, unix.SCHED_IDLE)
		}
	}
}
