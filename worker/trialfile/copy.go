package trialfile

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/dustin/go-humanize"
)

// chunk is how much is copied between two checks of the context, in bytes.
const chunk = 8 << 20

// CheckSize returns an error that wraps ErrTooLarge if size is larger than most, in bytes.
func CheckSize(size, most int64) error {
	if size > most {
		return fmt.Errorf("%w: it has %s bytes, at most %s (%s) are allowed", ErrTooLarge, humanize.Comma(size), humanize.Comma(most),
			humanize.IBytes(uint64(most)))
	}
	return nil
}

// Copy copies the first size bytes of a file to a new and empty one. Holes stay holes and take no time. It calls
// moved after each part, and stops when ctx ends. The error wraps ErrChanged if the file has become shorter.
func Copy(ctx context.Context, to, from *os.File, size int64, moved func()) error {
	for at := int64(0); at < size; {
		begin, end := DataAfter(from, at, size)
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
	return to.Truncate(size) // a hole at the end is part of the file
}

// copyData copies n bytes from the current offsets.
func copyData(ctx context.Context, to io.Writer, from *os.File, n int64, moved func()) error {
	for n > 0 {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		part := min(n, chunk)
		done, err := io.CopyN(to, from, part)
		switch {
		case err == io.EOF: //nolint:errorlint // the error of CopyN itself
			return fmt.Errorf("%s %w", from.Name(), ErrChanged)
		case err != nil:
			return err
		}
		n -= done
		moved()
	}
	return nil
}
