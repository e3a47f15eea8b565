package objects

import (
	"os"

	"github.com/outbid-dev/outbid/orchestrator/sparse"
)

// steadyBytes are on their way to the disk while as many are written: no more than a sync of a few bytes beside them hardly waits for.
const steadyBytes = 64 << 10

// steadyWriter writes a file and brings it to its disk meanwhile, so that its sync at the end finds little left to do. A file
// system orders what it commits: who syncs a few bytes beside a large file, as the ledger does, waits for what that file's sync
// has to bring to the disk first.
type steadyWriter struct {
	f *os.File
	// to leaves holes where there would be zeros.
	to *sparse.Writer
	// written of the file's bytes have been written, and begun of them sent to the disk.
	written, begun int64
}

func newSteadyWriter(f *os.File) *steadyWriter { return &steadyWriter{f: f, to: sparse.NewWriter(f)} }

// end gives the file its length.
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
	return n, err //nolint:wrapcheck // as of the file
}
