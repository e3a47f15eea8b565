package trialfile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// opener is one of the implementations of openNamed.
type opener func(path string) (int, error)

func openers() map[string]opener { return map[string]opener{"openat2": openNamed, "walk": walk} }

func (o opener) open(path string) (*os.File, error) {
	fd, err := o(path)
	if err != nil {
		return nil, err
	}
	f, _, err := accept(fd, path)
	return f, err
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A trial's own file can be read by any ordinary name.
func TestOrdinaryNamesAreFollowed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(filepath.Join(dir, "a", "b"), 0o700))
	write(t, filepath.Join(dir, "a", "b", "model"), "weights")
	must(os.Symlink("model", filepath.Join(dir, "a", "b", "latest")))
	must(os.Symlink(filepath.Join(dir, "a"), filepath.Join(dir, "absolute")))
	must(os.Symlink("../b/latest", filepath.Join(dir, "a", "b", "around")))
	must(os.Link(filepath.Join(dir, "a", "b", "model"), filepath.Join(dir, "hard")))
	for name, o := range openers() {
		for _, path := range []string{"a/b/model", "a/b/latest", "absolute/b/latest", "a/../a/b/./model", "a/b/around", "hard", "absolute/../a//b/model"} {
			f, err := o.open(dir + "/" + path)
			if err != nil {
				t.Errorf("%s: %s: %v", name, path, err)
				continue
			}
			data, err := io.ReadAll(f)
			if err != nil || string(data) != "weights" {
				t.Errorf("%s: %s: %q, %v", name, path, data, err)
			}
			must(f.Close())
		}
		for _, path := range []string{"a", "absolute", "."} {
			f, err := o.open(dir + "/" + path)
			if err != nil {
				t.Errorf("%s: %s: %v", name, path, err)
				continue
			}
			must(f.Close())
		}
		if _, err := o.open(dir + "/none"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: a missing file: %v", name, err)
		}
	}
}

// A file that only this process has open is not read, by whatever name of the kernel.
func TestFilesOfTheWorkersAreNotOpened(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "secret"), "another tenant's weights")
	secret, err := os.Open(filepath.Join(dir, "secret"))
	if err != nil {
		t.Fatal(err)
	}
	defer secret.Close()
	open, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	link := func(name, target string) string {
		path := filepath.Join(dir, name)
		if err := os.Symlink(target, path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	pid, fd := os.Getpid(), secret.Fd()
	paths := []string{
		fmt.Sprintf("/proc/self/fd/%d", fd), fmt.Sprintf("/proc/%d/fd/%d", pid, fd), fmt.Sprintf("/proc/thread-self/fd/%d", fd),
		fmt.Sprintf("/dev/fd/%d", fd), fmt.Sprintf("/proc/self/task/%d/fd/%d", pid, fd), "/dev/stdin",
		fmt.Sprintf("/proc/self/fd/%d/secret", open.Fd()), "/proc/self/root" + dir + "/secret", "/proc/self/cwd/open.go", "/proc/self/exe",
		"/proc/self/map_files", "/proc/self/mem", "/proc/self/environ", "/proc/self/cmdline", "/proc/cpuinfo", "/proc", "/proc/self/fd", "/sys",
		"/sys/kernel/uevent_seqnum", "/dev/pts",
		link("direct", fmt.Sprintf("/proc/self/fd/%d", fd)), link("fds", "/proc/self/fd") + fmt.Sprintf("/%d", fd), link("root", "/proc/self/root") + dir + "/secret",
		link("chain", filepath.Join(dir, "direct")), link("dev", fmt.Sprintf("/dev/fd/%d", fd)), link("up", "../../../../../../../../proc/self/fd") + fmt.Sprintf("/%d", fd),
		link("proc", "/proc"), link("loop", "loop"),
	}
	for name, o := range openers() {
		for _, path := range paths {
			if f, err := o.open(path); err == nil {
				t.Errorf("%s opened %s as %s", name, path, f.Name())
				_ = f.Close()
			}
		}
	}
}

// Anything but a file or directory neither blocks nor is accepted.
func TestOnlyFilesAndDirectoriesAreOpened(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	paths := []string{"fifo", "socket", "/dev/null", "/dev/zero", "/dev/ptmx", "/dev/tty"}
	if os.Geteuid() == 0 && unix.Mknod(filepath.Join(dir, "device"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5))) == nil {
		paths = append(paths, "device")
	}
	for name, o := range openers() {
		for _, path := range paths {
			if !filepath.IsAbs(path) {
				path = filepath.Join(dir, path)
			}
			if f, err := o.open(path); err == nil {
				t.Errorf("%s opened %s", name, path)
				_ = f.Close()
			}
		}
	}
	if f, _, err := OpenBelow(dir, filepath.Join(dir, "fifo")); err == nil {
		t.Error("a FIFO in the scratch directory was opened")
		_ = f.Close()
	}
}

// Links that lead out of a directory are not opened below it, even if they are swapped in meanwhile.
func TestNothingOutsideIsOpenedBelow(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	own, other := filepath.Join(base, "own"), filepath.Join(base, "other")
	for _, dir := range []string{own, other, filepath.Join(own, "real"), filepath.Join(own, "sub")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(other, "model"), "secret")
	write(t, filepath.Join(own, "real", "model"), "own")
	for _, path := range []string{other + "/model", own, own + "/../other/model", "relative", own + "x/model", "/proc/self/fd/0"} {
		if _, _, err := OpenBelow(own, path); err == nil {
			t.Errorf("%s was opened", path)
		}
	}
	if err := os.Symlink(other, filepath.Join(own, "link")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := OpenBelow(own, filepath.Join(own, "link", "model")); err == nil {
		t.Error("a link was followed")
	}
	stop, swapper := swapping(own, other)
	defer swapper.Wait()
	defer stop()
	for range 20_000 {
		f, _, err := OpenBelow(own, filepath.Join(own, "swapped", "model"))
		if err != nil {
			continue
		}
		data, err := io.ReadAll(f)
		_ = f.Close()
		if string(data) != "own" {
			t.Fatalf("it read %q, %v", data, err)
		}
	}
}

// swapping makes own/swapped alternately a directory of own and a link to another, until it is stopped.
func swapping(own, other string) (stop context.CancelFunc, swapper *sync.WaitGroup) {
	ctx, stop := context.WithCancel(context.Background())
	swapper = new(sync.WaitGroup)
	at := filepath.Join(own, "swapped")
	swapper.Go(func() {
		for ctx.Err() == nil {
			_ = os.Rename(filepath.Join(own, "real"), at)
			_ = os.Rename(at, filepath.Join(own, "real"))
			_ = os.Symlink(other, at)
			_ = os.Remove(at)
		}
	})
	return stop, swapper
}
