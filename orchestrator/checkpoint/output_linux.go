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
