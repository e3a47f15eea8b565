package confine

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// As calls f with the user's rights to files, and no others: what the user may not open, f may not either, whatever
// links lead there. Files that f makes are the user's.
func (in *Confinement) As(f func() error) error { return in.User().as(f) }

func (u *User) as(f func() error) error {
	if u == nil {
		return f()
	}
	done := make(chan error, 1)
	go func() {
		// The thread is never unlocked, so it ends with the goroutine, and nothing else ever runs with the user's rights.
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() { // the first thread cannot end, and what /proc says of it counts for the process
			defer runtime.UnlockOSThread()
			done <- u.as(f) // on another one, as this one is held
			return
		}
		if err := u.become(); err != nil {
			done <- err
			return
		}
		done <- f()
	}()
	return <-done
}

// become changes whose rights to files this thread has. The system calls are made without the runtime, which would
// change all threads.
func (u *User) become() error {
	groups := append([]uint32{u.GID}, u.Groups...)
	_, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(&groups[0])), 0)
	if errno != 0 {
		return fmt.Errorf("take the groups of %s: %w", u, errno)
	}
	const none = ^uintptr(0)
	for _, set := range []struct {
		call uintptr
		id   uint32
	}{{unix.SYS_SETFSGID, u.GID}, {unix.SYS_SETFSUID, u.UID}} {
		// Both return what was before and no error, so it is asked again what holds now.
		_, _, _ = unix.RawSyscall(set.call, uintptr(set.id), 0, 0)
		if now, _, _ := unix.RawSyscall(set.call, none, 0, 0); uint32(now) != set.id {
			return fmt.Errorf("take the rights of %s: the kernel refuses", u)
		}
	}
	return nil
}

// Reaches says whether the user may enter a directory and read it.
func (u *User) Reaches(dir string) bool {
	err := u.as(func() error {
		f, err := os.Open(dir)
		if err != nil {
			return err
		}
		defer f.Close() //nolint:errcheck // only looked at
		_, err = os.Stat(filepath.Join(dir, "."))
		return err
	})
	return err == nil
}

// TakeFile moves a file that the user made below dir to a place where the user cannot get at it, and makes it the
// worker's. It takes regular files of the user's only.
func (in *Confinement) TakeFile(dir, path, to string) (err error) {
	rel, err := filepath.Rel(dir, path)
	if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
		return fmt.Errorf("%s is not in the trial's scratch directory", path)
	}
	var from *os.File
	err = in.As(func() (err error) {
		from, err = os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
		return err
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	info, err := from.Stat()
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !info.Mode().IsRegular() || !ok || stat.Uid != in.user.UID {
		return fmt.Errorf("%s is no regular file of the trial's own", path)
	}
	if err := moveOpen(from, to); err != nil {
		return err
	}
	return in.As(func() error { return os.Remove(path) })
}

// takenMode lets the user read the file by the names that it still has for it, as a program does that goes on from there.
// Nobody else reaches them, nor what was taken.
const takenMode = 0o444

// moveOpen gives an open file another name, or copies it where that cannot be done, and makes it the worker's.
func moveOpen(from *os.File, to string) error {
	self := fmt.Sprintf("/proc/self/fd/%d", from.Fd())
	if err := unix.Linkat(unix.AT_FDCWD, self, unix.AT_FDCWD, to, unix.AT_SYMLINK_FOLLOW); err == nil {
		return errors.Join(from.Chown(os.Geteuid(), os.Getegid()), from.Chmod(takenMode))
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, from)
	return errors.Join(err, out.Close())
}
