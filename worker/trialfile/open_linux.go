package trialfile

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// atCWD is the descriptor argument that means the working directory.
const atCWD = unix.AT_FDCWD

const (
	// openFlags opens any kind of file for reading: it does not block on a FIFO without a writer or a file with a
	// lease, and a terminal does not become the worker's controlling terminal.
	openFlags = unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY
	// maxLinks is how many symbolic links a name may lead through, as in the kernel.
	maxLinks = 40
)

// openNamed opens an absolute path through ordinary symbolic links only.
func openNamed(path string) (int, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: openFlags, Resolve: unix.RESOLVE_NO_MAGICLINKS})
	switch {
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM): // an old kernel, or a filter of system calls that does not know it
		return walk(path)
	case errors.Is(err, unix.ELOOP):
		return -1, fmt.Errorf("%w, or it leads through too many links", ErrKernel)
	}
	return fd, err
}

// walk is openNamed without openat2: it goes from directory to directory and follows links itself.
func walk(path string) (int, error) {
	at, err := openDirectory(unix.AT_FDCWD, "/")
	if err != nil {
		return -1, err
	}
	defer func() { closeFD(at) }()
	rest := strings.Split(filepath.Clean(path), "/")
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		if name == "" {
			continue
		}
		var st unix.Stat_t
		if err := unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return -1, err
		}
		switch {
		case st.Mode&unix.S_IFMT == unix.S_IFLNK:
			if links++; links > maxLinks {
				return -1, unix.ELOOP
			}
			target, err := readLink(at, name)
			if err != nil {
				return -1, err
			}
			rest = append(strings.Split(target, "/"), rest...)
			name = "."
			if filepath.IsAbs(target) {
				name = "/"
			}
		case len(rest) == 0:
			return openEntry(at, name)
		}
		next, err := openDirectory(at, name)
		if err != nil {
			return -1, err
		}
		closeFD(at)
		at = next
	}
	return openEntry(at, ".")
}

// readLink returns the target of a symbolic link in a directory, unless that is on a file system of the kernel.
func readLink(at int, name string) (string, error) {
	if isKernels(at) {
		return "", ErrKernel
	}
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(at, name, buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// openDirectory opens a directory to continue from, which need not be readable.
func openDirectory(at int, name string) (int, error) {
	return unix.Openat(at, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

// openEntry opens an entry of a directory that is not a symbolic link.
func openEntry(at int, name string) (int, error) {
	return unix.Openat(at, name, openFlags|unix.O_NOFOLLOW, 0)
}

func closeFD(fd int) { _ = unix.Close(fd) }

// isKernels reports whether a descriptor is on a file system that does not hold users' files.
func isKernels(fd int) bool {
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return true
	}
	switch int64(st.Type) { //nolint:unconvert // it has another type on other machines
	case unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC, unix.SECURITYFS_MAGIC, unix.SELINUX_MAGIC,
		unix.SMACK_MAGIC, unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC, unix.BPF_FS_MAGIC, unix.NSFS_MAGIC, unix.DEVPTS_SUPER_MAGIC,
		unix.EFIVARFS_MAGIC, unix.PSTOREFS_MAGIC, unix.BINFMTFS_MAGIC, unix.PIPEFS_MAGIC, unix.SOCKFS_MAGIC, unix.ANON_INODE_FS_MAGIC,
		unix.RDTGROUP_SUPER_MAGIC, configfsMagic, mqueueMagic:
		return true
	}
	return false
}

// Magic numbers that the unix package does not define.
const (
	configfsMagic = 0x62656570
	mqueueMagic   = 0x19800202
)
