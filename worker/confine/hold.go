package confine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// errNotHeld is returned if the processes of a trial cannot be stopped together.
var errNotHeld = errors.New("no control group can stop the trial's processes")

// mostLooked is how many threads are checked to find one that waits for a disk.
const mostLooked = 256

// CanHold reports whether Hold, Unwritten and WaitsForDisk work.
func (in *Confinement) CanHold() bool { return in != nil && in.group != nil && in.group.holds() }

// Hold stops or continues all processes of the trial. It does nothing while a process is being started or killed,
// because a stopped process would block both.
func (in *Confinement) Hold(held bool) error {
	if in == nil || in.group == nil {
		return errNotHeld
	}
	if !in.gate.TryLock() {
		return nil
	}
	defer in.gate.Unlock()
	return in.group.hold(held)
}

// whileRunning calls f while the trial's processes run. Hold does nothing meanwhile.
func (in *Confinement) whileRunning(f func() error) error {
	in.gate.RLock()
	defer in.gate.RUnlock()
	_ = in.group.hold(false) // if this fails, nothing was held
	return f()
}

// Unwritten returns how many bytes the trial wrote that are in the page cache and not yet on a disk.
func (in *Confinement) Unwritten() (int64, error) {
	if in == nil || in.group == nil {
		return 0, errNotHeld
	}
	return in.group.unwritten()
}

// WaitsForDisk reports whether a thread of the trial is in uninterruptible sleep (D), usually for a disk.
func (in *Confinement) WaitsForDisk() bool {
	if in == nil || in.group == nil {
		return false
	}
	text, err := os.ReadFile(in.group.threads())
	if err != nil {
		return false
	}
	looked := 0
	for thread := range strings.FieldsSeq(string(text)) {
		if looked++; looked > mostLooked {
			return false
		}
		if stateOf(thread) == 'D' {
			return true
		}
	}
	return false
}

// stateOf returns the state of a thread, or 0 if it is gone.
func stateOf(thread string) byte {
	stat, err := os.ReadFile(filepath.Join("/proc", thread, "stat"))
	if err != nil {
		return 0
	}
	// The name before the state may contain anything: 12 (a) b) S 1 ...
	if i := strings.LastIndexByte(string(stat), ')'); i >= 0 && i+2 < len(stat) {
		return stat[i+2]
	}
	return 0
}

// thaw continues processes in a group that a killed worker had stopped, so that they can be ended.
func thaw(dir string) {
	for file, state := range map[string]string{"freezer.state": "THAWED", "cgroup.freeze": "0"} {
		path := filepath.Join(dir, file)
		if _, err := os.Stat(path); err == nil {
			_ = os.WriteFile(path, []byte(state), 0o644) //nolint:gosec // a file of the kernel
		}
	}
}

// bytesIn returns the sum of the named counters of a cgroup file with a name and a number in each line.
func bytesIn(path string, names ...string) (sum int64, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		name, count, _ := strings.Cut(strings.TrimSpace(line), " ")
		for _, wanted := range names {
			if name != wanted {
				continue
			}
			n, err := strconv.ParseInt(count, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("read %s: %w", path, err)
			}
			sum += n
		}
	}
	return sum, nil
}
