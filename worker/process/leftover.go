package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/atomicfile"
	"github.com/outbid-dev/outbid/worker/proctable"
)

// state is the content of the file of running groups.
type state struct {
	// Boot identifies the boot of the machine: process ids of another boot are meaningless.
	Boot string `json:"boot"`
	// Token is in the environment of every process of the worker.
	Token  string  `json:"token"`
	Groups []group `json:"groups"`
}

// group is a process group, identified by its leader.
type group struct {
	PID int `json:"pid"`
	// Start is the leader's start time in clock ticks since boot. Together with it, a process id is unique for a
	// boot.
	Start uint64 `json:"start"`
	// Reaper is the subreaper above the leader, if there is any, and ReaperStart its start time. A subreaper ends
	// with its worker, and ends all its descendants.
	Reaper      int    `json:"reaper,omitempty"`
	ReaperStart uint64 `json:"reaper_start,omitempty"`
}

func (h *Host) file() string { return filepath.Join(h.dir, "processes.json") }

// save writes the list. It need not survive a crash of the machine, which ends the processes too.
func (h *Host) save() error {
	data, err := json.Marshal(state{Boot: proctable.BootID(), Token: h.token, Groups: h.groups})
	if err != nil {
		return fmt.Errorf("encode the list of processes: %w", err)
	}
	err = atomicfile.Write(h.file(), 0o600, func(f *os.File) error {
		_, err := f.Write(data)
		return err
	})
	if err != nil {
		return fmt.Errorf("write the list of processes: %w", err)
	}
	return nil
}

// load reads the list, or returns nil if it does not exist or is from another boot of the machine.
func (h *Host) load() (*state, error) {
	data, err := os.ReadFile(h.file())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // no worker has used the directory
	}
	if err != nil {
		return nil, fmt.Errorf("read the list of processes: %w", err)
	}
	var old state
	if err := json.Unmarshal(data, &old); err != nil {
		return nil, fmt.Errorf("%w: %w", errDamagedList, err)
	}
	if old.Boot != proctable.BootID() || old.Token == "" {
		return nil, nil //nolint:nilnil // as above
	}
	return &old, nil
}

// errDamagedList means that the list of processes cannot be decoded.
var errDamagedList = errors.New("the list of processes is damaged")

// endLeftovers kills processes that an earlier worker left behind: groups whose leader is still the recorded process,
// and every process with the earlier worker's token. A process that only has a recorded id is not killed.
func (h *Host) endLeftovers() error {
	old, err := h.load()
	if errors.Is(err, errDamagedList) {
		h.log.Warn("processes of an earlier worker may be left", "error", err)
		return nil
	}
	if err != nil || old == nil {
		return err
	}
	if err := awaitReapers(*old); err != nil {
		return err
	}
	left, err := leftovers(*old)
	if err != nil {
		return err
	}
	if len(left) == 0 {
		return nil
	}
	h.log.Warn("ending processes that an earlier worker left behind", "pids", left)
	return proctable.Kill(left, time.Now().Add(proctable.Timeout))
}

// awaitReapers waits for the subreapers of an earlier worker, which end all their descendants. They are not killed,
// because only they know their descendants.
func awaitReapers(old state) error {
	deadline := time.Now().Add(proctable.Timeout)
	for _, g := range old.Groups {
		if g.ReaperStart == 0 || startTime(g.Reaper) != g.ReaperStart {
			continue // it has ended
		}
		if err := proctable.Await(g.Reaper, deadline); err != nil {
			return fmt.Errorf("the subreaper of an earlier worker: %w", err)
		}
	}
	return nil
}

// leftovers lists the processes of an earlier worker that still run.
func leftovers(old state) ([]int, error) {
	ours := make(map[int]bool) // groups whose leader is the recorded one
	for _, g := range old.Groups {
		if g.Start != 0 && startTime(g.PID) == g.Start {
			ours[g.PID] = true
		}
	}
	mark := groupEnv + "=" + old.Token
	return proctable.Find(func(p proctable.Process) bool { return ours[p.PGRP] || p.Marked(mark) })
}

// startTime returns the start time of a process in clock ticks since boot, or 0 if it does not exist.
func startTime(pid int) uint64 {
	p, ok := proctable.Get(pid)
	if !ok {
		return 0
	}
	return p.Starttime
}
