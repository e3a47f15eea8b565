package trialfile

import (
	"context"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Usage is the disk usage of files.
type Usage struct {
	// Bytes is the space on the disk. Files counts files and directories, once for each name.
	Bytes, Files int64
}

// blockBytes is the unit of the kernel's block counts, in bytes.
const blockBytes = 512

// Measure adds up the content of a directory, which training code may change meanwhile, until it has more than most
// files. It needs three descriptors however deep the directory is, and does not follow links. It skips entries that
// it cannot read or that are moved away meanwhile.
func Measure(ctx context.Context, path string, most int64) (Usage, error) {
	fd, err := openToRemove(unix.AT_FDCWD, path)
	if err != nil {
		return Usage{}, &os.PathError{Op: "measure", Path: path, Err: err}
	}
	m := &measure{ctx: ctx, most: most, at: os.NewFile(uintptr(fd), path)}
	err = m.walk()
	return m.sum, errors.Join(err, m.at.Close())
}

// measure walks a tree: down by a directory's name, up by "..".
type measure struct {
	ctx  context.Context //nolint:containedctx // the context of one call
	most int64
	sum  Usage
	at   *os.File
	// above are the directories from the top down to at.
	above []level
}

// level identifies a directory, and has the directories in it that are still to be walked.
type level struct {
	dev, ino uint64
	left     []string
}

func (m *measure) walk() error {
	if err := m.enter(); err != nil {
		return err
	}
	for len(m.above) > 0 {
		if m.sum.Files > m.most || m.ctx.Err() != nil {
			return m.ctx.Err()
		}
		here := &m.above[len(m.above)-1]
		if len(here.left) == 0 {
			if !m.up() {
				return nil
			}
			continue
		}
		name := here.left[len(here.left)-1]
		here.left = here.left[:len(here.left)-1]
		if !m.open(name) {
			continue
		}
		if err := m.enter(); err != nil && len(m.above) == 0 {
			return err
		}
	}
	return nil
}

// open moves to another directory. It returns false, and stays, if that cannot be opened.
func (m *measure) open(name string) bool {
	fd, err := openToRemove(int(m.at.Fd()), name)
	if err != nil {
		return false
	}
	_ = m.at.Close() // a directory
	m.at = os.NewFile(uintptr(fd), name)
	return true
}

// up moves to the parent directory, or returns false at the top. If the directory was moved elsewhere meanwhile, the
// walk ends, because the new parent may not belong to the trial.
func (m *measure) up() bool {
	m.above = m.above[:len(m.above)-1]
	if len(m.above) == 0 || !m.open("..") {
		return false
	}
	var st unix.Stat_t
	to := m.above[len(m.above)-1]
	return unix.Fstat(int(m.at.Fd()), &st) == nil && uint64(st.Dev) == to.dev && st.Ino == to.ino //nolint:unconvert // an int32 on other systems
}

// enter counts the content of the current directory.
func (m *measure) enter() error {
	var st unix.Stat_t
	if err := unix.Fstat(int(m.at.Fd()), &st); err != nil {
		return err
	}
	m.above = append(m.above, level{dev: uint64(st.Dev), ino: st.Ino}) //nolint:unconvert // an int32 on other systems
	here := &m.above[len(m.above)-1]
	for m.sum.Files <= m.most && m.ctx.Err() == nil {
		names, err := m.at.Readdirnames(listed)
		for _, name := range names {
			if unix.Fstatat(int(m.at.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
				continue // gone
			}
			m.sum.Files, m.sum.Bytes = m.sum.Files+1, m.sum.Bytes+int64(st.Blocks)*blockBytes //nolint:unconvert // the type differs between systems
			if st.Mode&unix.S_IFMT == unix.S_IFDIR && uint64(st.Dev) == here.dev {            //nolint:unconvert // an int32 on other systems
				here.left = append(here.left, name)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}
