package objects

import (
	"fmt"
	"io"
	"os"
	"sync"
)

// part is a part of an object to store: size bytes of a source from an offset.
type part struct {
	source     io.ReaderAt
	from, size int64
}

// open returns the part as the body of a request, and a channel that is closed once no request reads the source any
// more. The part of a file has a separate descriptor, so that a request which still reads it disturbs nothing, and so
// that the kernel sends it without a copy in this process.
func (p part) open() (io.ReadCloser, <-chan struct{}) {
	closed := make(chan struct{})
	if f, ok := p.source.(*os.File); ok {
		if again, err := reopen(f, p.from); err == nil {
			close(closed)
			return &filePart{File: again, end: p.from + p.size}, closed
		}
	}
	return &closing{Reader: io.NewSectionReader(p.source, p.from, p.size), closed: closed}, closed
}

// reopen opens a file again at an offset. It fails on systems without Linux's /proc.
func reopen(f *os.File, from int64) (*os.File, error) {
	again, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil {
		return nil, err
	}
	if _, err := again.Seek(from, io.SeekStart); err != nil {
		_ = again.Close()
		return nil, err
	}
	return again, nil
}

// filePart is the part of a file from its offset to end. It has the method SyscallConn of a file, from which package net
// copies with sendfile.
type filePart struct {
	*os.File

	end int64
}

// Read implements io.Reader.
func (f *filePart) Read(p []byte) (int, error) {
	at, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return 0, err
	}
	if at >= f.end {
		return 0, io.EOF
	}
	return f.File.Read(p[:min(int64(len(p)), f.end-at)])
}

// WriteTo implements io.WriterTo, which the method of the file would do without regard to end.
func (f *filePart) WriteTo(w io.Writer) (int64, error) {
	return io.Copy(w, struct{ io.Reader }{f})
}

// closing is the body of a request, which says when the request no longer reads it.
type closing struct {
	io.Reader
	once   sync.Once
	closed chan struct{}
}

// Close implements io.Closer.
func (c *closing) Close() error {
	c.once.Do(func() { close(c.closed) })
	return nil
}
