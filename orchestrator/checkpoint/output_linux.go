package checkpoint

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// beginSync makes the kernel start to write a part of a file to disk, so that the sync at the end has little left to
// do.
func beginSync(w io.WriterAt, off, n int64) {
	if f, ok := w.(*os.File); ok {
		_ = unix.SyncFileRange(int(f.Fd()), off, n, unix.SYNC_FILE_RANGE_WRITE) // errors appear again in that sync
	}
}
