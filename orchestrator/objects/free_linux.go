package objects

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A file system that is mounted with discard, like ext4, discards freed blocks when it commits the deletion. Meanwhile
// a sync of a few bytes, such as that of the ledger, waits: tens of milliseconds for 1 GiB. So large files are freed in
// small steps.
const (
	// freeBytes is the number of bytes freed per step.
	freeBytes = 256 << 10
	// freePause is the pause between two steps. The ledger's next sync includes what was freed since its last one.
	freePause = time.Millisecond
	// freeSync is the number of steps after which the file is synced if nothing else syncs.
	freeSync = 16
)

// freedAtOnce returns the maximum size of files below a directory that are deleted at once. There is a limit only if
// the disk discards.
func freedAtOnce(dir string) int64 {
	if discards(dir) {
		return freeBytes
	}
	return math.MaxInt64
}

// discards reports whether the file system of a directory discards freed blocks when a deletion is committed. If that
// is unknown, it returns false.
func discards(dir string) bool {
	var at unix.Stat_t
	if unix.Stat(dir, &at) != nil {
		return false
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	return err == nil && mountDiscards(string(mounts), unix.Major(at.Dev), unix.Minor(at.Dev))
}

// mountDiscards searches for a device in a file in the format of proc_pid_mountinfo(5).
func mountDiscards(mounts string, major, minor uint32) bool {
	device := fmt.Sprintf("%d:%d", major, minor)
	for line := range strings.Lines(mounts) {
		mount, fileSystem, _ := strings.Cut(line, " - ")
		of, options := strings.Fields(mount), strings.Fields(fileSystem) // the latter are a type, a source and options
		if len(of) < 3 || of[2] != device || len(options) < 3 {
			continue
		}
		for option := range strings.SplitSeq(options[2], ",") {
			if option == "discard" {
				return true
			}
		}
	}
	return false
}

// remove removes the file of an object. On a disk that discards it frees a large file in small steps.
func (d *Dir) remove(ctx context.Context, path string) error {
	return d.freeSlowly(ctx, path, func(to string) error {
		if to == "" {
			return os.Remove(path)
		}
		return os.Rename(path, to)
	})
}

// replace renames a file to that of an object, and frees a large existing file in the same way.
func (d *Dir) replace(ctx context.Context, from, path string) error {
	return d.freeSlowly(ctx, path, func(to string) error {
		if to != "" {
			_ = os.Link(path, to) // if it fails, the old file is freed at once
		}
		return os.Rename(from, path)
	})
}

// freeSlowly calls take with a private name to which take must move the file at path, and then frees the file in small
// steps. If the file may be freed at once, the name is "".
func (d *Dir) freeSlowly(ctx context.Context, path string, take func(to string) error) error {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() <= d.freedAtOnce {
		return take("")
	}
	dir, err := os.MkdirTemp(filepath.Join(d.root, tempDir), "free-*")
	if err != nil {
		return take("")
	}
	to := filepath.Join(dir, "file")
	if err := take(to); err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	shrink(ctx, to)
	_ = os.RemoveAll(dir) // if it fails, Tidy removes it
	return nil
}

// shrink truncates a file in steps, and reports whether it did. It does not change a file that is still open elsewhere
// or that has another link. When ctx ends, it frees the rest at once.
func shrink(ctx context.Context, path string) bool {
	var at unix.Stat_t
	if unix.Lstat(path, &at) != nil || at.Nlink != 1 || os.Chmod(path, 0o600) != nil {
		return false
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	// A write lease is granted only if no other process has the file open.
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		return false
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_UNLCK); err != nil {
		return false
	}
	tick := time.NewTicker(freePause)
	defer tick.Stop()
	for size, n := at.Size, 1; size > 0; n++ {
		size = max(size-freeBytes, 0)
		if f.Truncate(size) != nil || n%freeSync == 0 && unix.Fdatasync(int(f.Fd())) != nil {
			return false
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return true
		}
	}
	return true
}
