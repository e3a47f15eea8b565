package trialfile

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// The usage of files is measured however deep they are and whatever links are among them, up to the given number of
// files.
func TestMeasure(t *testing.T) {
	t.Parallel()
	top, outside := t.TempDir(), t.TempDir()
	write := func(path string, n int) {
		t.Helper()
		if err := os.WriteFile(path, make([]byte, n), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(top, "a"), 1<<20)
	write(filepath.Join(outside, "large"), 5<<20)
	if err := os.Symlink(outside, filepath.Join(top, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(top, "b", "c"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(filepath.Join(top, "b", "c", "d"), 2<<20)
	fd, err := unix.Open(top, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	const deep = 3000
	for i := range deep { // longer than any path may be
		if err := unix.Mkdirat(fd, "deep", 0o700); err != nil {
			t.Fatal(i, err)
		}
		next, err := unix.Openat(fd, "deep", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			t.Fatal(err)
		}
		_ = unix.Close(fd)
		fd = next
	}
	file, err := unix.Openat(fd, "last", unix.O_CREAT|unix.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Write(file, make([]byte, 3<<20)); err != nil {
		t.Fatal(err)
	}
	_, _ = unix.Close(file), unix.Close(fd)
	t.Cleanup(func() { _ = Remove(top) })
	got, err := Measure(t.Context(), top, 1_000_000)
	if want := int64(deep + 6); err != nil || got.Files != want || got.Bytes < 6<<20 || got.Bytes > 6<<20+(deep+6)*8<<10 {
		t.Errorf("measured %+v, want %d files and a little more than %d bytes: %v", got, want, 6<<20, err)
	}
	if got, err := Measure(t.Context(), top, 100); err != nil || got.Files < 100 || got.Files > 110 {
		t.Errorf("measured %+v, want no more than 100 files: %v", got, err)
	}
	if _, err := Measure(t.Context(), filepath.Join(top, "missing"), 1); err == nil {
		t.Error("a missing directory was measured")
	}
}

// If a directory is moved during the measurement, the walk does not leave the trial's directory.
func TestMeasureStaysInside(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	moved := filepath.Join(top, "a", "b")
	if err := os.MkdirAll(moved, 0o700); err != nil {
		t.Fatal(err)
	}
	elsewhere := t.TempDir()
	for i := range 50 {
		if err := os.MkdirAll(filepath.Join(elsewhere, strconv.Itoa(i)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	m := &measure{ctx: t.Context(), most: 1000}
	var err error
	if m.at, err = os.Open(top); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.at.Close() }()
	for _, name := range []string{"", "a", "b"} {
		if name != "" && !m.open(name) {
			t.Fatal(name)
		}
		if err := m.enter(); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Rename(moved, filepath.Join(elsewhere, "b")); err != nil {
		t.Fatal(err)
	}
	if m.up() {
		t.Error("it went up to where the directory was moved")
	}
}
