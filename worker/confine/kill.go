package confine

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outbid-dev/outbid/worker/proctable"
)

// killAll kills the processes that find returns until it returns none.
func killAll(find func() ([]int, error)) error {
	return proctable.KillAll(find, time.Now().Add(proctable.Timeout))
}

// marked returns the processes that started after a time and have a mark in their environment.
func marked(mark string, since time.Time) ([]int, error) {
	return proctable.Find(func(p proctable.Process) bool {
		began, err := p.StartTime()
		if err == nil && time.Unix(int64(began), 0).Before(since.Add(-time.Minute)) { // the clock may have been set
			return false
		}
		return p.Marked(mark)
	})
}

// countedIn returns a counter of a cgroup file, or 0 if the file cannot be read.
func countedIn(path, what string) uint64 {
	n, err := bytesIn(path, what)
	if err != nil || n < 0 {
		return 0
	}
	return uint64(n)
}

// removeGroups removes a control group and those below it, the innermost first, because only their directories can be
// removed. It retries while the kernel still reports a group as busy.
func removeGroups(dir string) error {
	var dirs []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	deadline := time.Now().Add(time.Second)
	for _, dir := range slices.Backward(dirs) {
		for {
			removed := unix.Rmdir(dir)
			if removed == nil || errors.Is(removed, unix.ENOENT) {
				break
			}
			if !errors.Is(removed, unix.EBUSY) || time.Now().After(deadline) {
				err = errors.Join(err, fmt.Errorf("remove control group %s: %w", dir, removed))
				break
			}
			<-time.After(time.Millisecond) // the kernel does not notify when it is done
		}
	}
	return err
}
