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
	// maxLine limits a line of the report file, in bytes.
	maxLine = 64 << 10
	// maxPending limits how many reports are delivered at once.
	maxPending = 1000
	// lastBytes is how much of the report file each read still handles after the trial was stopped or killed.
	lastBytes = 256 << 10
)

// reportFile reads lines from a file that grows.
type reportFile struct {
	file     *os.File
	buf      []byte
	rest     []byte // the beginning of a line without its end
	skip     bool   // the line is too long: its remaining bytes are skipped
	line     int
	end      int64 // offset after the last complete line
	handler  func(record)
	bad      func(line int, err error)
	throttle throttle
	// mask replaces values of secrets in errors about a line; nil replaces nothing.
	mask *redact.Mask
}

func openReports(path string, handler func(record), bad func(int, error)) (*reportFile, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create the report file: %w", err)
	}
	return &reportFile{file: f, buf: make([]byte, 32<<10), handler: handler, bad: bad, throttle: throttle{file: f}}, nil
}

// read handles the complete lines of the file. With last, after the program has ended, it also handles an incomplete
// last line. Once ctx has ended, it reads at most lastBytes, because a file may be practically endless, for example
// with a hole of many TiB, and its trial has to end.
func (f *reportFile) read(ctx context.Context, last bool) error {
	for left := lastBytes; ctx.Err() == nil || left > 0; left -= len(f.buf) {
		if err := f.skipHole(); err != nil {
			return fmt.Errorf("read the report file: %w", err)
		}
		f.throttle.check()
		n, err := f.file.Read(f.buf)
		f.throttle.read(int64(n))
		f.addData(f.buf[:n])
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read the report file: %w", err)
		}
	}
	if last && len(bytes.TrimSpace(f.rest)) > 0 {
		f.addData([]byte{'\n'})
	}
	return nil
}

// skipHole skips a hole in a line that is too long anyway: a file may have one of many TiB, which contains no line
// end.
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
	f.throttle.read(begin - at)
	_, err = f.file.Seek(begin, io.SeekStart)
	return err
}

func (f *reportFile) addData(data []byte) {
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
		f.end = f.throttle.position() - int64(len(data))
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
	r.end = f.end
	f.handler(r)
}

// withoutSecrets returns the error for a line with secrets masked. The error may quote only a part of a secret, so
// the line is masked and parsed again.
func (f *reportFile) withoutSecrets(line []byte, err error) error {
	masked := f.mask.Bytes(line)
	if bytes.Equal(masked, line) {
		return err
	}
	if _, err = parseLine(masked); err == nil {
		err = errors.New("it contains the value of a secret")
	}
	return err
}

func (f *reportFile) close() error { return f.file.Close() }
