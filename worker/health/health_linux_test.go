package health_test

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outbid-dev/outbid/worker/health"
)

func TestAMachineThatIsFit(t *testing.T) {
	t.Parallel()
	m := &health.Machine{Dirs: []string{t.TempDir()}, FreeBytes: 1, Groups: func() error { return nil }, Python: "true"}
	if unfit := m.Check(t.Context()); unfit != nil {
		t.Error(unfit)
	}
	if w := m.Warnings(); w != nil {
		t.Error(w)
	}
	if left, err := os.ReadDir(m.Dirs[0]); err != nil || len(left) > 0 {
		t.Errorf("the check leaves %v (%v)", left, err)
	}
}

func TestAMachineThatIsNot(t *testing.T) {
	t.Parallel()
	gone := filepath.Join(t.TempDir(), "gone")
	m := &health.Machine{
		Dirs: []string{t.TempDir(), gone}, FreeBytes: 1 << 60, Python: "no-such-python",
		Groups: func() error { return fmt.Errorf("mkdir x\nxx: %w", syscall.EROFS) },
	}
	got := strings.Join(m.Check(t.Context()), "\n")
	for _, want := range []string{"less than 1.0 EiB are free (--disk-margin)", "disk of " + gone + ": statfs", "control groups: mkdir x xx: read-only"} {
		if !strings.Contains(got, want) {
			t.Errorf("%s\ndoes not say %s", got, want)
		}
	}
	if got := strings.Join(m.Warnings(), "\n"); !strings.Contains(got, `"no-such-python"`) || !strings.Contains(got, "--python") {
		t.Errorf("warns %q", got)
	}
}

// A full and a read-only disk of the kernel.
func TestDisks(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root mounts disks")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m,nr_inodes=4000"); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	m := &health.Machine{Dirs: []string{dir}, FreeBytes: 4096}
	says := func(want string) {
		t.Helper()
		if got := strings.Join(m.Check(t.Context()), "; "); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("it says %q, want %q", got, want)
		}
	}
	says("")
	full := filepath.Join(dir, "full")
	if err := os.WriteFile(full, make([]byte, 2<<20), 0o600); err == nil {
		t.Fatal("2 MiB are in 1 MiB")
	}
	says("less than 4.0 KiB are free")
	if err := os.Remove(full); err != nil {
		t.Fatal(err)
	}
	says("")
	for i := range 3500 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	says("room for less than 1000 more files")
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, "size=1m,nr_inodes=40000"); err != nil {
		t.Fatal(err)
	}
	says("read-only file system")
}

// TestDescriptors runs the check in a process that may open few files.
func TestDescriptors(t *testing.T) {
	t.Parallel()
	if os.Getenv("HEALTH_FEW_FILES") != "" {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 40, Max: 40}); err != nil {
			t.Fatal(err)
		}
		m := &health.Machine{}
		t.Log(m.Check(t.Context()))
		return
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestDescriptors$", "-test.v")
	cmd.Env = append(os.Environ(), "HEALTH_FEW_FILES=1")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "less than 64 more can be opened: open /dev/null: too many open files") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestWhatIsOfTheNode(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]bool{
		&fs.PathError{Op: "mkdir", Path: "/x", Err: syscall.ENOSPC}:                     true,
		fmt.Errorf("start: %w", &os.SyscallError{Syscall: "fork", Err: syscall.EAGAIN}): true,
		syscall.EMFILE: true,
		syscall.ENOENT: false,
		&fs.PathError{Op: "fork/exec", Path: "train", Err: syscall.EACCES}: false,
		fmt.Errorf("no such module"):                                       false,
	} {
		if got := health.OfNode(err); got != want {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
	}
}
