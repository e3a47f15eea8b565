package confine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/outbid-dev/outbid/orchestrator/atomicfile"
	"github.com/outbid-dev/outbid/worker/proctable"
	"github.com/outbid-dev/outbid/worker/trialfile"
)

// record is a file that lists what the worker has created, so that the next worker in its directory can remove what a
// killed one left.
type record struct {
	// Boot identifies the boot of the machine: users and groups of another boot have no processes.
	Boot string `json:"boot"`
	// Worker is the worker's own Config.Worker.
	Worker string `json:"worker,omitempty"`
	// Root is the directory of trials' files.
	Root string `json:"root,omitempty"`
	// Groups are the directories of the control groups.
	Groups []string `json:"groups,omitempty"`
	// Users are the user ids without an account that trials run as.
	Users []uint32 `json:"users,omitempty"`

	mu   sync.Mutex
	path string
}

func newRecord(dir, worker string) *record {
	return &record{Worker: worker, Boot: proctable.BootID(), path: filepath.Join(dir, "confined.json")}
}

func (r *record) addUser(uid uint32) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Users = append(r.Users, uid)
	return r.write()
}

func (r *record) dropUser(uid uint32) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Users = slices.DeleteFunc(r.Users, func(u uint32) bool { return u == uid })
	return r.write()
}

func (r *record) save() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.write()
}

func (r *record) write() error {
	data, err := json.Marshal(r)
	if err == nil {
		err = atomicfile.Write(r.path, 0o600, func(f *os.File) error {
			_, err := f.Write(data)
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("write the record of confined trials: %w", err)
	}
	return nil
}

func (r *record) remove() error {
	err := os.Remove(r.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// errDamagedRecord means that a record cannot be decoded.
var errDamagedRecord = errors.New("the record of confined trials is damaged")

// readRecord reads the record in a worker's directory, or returns nil if it does not exist.
func readRecord(dir string) (*record, error) {
	data, err := os.ReadFile(newRecord(dir, "").path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // no worker has used the directory
	}
	if err != nil {
		return nil, fmt.Errorf("read the record of confined trials: %w", err)
	}
	old := new(record)
	if err := json.Unmarshal(data, old); err != nil {
		return nil, fmt.Errorf("%w: %w", errDamagedRecord, err)
	}
	return old, nil
}

// EndTrials ends the processes of all trials of the worker with a Config.Worker that uses a directory. It stops early once
// stop returns true. It is for a child of the worker.
func EndTrials(dir, worker string, stop func() bool) error {
	return killAll(func() ([]int, error) {
		r, err := readRecord(dir)
		if err != nil || r == nil || r.Worker != worker || r.Boot != proctable.BootID() {
			return nil, err // the next worker has the directory, and has ended them
		}
		groups := slices.DeleteFunc(r.Groups, func(dir string) bool { return strings.HasSuffix(dir, idleSuffix) }) // the worker's own work
		thawAll(groups)
		pids, err := insideAll(groups)
		for _, uid := range r.Users {
			own, ownErr := proctable.OfUser(uid)
			pids, err = append(pids, own...), errors.Join(err, ownErr)
		}
		if stop() { // after they were listed: later ones belong to a later lease
			return nil, nil
		}
		// A worker has a thread in a trial's group while it starts a process there.
		return slices.DeleteFunc(pids, func(pid int) bool { return pid == os.Getppid() }), err
	})
}

// insideAll returns the processes in the control groups below directories.
func insideAll(dirs []string) (pids []int, err error) {
	for _, dir := range dirs {
		err = errors.Join(err, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // it was mounted for that worker only, or a trial has ended
			}
			if err != nil || !d.IsDir() {
				return err
			}
			thaw(path)
			inside, err := pidsIn(path)
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			pids = append(pids, inside...)
			return err
		}))
	}
	return pids, err
}

// endLeftovers ends the processes that an earlier worker left, and removes what it created.
func endLeftovers(dir string, log *slog.Logger) error {
	old, err := readRecord(dir)
	if errors.Is(err, errDamagedRecord) {
		log.Warn("processes and files of an earlier worker may be left", "error", err)
		return nil
	}
	if err != nil || old == nil {
		return err
	}
	if old.Boot == proctable.BootID() {
		thawAll(old.Groups)
		for _, dir := range old.Groups {
			if err := endGroups(dir); err != nil {
				return err
			}
		}
		for _, uid := range old.Users {
			if err := killAll(func() ([]int, error) { return proctable.OfUser(uid) }); err != nil {
				return fmt.Errorf("end the processes of an earlier worker's trials: %w", err)
			}
			if err := errors.Join(sweepShared(uid), sweepIPC(uid)); err != nil {
				log.Warn("cannot remove the files of an earlier worker's trial", "error", err)
			}
		}
	}
	if strings.HasPrefix(filepath.Base(old.Root), rootPrefix) {
		if err := trialfile.Remove(old.Root); err != nil {
			log.Warn("cannot remove the files of an earlier worker's trials", "error", err)
		}
	}
	return nil
}

// thawAll continues the processes in the control groups below these directories. With version 1 of control groups a
// process is in one group of each controller, and a stopped process ends only once it is continued in that of the
// freezer. So call it for the groups of all controllers before endGroups.
func thawAll(dirs []string) {
	for _, dir := range dirs {
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				thaw(path)
			}
			return nil // endGroups reports what cannot be read
		})
	}
}

// endGroups ends everything in the control groups below a directory, and removes them.
func endGroups(dir string) error {
	if err := killAll(func() ([]int, error) { return insideAll([]string{dir}) }); err != nil {
		return fmt.Errorf("end the processes of an earlier worker's trials: %w", err)
	}
	// Other children of the earlier worker may still be in the group that it had moved to.
	if err := unix.Rmdir(dir + asideSuffix); err != nil && !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove the control group of an earlier worker: %w", err)
	}
	return removeGroups(dir)
}
