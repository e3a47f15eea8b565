// Package uptime measures elapsed time by the clock that counts from the machine's boot. That clock cannot be set and
// runs while the server is down, so a restarted server is not deceived by a changed wall clock.
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

// Mark relates a moment to this machine's uptime, in a file that outlives the server. It is not safe for concurrent
// use.
type Mark struct {
	path string
	now  func() (boot string, up time.Duration, err error)
}

// Open returns the mark in a file, which need not exist.
func Open(path string) *Mark { return &Mark{path: path, now: machine} }

// noted is the content of the file.
type noted struct {
	Boot   string        `json:"boot"`
	Uptime time.Duration `json:"uptime_ns"`
	At     time.Time     `json:"at"`
}

// Note records that it is the moment at now.
func (m *Mark) Note(at time.Time) error {
	boot, up, err := m.now()
	if err != nil {
		return fmt.Errorf("note the uptime: %w", err)
	}
	data, err := json.Marshal(noted{Boot: boot, Uptime: up, At: at})
	if err != nil {
		return fmt.Errorf("note the uptime: %w", err)
	}
	err = atomicfile.Write(m.path, 0o600, func(f *os.File) error { // only the proof can be lost, so it is not synced
		_, err := f.Write(append(data, '\n'))
		return err
	})
	if err != nil {
		return fmt.Errorf("note the uptime: %w", err)
	}
	return nil
}

// Since returns the time since a moment, measured from an earlier note since the last boot. It returns false without
// such a note.
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
		return 0, false, nil //nolint:nilerr // truncated by a crash of the machine, which then has rebooted
	}
	boot, up, err := m.now()
	if err != nil || boot != n.Boot || up < n.Uptime {
		return 0, false, nil //nolint:nilerr // a machine without such a clock does not prove anything
	}
	return n.At.Add(up - n.Uptime).Sub(at), true, nil
}
