package trialfile

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// makeDeep creates nested directories. The thread changes its working directory with them, because a path of that
// length would be too long, and so the thread ends afterwards.
func makeDeep(t *testing.T, dir string, depth int) {
	t.Helper()
	failed := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_FS)
		if err == nil {
			err = unix.Chdir(dir)
		}
		for i := 0; i < depth && err == nil; i++ {
			if err = unix.Mkdir("d", 0o700); err == nil {
				err = unix.Chdir("d")
			}
		}
		failed <- err
	}()
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
}

// A directory with more levels than the worker may have descriptors is removed with few of them.
func TestADeepDirectoryIsRemoved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "left")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	makeDeep(t, dir, 3000)
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	few := unix.Rlimit{Cur: 100, Max: before.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	err := Remove(dir)
	if failed := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); failed != nil {
		t.Fatal(failed)
	}
	if err != nil {
		t.Fatalf("%.200v", err)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is left: %v", err)
	}
}

// Everything in a directory is removed, but not the targets of its links.
func TestAllOfADirectoryIsRemoved(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	dir, other := filepath.Join(base, "left"), filepath.Join(base, "other")
	for _, sub := range []string{dir + "/a/b/c", dir + "/a/outbid-removes-1/x", dir + "/outbid-removes-2", dir + "/shut/in", dir + "/K\xf6/\xff", other} {
		if err := os.MkdirAll(sub, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(other, "kept"), "x")
	write(t, filepath.Join(dir, "a", "b", "file"), "x")
	write(t, filepath.Join(dir, "outbid-removes-3"), "x")
	write(t, filepath.Join(dir, "shut", "in", strings.Repeat("x", 255)), "x")
	for name, target := range map[string]string{"a/link": other, "link": other, "loop": "loop", "a/b/up": "../.."} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range []error{
		unix.Mkfifo(filepath.Join(dir, "a", "fifo"), 0o600), os.Chmod(filepath.Join(dir, "shut", "in"), 0), os.Chmod(filepath.Join(dir, "shut"), 0o500),
		os.Chmod(dir, 0o500), //nolint:gosec // it belongs to the test
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // the second time it does not exist
		if err := Remove(dir); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is left: %v", err)
	}
	if err := os.Symlink(other, dir); err != nil {
		t.Fatal(err)
	}
	if err := Remove(dir); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(other, "kept")); err != nil {
		t.Errorf("the target of a link: %v", err)
	}
}
