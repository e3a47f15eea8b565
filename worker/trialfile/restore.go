package trialfile

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/outbid-dev/outbid/orchestrator/sparse"
)

// ErrArchive is returned for an archive of a directory that Archive did not write.
var ErrArchive = errors.New("the archive of the checkpoint directory is damaged")

// Restore recreates, at to, the source of a copy that Copy or Archive made: a file, or a directory with its content.
// The path must not exist, and nothing is created outside of it. Restore calls moved after each part and stops when
// ctx ends. In case of an error, what it has created stays.
func Restore(ctx context.Context, from *os.File, to string, moved func()) error {
	info, err := from.Stat()
	if err != nil {
		return err
	}
	r := tar.NewReader(from)
	head, err := r.Next()
	if err != nil || head.Name != DirectoryMark {
		return restoreFile(ctx, from, to, info.Size(), moved)
	}
	if err := os.Mkdir(to, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(to)
	if err != nil {
		return err
	}
	defer root.Close()
	x := &extractor{ctx: ctx, root: root, left: Limits{Bytes: info.Size(), Files: maxFiles, Depth: maxDepth}, moved: moved}
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		head, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = x.extract(head, r)
		}
		if err != nil {
			return err
		}
	}
}

func restoreFile(ctx context.Context, from *os.File, to string, size int64, moved func()) error {
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(Copy(ctx, out, from, size, moved), out.Close())
}

// extractor creates the content of an archive.
type extractor struct {
	ctx  context.Context //nolint:containedctx // lives as long as one call
	root *os.Root
	// left limits the remaining content: it cannot be larger than the archive itself.
	left  Limits
	moved func()
}

// extract creates one entry; the root keeps it inside its directory.
func (x *extractor) extract(head *tar.Header, r io.Reader) error {
	name := filepath.FromSlash(path.Clean(head.Name))
	x.left.Files--
	x.left.Bytes -= head.Size
	switch {
	case x.left.Files < 0, x.left.Bytes < 0, strings.Count(name, "/") > x.left.Depth:
		return fmt.Errorf("%w: %q is beyond the limits of its content", ErrArchive, head.Name)
	case head.Typeflag == tar.TypeDir:
		return x.root.MkdirAll(name, 0o700)
	case head.Typeflag == tar.TypeSymlink:
		return x.root.Symlink(head.Linkname, name)
	case head.Typeflag != tar.TypeReg:
		return fmt.Errorf("%w: %q is neither a file nor a directory nor a link", ErrArchive, head.Name)
	}
	if err := x.root.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	f, err := x.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, head.FileInfo().Mode().Perm())
	if err != nil {
		return err
	}
	return errors.Join(x.fill(f, r, head.Size), f.Close())
}

// fill writes a file of an archive, with holes for zeros.
func (x *extractor) fill(f *os.File, r io.Reader, size int64) error {
	out := sparse.NewWriter(f)
	for left := size; left > 0; {
		if x.ctx.Err() != nil {
			return context.Cause(x.ctx)
		}
		n, err := io.CopyN(out, r, min(left, chunk))
		if err != nil {
			return err
		}
		left -= n
		x.moved()
	}
	return out.End()
}
