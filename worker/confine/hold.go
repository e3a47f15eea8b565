package confine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// errNotHeld says that what runs inside cannot be stopped as a whole.
var errNotHeld = errors.New("there is no control group that stops processes")

// mostLooked is how many threads are looked at, at most, to find one that waits for a disk.
const mostLooked = 256

// CanHold says whether Hold, Unwritten and WaitsForDisk work.
func (in *Confinement) CanHold() bool { return in != nil && in.group != nil && in.group.holds() }

// Hold stops everything inside, or lets it run again, without its notice. While something is being started or killed inside it does nothing,
// as nobody could wait for what is stopped; both let what is inside run.
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

// whileRunning lets what is inside run for as long as f takes.
func (in *Confinement) whileRunning(f func() error) error {
	in.gate.RLock()
	defer in.gate.RUnlock()
	_ = in.group.hold(false) // where that cannot be done nothing was held
	return f()
}

// Unwritten is how many bytes inside wrote that are in the kernel's cache only, and not yet on a disk.
func (in *Confinement) Unwritten() (int64, error) {
	if in == nil || in.group == nil {
		return 0, errNotHeld
	}
	return in.group.unwritten()
}

// WaitsForDisk says whether a thread inside waits for a disk, or for something else of the kernel's that no signal ends.
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

// stateOf reads the state of a thread; 0 if it is gone.
func stateOf(thread string) byte {
	stat, err := os.ReadFile(filepath.Join("/proc", thread, "stat"))
	if err != nil {
		return 0
	}
	// The name before the state may hold anything: 12 (a) b) S 1 ...
	if i := strings.LastIndexByte(string(stat), ')'); i >= 0 && i+2 < len(stat) {
		return stat[i+2]
	}
	return 0
}

// thaw lets what a killed worker had stopped in a group run, so that it can be ended.
func thaw(dir string) {
	for file, state := range map[string]string{"freezer.state": "THAWED", "cgroup.freeze": "0"} {
		path := filepath.Join(dir, file)
		if _, err := os.Stat(path); err == nil {
			_ = os.WriteFile(path, []byte(state), 0o644) //nolint:gosec // a file of the kernel's
		}
	}
}

// bytesIn adds up numbers of a file of the kernel's in which each line is a name and a number.
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
