// Package health checks whether a worker's machine can run trials, so that a machine that cannot offers no devices, and
// tells failures of the machine from those of a trial.
package health

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/sanitize"
)

const (
	// freeInodes is how many files it must be possible to make there. File systems without a fixed number of files say 0 of 0.
	freeInodes = 1000
	// spareFiles is how many files a worker must be able to open at once for a trial: sockets, output, reports, checkpoints.
	spareFiles = 64
	// startWithin is how long a process that does nothing may take.
	startWithin = 30 * time.Second
)

// Machine is what is checked.
type Machine struct {
	// Dirs are the directories in which the worker and its trials write.
	Dirs []string
	// FreeBytes is how many bytes must be free there; 0 or less for no bound.
	FreeBytes int64
	// Groups makes and removes a control group for a trial; nil if trials get none.
	Groups func() error
	// Python is the interpreter of functions.
	Python string
}

// Check returns why the machine can take no trials, each reason in a line of at most limits.Detail bytes; nil if it can. A
// reason is the same as long as its cause is: it holds no numbers that vary.
func (m *Machine) Check(ctx context.Context) []string {
	var unfit []string
	find := func(what string, err error) {
		if err != nil {
			unfit = append(unfit, sanitize.Line(what+": "+err.Error(), limits.Detail))
		}
	}
	for _, dir := range m.Dirs {
		find("disk of "+dir, m.disk(dir))
	}
	find("file descriptors", openable())
	find("processes", startable(ctx))
	if m.Groups != nil {
		find("control groups", m.Groups())
	}
	return unfit
}

// Warnings returns what is worth knowing about the machine although it can take trials.
func (m *Machine) Warnings() []string {
	if _, err := exec.LookPath(m.Python); err != nil {
		return []string{sanitize.Line(fmt.Sprintf("functions cannot run: %s; name a Python with --python", err), limits.Detail)}
	}
	return nil
}

func (m *Machine) disk(dir string) error {
	if err := m.room(dir); err != nil {
		return err
	}
	return writable(dir)
}

// room returns an error if a file system has no room for a trial.
func (m *Machine) room(dir string) error {
	bytes, files, known, err := Free(dir)
	switch {
	case err != nil:
		return err
	case m.FreeBytes > 0 && bytes < uint64(m.FreeBytes):
		return fmt.Errorf("less than %s are free (--disk-margin)", humanize.IBytes(uint64(m.FreeBytes)))
	case known && files < freeInodes:
		return fmt.Errorf("it has room for less than %d more files", freeInodes)
	}
	return nil
}

// writable writes a small file, which a read-only or broken disk refuses, and one that is full but for root's share.
func writable(dir string) (err error) {
	f, err := os.OpenFile(filepath.Join(dir, ".check"), os.O_CREATE|os.O_WRONLY|os.O_TRUNC|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
	_, err = f.Write(make([]byte, 4096))
	return errors.Join(err, f.Close())
}

// openable opens as many files at once as a trial may need.
func openable() (err error) {
	files := make([]*os.File, 0, spareFiles)
	defer func() {
		for _, f := range files {
			_ = f.Close() // only opened
		}
	}()
	for range spareFiles {
		f, err := os.Open(os.DevNull)
		if err != nil {
			return fmt.Errorf("less than %d more can be opened: %w", spareFiles, err)
		}
		files = append(files, f)
	}
	return nil
}

// startable starts a process that does nothing. On a machine without such a program only the first trial can tell.
func startable(ctx context.Context) error {
	path, err := exec.LookPath("true")
	if err != nil {
		return nil //nolint:nilerr // nothing to start
	}
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	err = exec.CommandContext(ctx, path).Run()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%s took longer than %s", filepath.Base(path), startWithin)
	}
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the worker stops
	}
	return err
}

// OfNode reports whether an error that kept a trial from starting says something about the machine, not about what was to
// run there.
func OfNode(err error) bool {
	for _, e := range []syscall.Errno{
		syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EIO, syscall.ESTALE, // its disk
		syscall.EMFILE, syscall.ENFILE, // its descriptors
		syscall.EAGAIN, syscall.ENOMEM, // its processes and memory
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
