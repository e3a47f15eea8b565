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
	// mappedBytes bounds what is mapped of all files at once by all who read them: it counts as resident, though it is the
	// kernel's page cache.
	mappedBytes = 96 << 20
	// largestWindow and smallestWindow bound what is mapped of one file at once: a part and what comes before it in its page.
	// Windows that are smaller cost more than they save.
	largestWindow, smallestWindow = partBytes + 64<<10, 512 << 10
)

// windows are parts of files that are mapped into memory, one of each: numbers are added up where the page cache has them, and
// nothing is copied. They are for one goroutine.
type windows struct {
	each int64 // bytes of one
	of   []window
}

// window is what is mapped of a file.
type window struct {
	in   *input
	at   int64 // of the file
	data []byte
}

// newWindows maps files of an average for one of several readers; nil if some are no files, or they are too many.
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

// bytes gives what a source has, where it is mapped; what cannot be mapped is read.
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

// move maps another part of the file, from a byte of it on.
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
	// Of what is not in the page cache all is read from the disk at once, beside the other files'.
	_ = unix.Madvise(data, unix.MADV_WILLNEED) // else it comes more slowly
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

// whole says which file has been cut off since: the kernel makes up the rest of a page that a file ends in.
func (w *windows) whole() error {
	for _, v := range w.of {
		if err := v.in.readAt(make([]byte, 1), v.in.Size-1); err != nil {
			return err
		}
	}
	return nil
}

// guard calls f, and makes an error of a part of a file that is not there when it is looked at: the file was cut off since, or
// its disk does not give it.
func (w *windows) guard(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if broken := recover(); broken != nil {
			if err = w.explain(broken); err == nil {
				panic(broken) //nolint:forbidigo // it is something else
			}
		}
	}()
	if err := f(); err != nil {
		return err
	}
	return w.whole()
}

// explain says which file is broken where reading memory failed; nil if that was none of the windows.
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
		return fmt.Errorf("read %s: %w at byte %d: it was changed meanwhile", v.in.Name, io.ErrUnexpectedEOF, v.at+off)
	}
	return nil
}
