// Package sparse writes files that leave holes where there would be zeros, so that a checkpoint of holes takes neither room
// nor time wherever it is copied.
package sparse

import (
	"bytes"
	"os"
)

// Page is the least that is left out, in bytes.
const Page = 4 << 10

// Writer writes a new and empty file from its beginning. End gives the file its length.
type Writer struct {
	f *os.File
	// at is where the next byte goes.
	at    int64
	zeros [Page]byte
}

// NewWriter returns a writer of a new and empty file.
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

// End gives the file its length: what was left out at its end is part of it.
func (w *Writer) End() error { return w.f.Truncate(w.at) }

// isZero reports whether p, which is a page at most, is all zeros.
func (w *Writer) isZero(p []byte) bool { return bytes.Equal(p, w.zeros[:len(p)]) }
