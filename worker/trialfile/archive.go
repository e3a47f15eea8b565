package trialfile

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/sparse"
)

// DirectoryMark is the first entry of an archive that represents a directory, so that a checkpoint that is itself a
// tar file is restored as a file.
const DirectoryMark = ".outbid-checkpoint-directory"

// archiver writes a directory as an archive.
type archiver struct {
	ctx    context.Context //nolint:containedctx // lives as long as one call
	tar    *tar.Writer
	limits Limits
	moved  func()
	// files and bytes count what it has written so far.
	files int
	bytes int64
}

// Archive writes an open directory as a tar archive to a new and empty file: its files, directories and symbolic
// links, which are stored as links. Each file is written with the length that it had when it was opened. Archive
// calls moved after each part and stops when ctx ends. The error wraps ErrTooLarge beyond the limits, and ErrKind for
// anything but files, directories and links.
func Archive(ctx context.Context, to, dir *os.File, l Limits, moved func()) error {
	out := sparse.NewWriter(to)
	a := &archiver{ctx: ctx, tar: tar.NewWriter(out), limits: l, moved: moved}
	if err := a.tar.WriteHeader(&tar.Header{Name: DirectoryMark, Typeflag: tar.TypeReg, Mode: 0o600}); err != nil {
		return err
	}
	if err := a.directory(dir, "", 0); err != nil {
		return err
	}
	if err := a.tar.Close(); err != nil {
		return err
	}
	return out.End()
}

// directory writes the content of a directory in order of names.
func (a *archiver) directory(dir *os.File, at string, depth int) error {
	if depth > a.limits.Depth {
		return fmt.Errorf("%s %w: its directories are more than %d deep", dir.Name(), ErrTooLarge, a.limits.Depth)
	}
	names, err := a.names(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if a.ctx.Err() != nil {
			return context.Cause(a.ctx)
		}
		if err := a.entry(dir, name, path.Join(at, name), depth); err != nil {
			return err
		}
		a.moved()
	}
	return nil
}

// names lists a directory in order, up to the allowed number of files.
func (a *archiver) names(dir *os.File) ([]string, error) {
	names, err := dir.Readdirnames(a.limits.Files - a.files + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if a.files += len(names); a.files > a.limits.Files {
		return nil, fmt.Errorf("%w: it has more than %d files", ErrTooLarge, a.limits.Files)
	}
	slices.Sort(names)
	return names, nil
}

// entry writes one entry of a directory under its name in the archive.
func (a *archiver) entry(dir *os.File, name, at string, depth int) error {
	f, info, err := openIn(dir, name)
	if isLink(err) {
		return a.link(dir, name, at)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	head, err := tar.FileInfoHeader(info, "")
	if err != nil {
		return err
	}
	*head = tar.Header{Name: at, Typeflag: head.Typeflag, Mode: head.Mode, Size: head.Size, ModTime: head.ModTime}
	if info.IsDir() {
		head.Name += "/"
		if err := a.tar.WriteHeader(head); err != nil {
			return err
		}
		return a.directory(f, at, depth+1)
	}
	a.bytes += info.Size()
	if err := CheckSize(a.bytes, a.limits.Bytes); err != nil {
		return err
	}
	if err := a.tar.WriteHeader(head); err != nil {
		return err
	}
	return a.data(f, info)
}

// data writes a file without reading its holes.
func (a *archiver) data(f *os.File, info fs.FileInfo) error {
	size := info.Size()
	for at := int64(0); at < size; {
		begin, end := DataAfter(f, at, size)
		if err := copyZeros(a.ctx, a.tar, begin-at, a.moved); err != nil {
			return err
		}
		if begin < size {
			if _, err := f.Seek(begin, io.SeekStart); err != nil {
				return err
			}
			if err := copyData(a.ctx, a.tar, f, end-begin, a.moved); err != nil {
				return err
			}
		}
		at = end
	}
	if now, err := f.Stat(); err != nil || now.Size() < size {
		return errors.Join(fmt.Errorf("%s %w", f.Name(), ErrChanged), err)
	}
	return nil
}

// link writes a symbolic link.
func (a *archiver) link(dir *os.File, name, at string) error {
	target, err := linkTarget(dir, name)
	if err != nil {
		return err
	}
	return a.tar.WriteHeader(&tar.Header{Name: at, Typeflag: tar.TypeSymlink, Linkname: target, Mode: 0o777})
}

// copyZeros writes n zeros.
func copyZeros(ctx context.Context, to io.Writer, n int64, moved func()) error {
	zeros := make([]byte, min(n, 1<<20))
	for n > 0 {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		done, err := to.Write(zeros[:min(n, int64(len(zeros)))])
		if err != nil {
			return err
		}
		n -= int64(done)
		moved()
	}
	return nil
}
