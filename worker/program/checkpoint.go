package program

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// directoryMark is the first entry of an archive that stands for a checkpoint directory: a program that saved a plain
// tar file gets it back as a file.
const directoryMark = ".outbid-checkpoint-directory"

// pack copies a checkpoint, so that the program may go on with its own: a file as it is, a directory as an archive.
func pack(from, to string) (err error) {
	info, err := os.Stat(from)
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("copy the checkpoint: %w", err)
	}
	defer func() {
		if err = errors.Join(err, out.Close()); err != nil {
			_ = os.Remove(to) // half of it is of no use
		}
	}()
	if info.IsDir() {
		return archive(out, from)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("checkpoint: %s is neither a file nor a directory", from)
	}
	in, err := os.OpenFile(from, os.O_RDONLY|syscall.O_NONBLOCK, 0) // it may have become something that blocks
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	defer in.Close() //nolint:errcheck // only read
	if _, err := io.Copy(out, in); err != nil {
		return fmt.Errorf("copy the checkpoint: %w", err)
	}
	return nil
}

func archive(out io.Writer, dir string) error {
	w := tar.NewWriter(out)
	if err := w.WriteHeader(&tar.Header{Name: directoryMark, Typeflag: tar.TypeReg, Mode: 0o600}); err != nil {
		return fmt.Errorf("archive the checkpoint: %w", err)
	}
	if err := w.AddFS(os.DirFS(dir)); err != nil {
		return fmt.Errorf("archive the checkpoint: %w", err)
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("archive the checkpoint: %w", err)
	}
	return nil
}

// unpack returns the path that a program can load: a copy of the file, which may share its bytes with the store and
// must not be written to, or a directory made from its archive.
func unpack(from, dir string) (string, error) {
	in, err := os.Open(from)
	if err != nil {
		return "", fmt.Errorf("open the checkpoint: %w", err)
	}
	defer in.Close() //nolint:errcheck // only read
	r := tar.NewReader(in)
	head, err := r.Next()
	if err != nil || head.Name != directoryMark {
		return dir, pack(from, dir) // a file of the program's own
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", fmt.Errorf("unpack the checkpoint: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", fmt.Errorf("unpack the checkpoint: %w", err)
	}
	defer root.Close() //nolint:errcheck // nothing is written through it any more
	for {
		head, err := r.Next()
		if errors.Is(err, io.EOF) {
			return dir, nil
		}
		if err == nil {
			err = extract(root, head, r)
		}
		if err != nil {
			return "", fmt.Errorf("unpack the checkpoint: %w", err)
		}
	}
}

// extract writes one entry; the root keeps it inside its directory.
func extract(root *os.Root, head *tar.Header, r io.Reader) error {
	name := filepath.FromSlash(head.Name)
	switch head.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(name, 0o700)
	case tar.TypeSymlink:
		return root.Symlink(head.Linkname, name)
	case tar.TypeReg:
	default:
		return fmt.Errorf("%s is neither file, directory nor link", head.Name)
	}
	if err := root.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, head.FileInfo().Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}
