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
	// The thread ends with it, so nothing else ever runs with the user's rights.
	return onThreadOfItsOwn(func() error {
		if err := errors.Join(s.enterForGood(), u.become()); err != nil {
			return err
		}
		return f()
	})
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
	return dropFileCapabilities()
}

// dropFileCapabilities gives up, for this thread, what lets a worker with capabilities open files that are not its
// user's. The kernel does so by itself only for a worker that is root.
func dropFileCapabilities() error {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if _, _, errno := unix.RawSyscall(unix.SYS_CAPGET, uintptr(unsafe.Pointer(&head)), uintptr(unsafe.Pointer(&data[0])), 0); errno != 0 {
		return fmt.Errorf("look at the worker's capabilities: %w", errno)
	}
	for _, c := range []uint{
		unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_MKNOD, unix.CAP_SYS_ADMIN,
		unix.CAP_SYS_PTRACE,
	} {
		data[c/32].Effective &^= 1 << (c % 32)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&head)), uintptr(unsafe.Pointer(&data[0])), 0); errno != 0 {
		return fmt.Errorf("give up the worker's rights to files: %w", errno)
	}
	return nil
}

// linkOpen gives an open file another name.
func linkOpen(from *os.File, to string) error {
	self := fmt.Sprintf("/proc/self/fd/%d", from.Fd())
	return unix.Linkat(unix.AT_FDCWD, self, unix.AT_FDCWD, to, unix.AT_SYMLINK_FOLLOW)
}

// dropAmbient makes what this thread starts inherit none of the worker's capabilities: who is not root may have been given
// them in a way that every program it starts has them too.
func dropAmbient() error {
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("keep the worker's capabilities from a trial: %w", err)
	}
	return nil
}

// gainNothing makes what this thread starts never gain privileges.
func gainNothing() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("give up privileges for good: %w", err)
	}
	return nil
}
