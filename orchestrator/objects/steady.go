package objects

import (
	"os"

	"github.com/outbid-dev/outbid/orchestrator/sparse"
)

// steadyBytes is how many bytes are being sent to the disk while as many are written. A concurrent sync of a few bytes
// hardly waits for them.
const steadyBytes = 64 << 10

// steadyWriter writes a file and continuously flushes it to disk, so that its sync at the end has little left to do.
// File systems order their commits: a concurrent small sync, such as that of the ledger, would wait for all of a large
// file's data.
type steadyWriter struct {
	f *os.File
	// to leaves holes in place of zeros.
	to *sparse.Writer
	// written is the number of bytes written to the file, begun the number of them sent to the disk.
	written, begun int64
}

func newSteadyWriter(f *os.File) *steadyWriter { return &steadyWriter{f: f, to: sparse.NewWriter(f)} }

// end sets the file's length.
func (s *steadyWriter) end() error { return s.to.End() }

// Write implements io.Writer.
func (s *steadyWriter) Write(p []byte) (int, error) {
	n, err := s.to.Write(p)
	s.written += int64(n)
	for s.written-s.begun >= steadyBytes {
		if s.begun >= steadyBytes {
			awaitWriting(s.f, s.begun-steadyBytes, steadyBytes)
		}
		beginWriting(s.f, s.begun, steadyBytes)
		s.begun += steadyBytes
	}
	return n, err //nolint:wrapcheck // the file's error
}
