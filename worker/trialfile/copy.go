package trialfile

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"

	"github.com/dustin/go-humanize"
)

// chunk is how much is copied between two looks at the context, in bytes.
const chunk = 8 << 20

// CheckSize returns an error that wraps ErrTooLarge if a file of size bytes is larger than most.
func CheckSize(size, most int64) error {
	if size > most {
		return fmt.Errorf("%w: it has %s bytes, at most %s (%s) are allowed", ErrTooLarge, humanize.Comma(size), humanize.Comma(most),
			humanize.IBytes(uint64(most)))
	}
	return nil
}

// Copy copies the first size bytes of a file to a new and empty one. Holes stay holes and take no time. It calls moved
// after each part, and ends with ctx. The error wraps ErrChanged if the file has fewer bytes by now.
func Copy(ctx context.Context, to, from *os.File, size int64, moved func()) error {
	for at := int64(0); at < size; {
		begin, end := dataAfter(from, at, size)
		if begin >= size {
			break
		}
		if _, err := from.Seek(begin, io.SeekStart); err != nil {
			return err
		}
		if _, err := to.Seek(begin, io.SeekStart); err != nil {
			return err
		}
		if err := copyData(ctx, to, from, end-begin, moved); err != nil {
			return err
		}
		at = end
	}
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	info, err := from.Stat()
	if err != nil {
		return err
	}
	if info.Size() < size {
		return fmt.Errorf("%s %w", from.Name(), ErrChanged)
	}
	return to.Truncate(size) // a hole at the end is part of it
}

// copyData copies n bytes from where both files are.
func copyData(ctx context.Context, to io.Writer, from *os.File, n int64, moved func()) error {
	for n > 0 {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		part := min(n, chunk)
		done, err := io.CopyN(to, from, part)
		switch {
		case err == io.EOF: //nolint:errorlint // CopyN's own
			return fmt.Errorf("%s %w", from.Name(), ErrChanged)
		case err != nil:
			return err
		}
		n -= done
		moved()
	}
	return nil
}

// sparse writes a file and leaves holes where there would be zeros. Close it to give the file its length.
type sparse struct {
	f *os.File
	// at is where the next byte goes.
	at int64
	// zeros are what is left out.
	zeros [page]byte
}

// page is the least that is left out, in bytes.
const page = 4 << 10

// Write implements io.Writer.
func (s *sparse) Write(p []byte) (int, error) {
	written := 0
	for len(p) > 0 {
		n := min(len(p), page-int(s.at%page))
		zero := s.isZero(p[:n])
		for n < len(p) && s.isZero(p[n:min(n+page, len(p))]) == zero {
			n = min(n+page, len(p))
		}
		if !zero {
			if _, err := s.f.WriteAt(p[:n], s.at); err != nil {
				return written, err
			}
		}
		s.at += int64(n)
		written += n
		p = p[n:]
	}
	return written, nil
}

// end gives the file its length.
func (s *sparse) end() error { return s.f.Truncate(s.at) }

// isZero reports whether p, which is a page at most, is all zeros.
func (s *sparse) isZero(p []byte) bool { return bytes.Equal(p, s.zeros[:len(p)]) }
