package proctable

import (
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"
)

// sleeper starts a process that sleeps, with a mark, and reaps it when it ends.
func sleeper(t *testing.T, mark string) (pid int, reaped <-chan struct{}) {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	cmd.Env = append(os.Environ(), mark)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-done
	})
	return cmd.Process.Pid, done
}

func TestMarkedProcessesAreFoundAndKilled(t *testing.T) {
	t.Parallel()
	mark := "PROCTABLE_TEST=" + t.TempDir()
	first, _ := sleeper(t, mark)
	second, _ := sleeper(t, mark)
	sleeper(t, mark+"2")
	find := func() ([]int, error) { return Find(func(p Process) bool { return p.Marked(mark) }) }
	deadline := time.Now().Add(Timeout)
	for { // between fork and exec a child still has its parent's environment
		got, err := find()
		slices.Sort(got)
		want := []int{first, second}
		slices.Sort(want)
		if err != nil {
			t.Fatal(err)
		}
		if slices.Equal(got, want) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("found %v, want %v", got, want)
		}
	}
	if err := KillAll(find, time.Now().Add(Timeout)); err != nil {
		t.Fatal(err)
	}
	for _, pid := range []int{first, second} {
		if _, lives := Get(pid); lives {
			t.Errorf("process %d lives", pid)
		}
	}
	if err := Kill([]int{first, second}, time.Now()); err != nil {
		t.Errorf("processes that are gone: %v", err)
	}
}

func TestAwaitHasADeadline(t *testing.T) {
	t.Parallel()
	pid, reaped := sleeper(t, "A=B")
	if err := Await(pid, time.Now().Add(time.Millisecond)); err == nil {
		t.Error("it waited for nothing")
	}
	if err := Kill([]int{pid}, time.Now().Add(Timeout)); err != nil {
		t.Error(err)
	}
	<-reaped
	if err := Await(pid, time.Now()); err != nil {
		t.Errorf("a process that is gone: %v", err)
	}
}

func TestOnesOwnProcess(t *testing.T) {
	t.Parallel()
	own, err := OfUser(uint32(os.Getuid()))
	if err != nil || !slices.Contains(own, os.Getpid()) {
		t.Errorf("this process is not among %v: %v", own, err)
	}
	p, ok := Get(os.Getpid())
	if !ok || p.Starttime == 0 || BootID() == "" {
		t.Errorf("%+v, boot %q", p, BootID())
	}
	all, err := Find(func(Process) bool { return true })
	if err != nil || slices.Contains(all, os.Getpid()) {
		t.Errorf("Find finds its own process: %v", err)
	}
}
