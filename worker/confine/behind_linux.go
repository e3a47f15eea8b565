package confine

import (
	"os"
	"path/filepath"
	"time"
)

// behindPatience is how long what is in a group behind takes only CPUs that nobody else wants: whoever else wakes up then interrupts
// it at once, which no share does, however small. But on a machine that is always busy that is a third of a percent, and a
// trial's forks stand still until their average is there: so after it the group has the share that every group has.
const behindPatience = 3 * time.Second

// makeBehind makes a group behind; none, "", where groups cannot be told to take only what nobody wants, before Linux 5.15.
func makeBehind(dir string) (string, error) {
	if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // as the kernel makes them
		return "", err
	}
	if _, err := os.Stat(filepath.Join(dir, "cpu.idle")); err != nil {
		return "", removeGroups(dir)
	}
	return dir, nil
}

func writeIn(dir, file, text string) error {
	return os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644) //nolint:gosec // a file of the kernel's
}

// EnterIdleGroup moves this process into a group behind, as Confiner.IdleGroup names it. Call what it returns when the process begins
// with other work: its patience begins anew then. Entering again would do that too, but the kernel holds up every start and end of a process and of a
// thread on the machine while one enters a group. It enters by itself: a thread that started it inside would be held up there, and with it all that
// wait to start processes.
func EnterIdleGroup(dir string) (anew func(), err error) {
	beIdle(dir)
	patience := time.AfterFunc(behindPatience, func() { _ = haveShare(dir) }) // else it goes on as it is
	return func() { patience.Reset(behindPatience) }, writeIn(dir, "cgroup.procs", "0")
}

// beIdle has a group take only CPUs that nobody else wants. One that others are in is left as it is: they may have waited long
// enough.
func beIdle(dir string) {
	if others, err := pidsIn(dir); err == nil && len(others) == 0 {
		_ = writeIn(dir, "cpu.idle", "1") // else it has its share
	}
}

// haveShare ends that, whoever began it.
func haveShare(dir string) error { return writeIn(dir, "cpu.idle", "0") }
