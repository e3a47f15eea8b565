// Package health checks whether a worker's machine can run trials, so that a machine that cannot offers no devices,
// and distinguishes failures of the machine from those of a trial.
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
	// freeInodes is how many files must be free in a file system. File systems without a fixed number of files report
	// 0 of 0.
	freeInodes = 1000
	// spareFiles is how many files a worker must be able to open at once for a trial: sockets, output, reports,
	// checkpoints.
	spareFiles = 64
	// startWithin is how long a process that does nothing may take.
	startWithin = 30 * time.Second
)

// Machine describes what is checked.
type Machine struct {
	// Dirs are the directories that the worker and its trials write to.
	Dirs []string
	// FreeBytes is how many bytes must be free there; 0 or less means no limit.
	FreeBytes int64
	// Groups creates and removes a control group for a trial; nil if trials get none.
	Groups func() error
	// Python is the interpreter of functions.
	Python string
}

// Check returns why the machine cannot run trials, each reason in a line of at most limits.Detail bytes, or nil if it
// can. The text of a reason does not change while its cause lasts: it contains no varying numbers.
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

// Warnings returns further problems of the machine that do not keep it from running trials.
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

// writable writes a small file. That fails on a read-only or broken disk, and on one on which only root's reserve is
// left.
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

// startable starts a process that does nothing. If the machine does not have such a program, only a trial will find
// out.
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

// OfNode reports whether an error at the start of a trial was caused by the machine, not by the trial.
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
