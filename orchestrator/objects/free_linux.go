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

// Where a file system is mounted to discard what is freed, as ext4 can be, it does so in the commit that frees it, and who syncs a few
// bytes meanwhile, as the ledger does, waits: for 1 GiB, tens of milliseconds. So a large file is freed bit by bit.
const (
	// freeBytes of a file are freed at once.
	freeBytes = 256 << 10
	// freePause lies between two bits. The ledger's next sync takes along what was freed since its last.
	freePause = time.Millisecond
	// freeSync bits are synced at the latest, where nobody syncs meanwhile.
	freeSync = 16
)

// freedAtOnce is how large the files below a directory are at most that are freed at once: all, unless its disk discards.
func freedAtOnce(dir string) int64 {
	if discards(dir) {
		return freeBytes
	}
	return math.MaxInt64
}

// discards says whether what is freed below a directory is discarded as its deletion is committed. Where that cannot be told, it is not.
func discards(dir string) bool {
	var at unix.Stat_t
	if unix.Stat(dir, &at) != nil {
		return false
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	return err == nil && mountDiscards(string(mounts), unix.Major(at.Dev), unix.Minor(at.Dev))
}

// mountDiscards looks a device up in a file of proc_pid_mountinfo(5).
func mountDiscards(mounts string, major, minor uint32) bool {
	device := fmt.Sprintf("%d:%d", major, minor)
	for line := range strings.Lines(mounts) {
		mount, fileSystem, _ := strings.Cut(line, " - ")
		of, options := strings.Fields(mount), strings.Fields(fileSystem) // the latter a type, a source and options
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

// remove removes the file of an object, and gives a large one back to a disk that discards bit by bit.
func (d *Dir) remove(ctx context.Context, path string) error {
	return d.freeing(ctx, path, func(to string) error {
		if to == "" {
			return os.Remove(path)
		}
		return os.Rename(path, to)
	})
}

// replace renames a file to that of an object, and gives a large one that was there back likewise.
func (d *Dir) replace(ctx context.Context, from, path string) error {
	return d.freeing(ctx, path, func(to string) error {
		if to != "" {
			_ = os.Link(path, to) // else what was there is freed at once
		}
		return os.Rename(from, path)
	})
}

// freeing has take move the file at path to a name that only this call knows, or "" if it is to be freed at once, and frees it bit by bit.
func (d *Dir) freeing(ctx context.Context, path string, take func(to string) error) error {
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
	_ = os.RemoveAll(dir) // or Tidy does
	return nil
}

// shrink makes a file that nobody else can open any more shorter and shorter, and says whether it did: not where somebody has it open
// or by another name, who is to keep it. When ctx ends the rest goes at once.
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
	// A lease to write is granted to who alone has a file open.
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
