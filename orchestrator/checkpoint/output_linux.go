package checkpoint

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// beginSync has the kernel begin to bring a part of a file to its disk: who syncs the file at the end finds most of it there.
func beginSync(w io.WriterAt, off, n int64) {
	if f, ok := w.(*os.File); ok {
		_ = unix.SyncFileRange(int(f.Fd()), off, n, unix.SYNC_FILE_RANGE_WRITE) // what fails here fails when it is synced
	}
}

// inMemory says whether w is a file of a file system that is memory, and makes it so long as it will be: then parts of it can be
// mapped and written by several at once. On a disk's file system the kernel takes much longer for a page that is mapped than for
// one that is written.
func inMemory(w io.WriterAt, size int64) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	var fs unix.Statfs_t
	if unix.Fstatfs(int(f.Fd()), &fs) != nil || fs.Type != unix.TMPFS_MAGIC {
		return false
	}
	info, err := f.Stat()
	return err == nil && (info.Size() >= size || f.Truncate(size) == nil)
}

// writeMapped writes a part of such a file, from the beginning of a page of it on; false if it has to be written as others are,
// which says why.
func writeMapped(w io.WriterAt, p []byte, off int64) bool {
	f, ok := w.(*os.File)
	if !ok || off%int64(os.Getpagesize()) != 0 {
		return false
	}
	data, err := unix.Mmap(int(f.Fd()), off, len(p), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return false
	}
	// Where there is no memory left this fails, while to write then would be a signal.
	there := unix.Madvise(data, unix.MADV_POPULATE_WRITE) == nil
	if there {
		copy(data, p)
	}
	return unix.Munmap(data) == nil && there
}
