package trialfile

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func nothing() {}

// pack copies or archives a path into a new file.
func pack(ctx context.Context, t testing.TB, path string, l Limits) (*os.File, error) {
	t.Helper()
	from, info, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	to, err := os.CreateTemp(t.TempDir(), "packed")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = to.Close() })
	if info.IsDir() {
		err = Archive(ctx, to, from, l, nothing)
	} else if err = CheckSize(info.Size(), l.Bytes); err == nil {
		err = Copy(ctx, to, from, info.Size(), nothing)
	}
	_, _ = to.Seek(0, io.SeekStart)
	return to, err
}

// tree describes the content of a directory.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(dir, path)
		switch {
		case err != nil:
		case d.IsDir():
			all[rel+"/"] = ""
		case d.Type()&fs.ModeSymlink != 0:
			target, _ := os.Readlink(path)
			all[rel] = "-> " + target
		default:
			var data []byte
			data, err = os.ReadFile(path)
			all[rel] = string(data)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// blocks returns how many bytes of a file take space.
func blocks(t *testing.T, path string) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}

// A directory is restored as it was: with names that are not text, links, empty files and directories, and holes.
func TestADirectoryComesBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	from, to := filepath.Join(dir, "model"), filepath.Join(dir, "again")
	for _, sub := range []string{"a/b/c", "empty", "K\xf6nig\xff", strings.Repeat("n", 200) + "/" + strings.Repeat("m", 200)} {
		if err := os.MkdirAll(filepath.Join(from, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 100_000)
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
	for name, text := range map[string]string{
		"weights": string(noise), "a/b/c/optimizer": "o", "nothing": "", "K\xf6nig\xff/\x01\n\xfe": "x", "zeros": strings.Repeat("\x00", 9000),
		strings.Repeat("n", 200) + "/" + strings.Repeat("m", 200) + "/deep": "d", "last": strings.Repeat("\x00", 4096) + "x",
	} {
		write(t, filepath.Join(from, name), text)
	}
	for name, target := range map[string]string{"latest": "a/b", "broken": "/nowhere", "kernel": "/proc/self/fd/0"} {
		if err := os.Symlink(target, filepath.Join(from, name)); err != nil {
			t.Fatal(err)
		}
	}
	makeSparse(t, filepath.Join(from, "sparse"), 50<<20)
	packed, err := pack(t.Context(), t, from, Within(1<<30))
	if err != nil {
		t.Fatal(err)
	}
	if err := Restore(t.Context(), packed, to, nothing); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(tree(t, from), tree(t, to)); diff != "" {
		t.Errorf("%.2000s", diff)
	}
	for _, path := range []string{packed.Name(), filepath.Join(to, "sparse")} {
		if n := blocks(t, path); n > 1<<20 {
			t.Errorf("%s takes %d bytes", path, n)
		}
	}
}

func makeSparse(t testing.TB, path string, size int64) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("in the middle"), size/2); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// A file is restored as it was, even if it is an archive itself.
func TestAFileComesBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	if err := errors.Join(w.WriteHeader(&tar.Header{Name: "x", Typeflag: tar.TypeReg}), w.Close()); err != nil {
		t.Fatal(err)
	}
	for i, text := range []string{"", "weights", archive.String(), strings.Repeat("\x00", 100_000), strings.Repeat("\x00", 10_000) + "x" + strings.Repeat("\x00", 10_000)} {
		from, to := filepath.Join(dir, fmt.Sprint("from", i)), filepath.Join(dir, fmt.Sprint("to", i))
		write(t, from, text)
		packed, err := pack(t.Context(), t, from, Within(1<<20))
		if err != nil {
			t.Fatal(err)
		}
		if err := Restore(t.Context(), packed, to, nothing); err != nil {
			t.Fatal(err)
		}
		if data, err := os.ReadFile(to); err != nil || string(data) != text {
			t.Errorf("%d bytes instead of %d, %v", len(data), len(text), err)
		}
		if err := Restore(t.Context(), packed, to, nothing); err == nil {
			t.Error("what was there is replaced")
		}
	}
}

// A sparse file takes no time and no space, whatever its length, but its length counts.
func TestHolesCostNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "sparse")
	const size = 1 << 40
	makeSparse(t, path, size)
	packed, err := pack(t.Context(), t, path, Within(size))
	if err != nil {
		t.Fatal(err)
	}
	info, err := packed.Stat()
	if err != nil || info.Size() != size || blocks(t, packed.Name()) > 1<<20 {
		t.Errorf("%d bytes, %v, which take %d", info.Size(), err, blocks(t, packed.Name()))
	}
	if _, err := pack(t.Context(), t, path, Within(size-1)); !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), "1,099,511,627,776 bytes, at most 1,099,511,627,775") {
		t.Errorf("one byte too many: %v", err)
	}
}

func TestBounds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	deep := filepath.Join(dir, "deep")
	if err := os.MkdirAll(deep+strings.Repeat("/d", 5), 0o700); err != nil {
		t.Fatal(err)
	}
	wide := filepath.Join(dir, "wide")
	if err := os.MkdirAll(filepath.Join(wide, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		write(t, filepath.Join(wide, "sub", fmt.Sprint(i)), "0123456789")
	}
	for name, c := range map[string]struct {
		path   string
		limits Limits
		want   string
	}{
		"deep enough":  {deep, Limits{Bytes: 1, Files: 5, Depth: 5}, ""},
		"too deep":     {deep, Limits{Bytes: 1, Files: 5, Depth: 4}, "more than 4 deep"},
		"few enough":   {wide, Limits{Bytes: 100, Files: 11, Depth: 1}, ""},
		"too many":     {wide, Limits{Bytes: 100, Files: 10, Depth: 1}, "more than 10 files"},
		"too large":    {wide, Limits{Bytes: 99, Files: 11, Depth: 1}, "it has 100 bytes, at most 99"},
		"no directory": {filepath.Join(wide, "sub", "0"), Limits{Bytes: 9}, "it has 10 bytes, at most 9"},
	} {
		_, err := pack(t.Context(), t, c.path, c.limits)
		if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A file and a FIFO are swapped in a directory all the time. Nothing blocks, and only files are accepted.
func TestAFifoThatIsSwappedInDoesNotBlock(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at, aside := filepath.Join(dir, "ckpt", "model"), filepath.Join(dir, "aside")
	if err := os.Mkdir(filepath.Dir(at), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, at, "weights")
	if err := unix.Mkfifo(aside, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var swapper sync.WaitGroup
	swapper.Go(func() {
		for ctx.Err() == nil {
			_ = unix.Renameat2(unix.AT_FDCWD, at, unix.AT_FDCWD, aside, unix.RENAME_EXCHANGE)
		}
	})
	defer swapper.Wait()
	defer stop()
	well, refused := 0, 0
	for well == 0 || refused == 0 {
		switch _, err := pack(t.Context(), t, filepath.Dir(at), Within(100)); {
		case err == nil:
			well++
		case errors.Is(err, ErrKind):
			refused++
		default:
			t.Fatal(err)
		}
	}
}

// The end of a context stops copies at once.
func TestCopiesEndWithTheirContext(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "ckpt")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "a"), strings.Repeat("x", 3*chunk))
	why := errors.New("stopped")
	for _, path := range []string{dir, filepath.Join(dir, "a")} {
		ctx, cancel := context.WithCancelCause(t.Context())
		from, info, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		to, err := os.CreateTemp(t.TempDir(), "packed")
		if err != nil {
			t.Fatal(err)
		}
		parts := 0
		moved := func() {
			parts++
			cancel(why)
		}
		if info.IsDir() {
			err = Archive(ctx, to, from, Within(1<<30), moved)
		} else {
			err = Copy(ctx, to, from, info.Size(), moved)
		}
		if !errors.Is(err, why) || parts > 1 {
			t.Errorf("%s: %v after %d parts", path, err, parts)
		}
		_, _ = from.Close(), to.Close()
	}
}

// A file that is truncated while it is copied is not accepted as a checkpoint.
func TestAFileThatIsCutMeanwhile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "model")
	write(t, path, strings.Repeat("x", 3*chunk))
	from, info, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	to, err := os.CreateTemp(t.TempDir(), "packed")
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	cut := func() {
		if err := os.Truncate(path, 10); err != nil {
			t.Error(err)
		}
	}
	if err := Copy(t.Context(), to, from, info.Size(), cut); !errors.Is(err, ErrChanged) {
		t.Errorf("%v", err)
	}
}

// Arbitrary input as an archive neither fills the disk nor creates anything outside.
func FuzzRestore(f *testing.F) {
	dir := f.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "model", "sub"), 0o700); err != nil {
		f.Fatal(err)
	}
	if err := os.Symlink("../..", filepath.Join(dir, "model", "up")); err != nil {
		f.Fatal(err)
	}
	packed, err := pack(f.Context(), f, filepath.Join(dir, "model"), Within(1))
	if err != nil {
		f.Fatal(err)
	}
	good, err := io.ReadAll(packed)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	for _, h := range []tar.Header{
		{Name: "../out", Typeflag: tar.TypeReg, Size: 3},
		{Name: "/out", Typeflag: tar.TypeReg, Size: 3},
		{Name: "up/out", Typeflag: tar.TypeReg, Size: 3},
		{Name: "fifo", Typeflag: tar.TypeFifo},
		{Name: "hard", Typeflag: tar.TypeLink, Linkname: "/etc/passwd"},
		{Name: "device", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 5},
		{Name: strings.Repeat("d/", 200) + "f", Typeflag: tar.TypeReg, Size: 3},
	} {
		f.Add(crafted(f, &h))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		base := t.TempDir()
		from := filepath.Join(base, "from")
		if err := os.WriteFile(from, data, 0o600); err != nil {
			t.Fatal(err)
		}
		in, err := os.Open(from)
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		_ = os.Mkdir(filepath.Join(base, "in"), 0o700)
		_ = Restore(t.Context(), in, filepath.Join(base, "in", "to"), nothing)
		names, err := os.ReadDir(base)
		if err != nil || len(names) != 2 {
			t.Fatalf("it made %v, %v", names, err)
		}
		_ = filepath.WalkDir(filepath.Join(base, "in"), func(path string, d fs.DirEntry, err error) error {
			if info, failed := d.Info(); err == nil && failed == nil && info.Mode().IsRegular() && info.Size() > int64(len(data)) {
				t.Fatalf("%s has %d bytes", path, info.Size())
			}
			return nil
		})
	})
}

// crafted returns an archive with a link that leads out of it and an entry.
func crafted(f *testing.F, h *tar.Header) []byte {
	f.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	err := errors.Join(
		w.WriteHeader(&tar.Header{Name: DirectoryMark, Typeflag: tar.TypeReg}),
		w.WriteHeader(&tar.Header{Name: "up", Typeflag: tar.TypeSymlink, Linkname: "../.."}), w.WriteHeader(h))
	if h.Size > 0 && err == nil {
		_, err = w.Write([]byte("out"))
	}
	if err := errors.Join(err, w.Close()); err != nil {
		f.Fatal(err)
	}
	return b.Bytes()
}
