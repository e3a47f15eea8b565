package objects

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFullDisk writes to a file system of 1 MB, if the system lets the test mount one.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	if err := unix.Mount("tmpfs", root, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("cannot mount a small file system here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(root, 0); err != nil {
			t.Error(err)
		}
	})
	d, err := OpenDir(root)
	if err != nil {
		t.Fatal(err)
	}
	big := strings.Repeat("x", 2<<20)
	if err := d.Put(t.Context(), "a/big", strings.NewReader(big), int64(len(big))); !errors.Is(err, ErrFull) {
		t.Fatalf("%v: want %v", err, ErrFull)
	}
	path := filepath.Join(t.TempDir(), "file") // on another file system, so it is copied
	if err := os.WriteFile(path, []byte(big), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := PutFile(t.Context(), d, "a/big", path); !errors.Is(err, ErrFull) {
		t.Fatalf("%v: want %v", err, ErrFull)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the file that found no room is gone: %v", err)
	}
	if err := d.Put(t.Context(), "a/small", strings.NewReader("x"), 1); err != nil {
		t.Errorf("what was given up still takes room: %v", err)
	}
}
