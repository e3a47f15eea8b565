// Package uptime measures how long ago something was by the clock that counts from the start of this machine. Nobody can
// set it, and it goes on while the server is down: so a server that starts again is not deceived by a wall clock that was
// set meanwhile.
package uptime

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/atomicfile"
)

// Mark ties a moment to this machine's uptime, in a file that outlives the server. It is used by one goroutine.
type Mark struct {
	path string
	now  func() (boot string, up time.Duration, err error)
}

// Open returns the mark in a file, which need not be there.
func Open(path string) *Mark { return &Mark{path: path, now: machine} }

// noted is the content of the file.
type noted struct {
	Boot   string        `json:"boot"`
	Uptime time.Duration `json:"uptime_ns"`
	At     time.Time     `json:"at"`
}

// Note says that it is a moment now.
func (m *Mark) Note(at time.Time) error {
	boot, up, err := m.now()
	if err != nil {
		return fmt.Errorf("note the uptime: %w", err)
	}
	data, err := json.Marshal(noted{Boot: boot, Uptime: up, At: at})
	if err != nil {
		return fmt.Errorf("note the uptime: %w", err)
	}
	err = atomicfile.Write(m.path, 0o600, func(f *os.File) error { // nothing is lost with it but the proof, so it is not synced
		_, err := f.Write(append(data, '\n'))
		return err
	})
	if err != nil {
		return fmt.Errorf("note the uptime: %w", err)
	}
	return nil
}

// Since returns how long ago a moment was, by what was noted before and after which this machine has not started anew;
// false if there is no such note.
func (m *Mark) Since(at time.Time) (time.Duration, bool, error) {
	data, err := os.ReadFile(m.path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("read the uptime noted: %w", err)
	}
	var n noted
	if err := json.Unmarshal(data, &n); err != nil {
		return 0, false, nil //nolint:nilerr // cut short by a crash of the machine, which starts anew then
	}
	boot, up, err := m.now()
	if err != nil || boot != n.Boot || up < n.Uptime {
		return 0, false, nil //nolint:nilerr // a machine without such a clock proves nothing
	}
	return n.At.Add(up - n.Uptime).Sub(at), true, nil
}
