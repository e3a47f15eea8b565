// Package predecessor says how the worker before this one in its directory ended. A worker that something else than its trials
// has killed is no evidence against these.
package predecessor

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"

	"github.com/outbid-dev/outbid/orchestrator/atomicfile"
	"github.com/outbid-dev/outbid/worker/proctable"
)

// Note is a worker's note for the next one in its directory.
type Note struct {
	path string
	// kills counts what the kernel has killed.
	kills func() int64

	mu   sync.Mutex
	note note
}

// note is what the file holds.
type note struct {
	// Boot of the worker, and of its machine.
	Boot    string `json:"boot"`
	Machine string `json:"machine"`
	// Isolated says that its trials were other users, who can send it no signals.
	Isolated bool `json:"isolated"`
	// Crashes is the file into which the process writes a crash of its own; it is empty if there was none.
	Crashes string `json:"crashes"`
	// OOMKills is how many processes the kernel had killed on the machine for want of memory when this was last written.
	OOMKills int64 `json:"oom_kills"`
}

// Begin notes that a worker begins. It returns the boot of the one before if that was killed by something else than its trials:
// the machine has not restarted since, these were isolated, it has not crashed, and the kernel has killed nothing for want of
// memory. Otherwise, and where that cannot be told, killed is "".
func Begin(dir, boot string, isolated bool) (n *Note, killed string, err error) {
	return begin(dir, boot, isolated, oomKills)
}

func begin(dir, boot string, isolated bool, kills func() int64) (n *Note, killed string, err error) {
	n = &Note{path: filepath.Join(dir, "worker.json"), kills: kills}
	var old note
	data, err := os.ReadFile(n.path)
	if err == nil && json.Unmarshal(data, &old) == nil && old.killed(kills()) {
		killed = old.Boot
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, "", fmt.Errorf("read how the worker before ended: %w", err)
	}
	crashes, err := crashFile(dir)
	if err != nil {
		return nil, "", err
	}
	n.note = note{Boot: boot, Machine: proctable.BootID(), Isolated: isolated, Crashes: crashes, OOMKills: kills()}
	return n, killed, n.write()
}

// killed says whether the worker of a note that was left was killed by something else than its trials, if the kernel has killed so many processes by now.
func (n note) killed(kills int64) bool {
	crash, err := os.Stat(n.Crashes)
	return n.Isolated && n.Machine != "" && n.Machine == proctable.BootID() && err == nil && crash.Size() == 0 &&
		n.OOMKills >= 0 && n.OOMKills == kills
}

// Refresh notes how many processes the kernel has killed by now. It is for the worker to call now and then: of what is killed
// between the last call and its end it may be one.
func (n *Note) Refresh() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	kills := n.kills()
	if kills == n.note.OOMKills {
		return nil
	}
	n.note.OOMKills = kills
	return n.write()
}

// End removes the note, as the worker ends in good order.
func (n *Note) End() error {
	if err := os.Remove(n.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the note of how the worker ends: %w", err)
	}
	return nil
}

func (n *Note) write() error {
	data, err := json.Marshal(n.note)
	if err == nil {
		err = atomicfile.Write(n.path, 0o600, func(f *os.File) error {
			_, err := f.Write(data)
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("note that the worker runs: %w", err)
	}
	return nil
}

// oomKills is how many processes the kernel has killed on this machine for want of memory, -1 where it does not say.
func oomKills() int64 {
	f, err := os.Open("/proc/vmstat")
	if err != nil {
		return -1
	}
	defer f.Close() //nolint:errcheck // it was only read
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "oom_kill "); ok {
			if n, err := strconv.ParseInt(text, 10, 64); err == nil {
				return n
			}
		}
	}
	return -1
}

// crashes is the file of this process, of which there is one however many workers it has.
var crashes struct { //nolint:gochecknoglobals // the Go runtime has one for the process
	sync.Mutex
	path string
}

// crashFile has the Go runtime write what ends this process, such as a panic, into a file. That is in the directory of the first worker.
func crashFile(dir string) (string, error) {
	crashes.Lock()
	defer crashes.Unlock()
	if _, err := os.Stat(crashes.path); err == nil && crashes.path != "" {
		return crashes.path, nil
	}
	path, err := filepath.Abs(filepath.Join(dir, "crash.txt"))
	if err != nil {
		return "", fmt.Errorf("a file for crashes: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err == nil {
		err = errors.Join(debug.SetCrashOutput(f, debug.CrashOptions{}), f.Close()) // it keeps a copy of the descriptor
	}
	if err != nil {
		return "", fmt.Errorf("a file for crashes: %w", err)
	}
	crashes.path = path
	return path, nil
}
