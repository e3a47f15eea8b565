// Package predecessor determines how the previous worker in a directory ended. If something other than its trials
// killed the worker, that is not evidence against the trials.
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

// Note is a worker's note for the next worker in its directory.
type Note struct {
	path string
	// kills returns how many processes the kernel has killed because of memory.
	kills func() int64

	mu   sync.Mutex
	note note
}

// note is the content of the file.
type note struct {
	// Boot identifies the start of the worker, and Machine the boot of the machine.
	Boot    string `json:"boot"`
	Machine string `json:"machine"`
	// Isolated is set if its trials ran as other users, who cannot send it signals.
	Isolated bool `json:"isolated"`
	// Crashes is the file into which the Go runtime writes a crash of the process. It is empty without a crash.
	Crashes string `json:"crashes"`
	// OOMKills is how many processes the kernel had killed on the machine because of memory at the last write.
	OOMKills int64 `json:"oom_kills"`
}

// Begin records that a worker begins. killed is the boot of the previous worker if that was killed by something other
// than its trials: the machine has not restarted since, the trials were isolated, the worker has not crashed, and the
// kernel has not killed a process because of memory. Otherwise, or if that is unknown, killed is "".
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
		return nil, "", fmt.Errorf("read the note of the previous worker: %w", err)
	}
	crashes, err := crashFile(dir)
	if err != nil {
		return nil, "", err
	}
	n.note = note{Boot: boot, Machine: proctable.BootID(), Isolated: isolated, Crashes: crashes, OOMKills: kills()}
	return n, killed, n.write()
}

// killed reports whether the worker that left the note was killed by something other than its trials, given the
// current count of kernel kills.
func (n note) killed(kills int64) bool {
	crash, err := os.Stat(n.Crashes)
	return n.Isolated && n.Machine != "" && n.Machine == proctable.BootID() && err == nil && crash.Size() == 0 &&
		n.OOMKills >= 0 && n.OOMKills == kills
}

// Refresh updates the count of kernel kills. The worker calls it periodically, because any process that the kernel
// kills between the last call and the worker's end may have been the worker.
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

// End removes the note when the worker ends in an orderly way.
func (n *Note) End() error {
	if err := os.Remove(n.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the worker's note: %w", err)
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
		return fmt.Errorf("write the worker's note: %w", err)
	}
	return nil
}

// oomKills returns how many processes the kernel has killed on this machine because of memory, or -1 if that is
// unknown.
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

// crashes is the crash file of this process, which all its workers share.
var crashes struct { //nolint:gochecknoglobals // the Go runtime has one for the process
	sync.Mutex
	path string
}

// crashFile makes the Go runtime write crashes of this process, such as panics, into a file in the directory of the
// process's first worker.
func crashFile(dir string) (string, error) {
	crashes.Lock()
	defer crashes.Unlock()
	if _, err := os.Stat(crashes.path); err == nil && crashes.path != "" {
		return crashes.path, nil
	}
	path, err := filepath.Abs(filepath.Join(dir, "crash.txt"))
	if err != nil {
		return "", fmt.Errorf("create the crash file: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err == nil {
		err = errors.Join(debug.SetCrashOutput(f, debug.CrashOptions{}), f.Close()) // SetCrashOutput duplicates the descriptor
	}
	if err != nil {
		return "", fmt.Errorf("create the crash file: %w", err)
	}
	crashes.path = path
	return path, nil
}
