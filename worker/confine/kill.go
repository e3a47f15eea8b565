package confine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outbid-dev/outbid/worker/proctable"
)

// killAll kills the processes that find finds until it finds none.
func killAll(find func() ([]int, error)) error {
	return proctable.KillAll(find, time.Now().Add(proctable.Timeout))
}

// marked finds the processes that began since a time and carry a mark in their environment.
func marked(mark string, since time.Time) ([]int, error) {
	return proctable.Find(func(p proctable.Process) bool {
		began, err := p.StartTime()
		if err == nil && time.Unix(int64(began), 0).Before(since.Add(-time.Minute)) { // the clock may have been set
			return false
		}
		return p.Marked(mark)
	})
}

// countedIn reads a count from a file of the kernel's.
func countedIn(path, what string) uint64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if name, count, ok := strings.Cut(strings.TrimSpace(line), " "); ok && name == what {
			n, err := strconv.ParseUint(count, 10, 64)
			if err == nil {
				return n
			}
		}
	}
	return 0
}

// removeGroups removes a control group and those below it: only directories can be removed there, the innermost first.
// What the kernel has not quite let go of is tried again.
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
			<-time.After(time.Millisecond) // the kernel says nothing when it is done
		}
	}
	return err
}
