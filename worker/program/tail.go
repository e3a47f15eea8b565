package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/outbid-dev/outbid/worker/redact"
	"github.com/outbid-dev/outbid/worker/trialfile"
)

const (
	// maxLine bounds a line of the report file, in bytes.
	maxLine = 64 << 10
	// maxPending bounds how many reports are handed on at once.
	maxPending = 1000
	// lastBytes is how much is still read of a trial that was stopped or killed, each time it is looked at.
	lastBytes = 256 << 10
)

// reportFile reads lines from a file that grows.
type reportFile struct {
	file    *os.File
	buf     []byte
	rest    []byte // the beginning of a line whose end is not there yet
	skip    bool   // the line is too long: its rest is skipped
	line    int
	handler func(record)
	bad     func(line int, err error)
	behind  behind
	// mask replaces values of secrets in what is wrong with a line; nil replaces nothing.
	mask *redact.Mask
}

func openReports(path string, handler func(record), bad func(int, error)) (*reportFile, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make the report file: %w", err)
	}
	return &reportFile{file: f, buf: make([]byte, 32<<10), handler: handler, bad: bad, behind: behind{file: f}}, nil
}

// read handles the lines that are there; at the end of the program also a last one without a line end. Once ctx has ended
// it reads lastBytes at most: a file may have no end, such as one of a hole of many TiB, and its trial is to end.
func (f *reportFile) read(ctx context.Context, last bool) error {
	for left := lastBytes; ctx.Err() == nil || left > 0; left -= len(f.buf) {
		if err := f.skipHole(); err != nil {
			return fmt.Errorf("read the report file: %w", err)
		}
		f.behind.check()
		n, err := f.file.Read(f.buf)
		f.behind.read(int64(n))
		f.take(f.buf[:n])
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read the report file: %w", err)
		}
	}
	if last && len(bytes.TrimSpace(f.rest)) > 0 {
		f.take([]byte{'\n'})
	}
	return nil
}

// skipHole goes on behind a hole in a line that is too long anyway: a file may have one of many TiB, and no line end is in it.
func (f *reportFile) skipHole() error {
	if !f.skip {
		return nil
	}
	at, err := f.file.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	info, err := f.file.Stat()
	if err != nil || info.Size() <= at {
		return err
	}
	begin, _ := trialfile.DataAfter(f.file, at, info.Size())
	f.behind.read(begin - at)
	_, err = f.file.Seek(begin, io.SeekStart)
	return err
}

func (f *reportFile) take(data []byte) {
	for len(data) > 0 {
		end := bytes.IndexByte(data, '\n')
		part := data
		if end >= 0 {
			part = data[:end]
		}
		if !f.skip {
			f.rest = append(f.rest, part...)
		}
		if len(f.rest) > maxLine && !f.skip {
			f.bad(f.line+1, fmt.Errorf("longer than %d bytes", maxLine))
			f.rest, f.skip = f.rest[:0], true
		}
		if end < 0 {
			return
		}
		data = data[end+1:]
		f.line++
		if !f.skip {
			f.parse(bytes.TrimSpace(f.rest))
		}
		f.rest, f.skip = f.rest[:0], false
	}
}

func (f *reportFile) parse(line []byte) {
	if len(line) == 0 {
		return
	}
	r, err := parseLine(line)
	if err != nil {
		f.bad(f.line, f.withoutSecrets(line, err))
		return
	}
	f.handler(r)
}

// withoutSecrets returns the error for a line without values of secrets: of a long one the error may quote a part only.
func (f *reportFile) withoutSecrets(line []byte, err error) error {
	masked := f.mask.Bytes(line)
	if bytes.Equal(masked, line) {
		return err
	}
	if _, err = parseLine(masked); err == nil {
		err = errors.New("it holds the value of a secret")
	}
	return err
}

func (f *reportFile) close() error { return f.file.Close() }
