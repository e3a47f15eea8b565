// Package sparse writes files with holes in place of zeros, so that a checkpoint with holes takes neither space nor
// time wherever it is copied.
package sparse

import (
	"bytes"
	"os"
)

// Page is the minimum size of a hole, in bytes.
const Page = 4 << 10

// Writer writes a new, empty file from its start. End sets the file's length.
type Writer struct {
	f *os.File
	// at is the offset of the next byte.
	at    int64
	zeros [Page]byte
}

// NewWriter returns a writer for a new, empty file.
func NewWriter(f *os.File) *Writer { return &Writer{f: f} }

// Write implements io.Writer.
func (w *Writer) Write(p []byte) (int, error) {
	written := 0
	for len(p) > 0 {
		n := min(len(p), Page-int(w.at%Page))
		zero := w.isZero(p[:n])
		for n < len(p) && w.isZero(p[n:min(n+Page, len(p))]) == zero {
			n = min(n+Page, len(p))
		}
		if !zero {
			if _, err := w.f.WriteAt(p[:n], w.at); err != nil {
				return written, err
			}
		}
		w.at += int64(n)
		written += n
		p = p[n:]
	}
	return written, nil
}

// End sets the file's length, which includes holes at its end.
func (w *Writer) End() error { return w.f.Truncate(w.at) }

// isZero reports whether p, which is at most a page, is all zeros.
func (w *Writer) isZero(p []byte) bool { return bytes.Equal(p, w.zeros[:len(p)]) }
