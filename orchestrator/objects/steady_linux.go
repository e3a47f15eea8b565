package objects

import (
	"os"

	"golang.org/x/sys/unix"
)

// beginWriting makes the kernel send a part of a file to its disk. Errors appear again when the file is synced.
func beginWriting(f *os.File, off, n int64) {
	_ = unix.SyncFileRange(int(f.Fd()), off, n, unix.SYNC_FILE_RANGE_WRITE)
}

// awaitWriting waits until that part has been sent.
func awaitWriting(f *os.File, off, n int64) {
	_ = unix.SyncFileRange(int(f.Fd()), off, n, unix.SYNC_FILE_RANGE_WAIT_BEFORE|unix.SYNC_FILE_RANGE_WRITE|unix.SYNC_FILE_RANGE_WAIT_AFTER)
}
