package confine

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

func (u *User) as(s *spaces, f func() error) error {
	if u == nil {
		return f()
	}
	// The thread ends with f, so that no other code ever runs with the user's rights.
	return onThreadOfItsOwn(func() error {
		if err := errors.Join(s.enterForGood(), u.become()); err != nil {
			return err
		}
		return f()
	})
}

// become gives this thread the user's rights to files. It makes the system calls without the Go runtime, which would
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
		// Both return the previous id and no error, so the id is read again.
		_, _, _ = unix.RawSyscall(set.call, uintptr(set.id), 0, 0)
		if now, _, _ := unix.RawSyscall(set.call, none, 0, 0); uint32(now) != set.id {
			return fmt.Errorf("take the rights of %s: the kernel refuses", u)
		}
	}
	return dropFileCapabilities()
}

// dropFileCapabilities drops, for this thread, the capabilities that let a worker open files of other users. The
// kernel does that by itself only if the worker is root.
func dropFileCapabilities() error {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if _, _, errno := unix.RawSyscall(unix.SYS_CAPGET, uintptr(unsafe.Pointer(&head)), uintptr(unsafe.Pointer(&data[0])), 0); errno != 0 {
		return fmt.Errorf("read the worker's capabilities: %w", errno)
	}
	for _, c := range []uint{
		unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_MKNOD, unix.CAP_SYS_ADMIN,
		unix.CAP_SYS_PTRACE,
	} {
		data[c/32].Effective &^= 1 << (c % 32)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&head)), uintptr(unsafe.Pointer(&data[0])), 0); errno != 0 {
		return fmt.Errorf("drop the worker's capabilities for files: %w", errno)
	}
	return nil
}

// linkOpen creates another name for an open file.
func linkOpen(from *os.File, to string) error {
	self := fmt.Sprintf("/proc/self/fd/%d", from.Fd())
	return unix.Linkat(unix.AT_FDCWD, self, unix.AT_FDCWD, to, unix.AT_SYMLINK_FOLLOW)
}

// dropAmbient keeps programs that this thread starts from inheriting the worker's capabilities. A worker that is not
// root may have them as ambient capabilities, which every program inherits.
func dropAmbient() error {
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("drop the ambient capabilities for a trial: %w", err)
	}
	return nil
}

// gainNothing keeps programs that this thread starts from ever gaining privileges.
func gainNothing() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs for a trial: %w", err)
	}
	return nil
}
