package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/outbid-dev/outbid/orchestrator/checkpoint/safetensors"
)

const (
	// mappedBytes limits how much of all files is mapped at once by all readers. It counts as resident memory, although
	// it is the kernel's page cache.
	mappedBytes = 96 << 20
	// largestWindow and smallestWindow bound the mapped size of one file: a part, and the bytes before it in its page.
	// Smaller windows cost more than they save.
	largestWindow, smallestWindow = partBytes + 64<<10, 512 << 10
)

// windows are memory-mapped parts of files, one for each. Numbers are summed directly in the page cache, without
// copies. They are not safe for concurrent use.
type windows struct {
	each int64 // bytes of each window
	of   []window
}

// window is the mapped part of a file.
type window struct {
	in   *input
	at   int64 // offset in the file
	data []byte
}

// newWindows maps files of an average for one of several readers. It returns nil if some sources are not files, or if
// there are too many.
func newWindows(a *Average, readers int64) *windows {
	each := min(mappedBytes/readers/int64(len(a.all)), largestWindow)
	each -= each % int64(os.Getpagesize())
	if each < smallestWindow {
		return nil
	}
	w := &windows{each: each, of: make([]window, len(a.all))}
	for _, in := range a.all {
		if _, ok := in.File.(*os.File); !ok {
			return nil
		}
		w.of[in.index].in = in
	}
	return w
}

// bytes returns a source's data from the mapping, or reads what cannot be mapped.
func (w *windows) bytes(in *input, t safetensors.Tensor, from int64, p []byte) ([]byte, error) {
	off, n := in.begin[t.Name]+from, int64(len(p))
	v := &w.of[in.index]
	if off < v.at || off+n > v.at+int64(len(v.data)) {
		if err := v.move(off, n, w.each); err != nil {
			return p, in.read(t, from, p)
		}
	}
	return v.data[off-v.at:][:n:n], nil
}

// move maps the part of the file from an offset.
func (v *window) move(off, n, each int64) error {
	if err := v.unmap(); err != nil {
		return err
	}
	f, _ := v.in.File.(*os.File)
	page := int64(os.Getpagesize())
	at := off - off%page
	size := min(max(each, off-at+n), v.in.Size-at)
	data, err := unix.Mmap(int(f.Fd()), at, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	v.at, v.data = at, data
	// Parts that are not in the page cache are read from the disk at once, in parallel with the other files'.
	_ = unix.Madvise(data, unix.MADV_WILLNEED) // without it the read is slower
	return nil
}

func (v *window) unmap() error {
	data := v.data
	if v.data = nil; data == nil {
		return nil
	}
	return unix.Munmap(data)
}

func (w *windows) close() error {
	var errs []error
	for k := range w.of {
		errs = append(errs, w.of[k].unmap())
	}
	return errors.Join(errs...)
}

// checkTruncated returns an error if a file was truncated in the meantime, because the kernel fills the rest of a file's last
// page with zeros.
func (w *windows) checkTruncated() error {
	for _, v := range w.of {
		if err := v.in.readAt(make([]byte, 1), v.in.Size-1); err != nil {
			return err
		}
	}
	return nil
}

// guard calls f, and converts a fault in a mapped file to an error: the file was truncated, or its disk cannot read it.
func (w *windows) guard(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if broken := recover(); broken != nil {
			if err = w.explain(broken); err == nil {
				panic(broken) //nolint:forbidigo // another cause
			}
		}
	}()
	if err := f(); err != nil {
		return err
	}
	return w.checkTruncated()
}

// explain returns an error that names the file in which a memory fault occurred, or nil if it was not in a window.
func (w *windows) explain(broken any) error {
	fault, ok := broken.(interface{ Addr() uintptr })
	if !ok {
		return nil
	}
	for _, v := range w.of {
		off := int64(fault.Addr()) - int64(uintptr(unsafe.Pointer(unsafe.SliceData(v.data))))
		if v.data == nil || off < 0 || off >= int64(len(v.data)) {
			continue
		}
		if err := v.in.readAt(make([]byte, 1), v.at+off); err != nil {
			return err
		}
		return fmt.Errorf("read %s: %w at byte %d: the file was changed while it was read", v.in.Name, io.ErrUnexpectedEOF, v.at+off)
	}
	return nil
}
