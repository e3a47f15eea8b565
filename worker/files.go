package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"google.golang.org/protobuf/proto"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
	"github.com/outbid-dev/outbid/worker/confine"
	"github.com/outbid-dev/outbid/worker/trialfile"
)

// forkFiles are the files of a fork on the node. They also hold the functions to call when its training code is gone.
type forkFiles struct {
	cfg *Config
	// dir is the fork's own directory.
	dir       string
	telemetry *telemetry

	mu    sync.Mutex
	in    *confine.Confinement // what the training code runs in, or nil if that is not known yet
	taken int                  // how many checkpoints were taken from the training code
	leave []func() error       // functions to call at its end
}

func newForkFiles(cfg *Config, lease uint64, t *telemetry) *forkFiles {
	return &forkFiles{cfg: cfg, dir: filepath.Join(cfg.files, fmt.Sprint(lease)), telemetry: t}
}

// trialDir returns the directory that the training code may write to. If the code runs as another user, the directory is
// inside the fork's scratch directory, next to the files that the worker has taken from it.
func (f *forkFiles) trialDir() string {
	if f.cfg.closed {
		return filepath.Join(f.dir, "own")
	}
	return f.dir
}

// makeScratch creates the fork's directories. The training code's directory belongs to the worker until enter changes
// its owner.
func (f *forkFiles) makeScratch() error {
	if !f.cfg.closed {
		if f.cfg.spares.reuse(f.dir) {
			return nil
		}
		return os.MkdirAll(f.dir, 0o700)
	}
	if err := os.Mkdir(f.dir, 0o711); err != nil { //nolint:gosec // the trial's user has to pass through
		return err
	}
	return errors.Join(os.Mkdir(f.trialDir(), 0o700), os.Mkdir(f.takenDir(), 0o700))
}

func (f *forkFiles) takenDir() string { return filepath.Join(f.dir, "taken") }

// setConfinement records what the training code runs in, and gives it the fork's files.
func (f *forkFiles) setConfinement(in *confine.Confinement) error {
	f.mu.Lock()
	f.in = in
	f.mu.Unlock()
	return in.Own(f.trialDir())
}

// atEnd registers a function that is called when the training code is gone.
func (f *forkFiles) atEnd(do func() error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.leave = append(f.leave, do)
}

// workerDir returns the directory for the worker's copies of the training code's files. If the code runs as another
// user, it cannot access this directory.
func (f *forkFiles) workerDir() string {
	if f.cfg.closed {
		return f.takenDir()
	}
	return f.dir
}

// takeFile moves a checkpoint that training code has written out of the trial's reach. If trials run as the worker's
// user, it only checks that the checkpoint is a regular file and not too large.
func (f *forkFiles) takeFile(ctx context.Context, s *outbidv1.ProcessSaved) (*outbidv1.ProcessSaved, error) {
	path := filepath.Clean(s.GetPath())
	if !f.cfg.closed {
		file, info, err := trialfile.OpenBelow(f.trialDir(), path)
		if err != nil {
			return nil, err
		}
		if !info.Mode().IsRegular() {
			return nil, errors.Join(fmt.Errorf("%s is not a regular file", path), file.Close())
		}
		return s, errors.Join(trialfile.CheckSize(info.Size(), f.cfg.CheckpointBytes), file.Close())
	}
	f.mu.Lock()
	in := f.in
	f.taken++
	to := filepath.Join(f.takenDir(), fmt.Sprint(f.taken))
	f.mu.Unlock()
	if in == nil {
		return nil, errors.New("the trial has not started")
	}
	if err := in.TakeFile(ctx, f.trialDir(), path, to, f.cfg.CheckpointBytes); err != nil {
		return nil, err
	}
	taken := proto.CloneOf(s)
	taken.Path = to
	return taken, nil
}

// writable returns the directories that the fork's training code writes to.
func (f *forkFiles) writable() []string {
	dirs := []string{f.trialDir()}
	if home := f.confined().Home(); home != "" {
		dirs = append(dirs, home)
	}
	return dirs
}

// confined returns what the fork's training code runs in, or nil if that is not known yet.
func (f *forkFiles) confined() *confine.Confinement {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.in
}

// clear removes the files of a fork whose training code is gone.
func (f *forkFiles) clear() {
	f.mu.Lock()
	in, leave := f.in, f.leave
	f.leave = nil
	f.mu.Unlock()
	var errs []error
	for _, do := range leave {
		errs = append(errs, do())
	}
	if in.User() != nil {
		errs = append(errs, in.Remove(f.trialDir()))
	}
	if f.cfg.closed || len(errs) > 0 || !f.cfg.spares.keep(f.dir) {
		errs = append(errs, trialfile.Remove(f.dir))
	}
	if err := errors.Join(errs...); err != nil {
		f.telemetry.logger().Warn("cannot remove the files of a trial", "error", err)
	}
}

// copyFile copies a file of the worker to a path that a trial can read.
func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close() //nolint:errcheck // only read
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
