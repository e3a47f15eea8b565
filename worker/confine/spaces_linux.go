package confine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// spaces holds the namespaces of one trial. They last as long as they are open or a process is inside. After that the
// kernel removes what only they contained: shared memory, message queues, semaphores, and mounts.
type spaces struct {
	own []space
}

// space is one namespace: its kind, and the file that keeps it open.
type space struct {
	flag int
	file *os.File
}

// kinds returns the names of namespaces below /proc/PID/ns, in the order in which they are entered.
func kinds(w wants) []struct {
	flag int
	name string
} {
	all := []struct {
		flag int
		name string
	}{}
	add := func(wanted bool, flag int, name string) {
		if wanted {
			all = append(all, struct {
				flag int
				name string
			}{flag, name})
		}
	}
	add(w.ipc, unix.CLONE_NEWIPC, "ipc")
	add(w.network, unix.CLONE_NEWNET, "net")
	add(w.files, unix.CLONE_NEWNS, "mnt")
	return all
}

// makeSpaces creates the namespaces of a trial. It needs CAP_SYS_ADMIN.
func makeSpaces(w wants) (*spaces, error) {
	var made *spaces
	err := onThreadOfItsOwn(func() (err error) {
		made, err = unshare(w)
		return err
	})
	return made, err
}

// onThreadOfItsOwn calls f on a thread that ends afterwards, so that no other code runs on the thread in the state
// that f has left.
func onThreadOfItsOwn(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()            // for good
		if unix.Gettid() == os.Getpid() { // the first thread cannot end, and its entries in /proc count for the process
			defer runtime.UnlockOSThread()
			done <- onThreadOfItsOwn(f) // on another thread, because this one is locked
			return
		}
		done <- f()
	}()
	return <-done
}

// unshare moves this thread to new namespaces and sets them up.
func unshare(w wants) (_ *spaces, err error) {
	flags := unix.CLONE_FS
	for _, k := range kinds(w) {
		flags |= k.flag
	}
	if err := unix.Unshare(flags); err != nil {
		return nil, fmt.Errorf("create namespaces: %w", err)
	}
	if w.network {
		if err := loopbackUp(); err != nil {
			return nil, err
		}
	}
	if w.files {
		if err := mountOwn(w); err != nil {
			return nil, err
		}
	}
	s := &spaces{}
	for _, k := range kinds(w) {
		file, err := os.Open(fmt.Sprintf("/proc/%d/task/%d/ns/%s", os.Getpid(), unix.Gettid(), k.name))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open a namespace: %w", err), s.close())
		}
		s.own = append(s.own, space{k.flag, file})
	}
	return s, nil
}

// machinesTmp is the machine's /tmp. A trial sees only a few entries of it.
const machinesTmp = "/tmp/"

// mountOwn gives the mount namespace of this thread its own /tmp and /dev/shm. Later mounts of the machine are
// visible in the namespace, but mounts in the namespace are not visible outside.
func mountOwn(w wants) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("make mounts private to a namespace: %w", err)
	}
	if err := mountTmp(w); err != nil {
		return fmt.Errorf("give a trial its own /tmp: %w", err)
	}
	options := "mode=1777"
	if w.shm > 0 {
		options += fmt.Sprintf(",size=%d", w.shm)
	}
	err := unix.Mount("tmpfs", "/dev/shm", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("give a trial its own /dev/shm: %w", err)
	}
	return nil
}

// mountTmp mounts a directory over /tmp. The entries of the machine's /tmp that a trial needs stay visible.
func mountTmp(w wants) error {
	type kept struct {
		path string
		file *os.File
	}
	var all []kept
	defer func() {
		for _, k := range all {
			_ = k.file.Close() // only kept open
		}
	}()
	for _, path := range append(slices.Clone(w.keep), machinesTmp+"nvidia-mps", machinesTmp+".X11-unix") {
		if !strings.HasPrefix(path, machinesTmp) {
			continue
		}
		if file, err := os.OpenFile(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0); err == nil { // skipped if it does not exist
			all = append(all, kept{path, file})
		}
	}
	if err := unix.Mount(w.tmp, "/tmp", "", unix.MS_BIND, ""); err != nil {
		return err
	}
	for _, k := range all {
		err := os.MkdirAll(k.path, 0o755) //nolint:gosec // the mount point
		if err == nil {
			err = unix.Mount(fmt.Sprintf("/proc/self/task/%d/fd/%d", unix.Gettid(), k.file.Fd()), k.path, "", unix.MS_BIND|unix.MS_REC, "")
		}
		if err != nil {
			return fmt.Errorf("keep %s: %w", k.path, err)
		}
	}
	return nil
}

// loopbackUp brings up the loopback interface of this thread's network namespace.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("bring up the loopback interface: %w", err)
	}
	defer unix.Close(fd) //nolint:errcheck // no data is written
	request := struct {
		name  [unix.IFNAMSIZ]byte
		flags uint16
		_     [22]byte
	}{flags: unix.IFF_UP | unix.IFF_RUNNING}
	copy(request.name[:], "lo")
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCSIFFLAGS, uintptr(unsafe.Pointer(&request))); errno != 0 {
		return fmt.Errorf("bring up the loopback interface: %w", errno)
	}
	return nil
}

// enter moves this thread, which must be locked, into the namespaces, until back is called.
func (s *spaces) enter() (back func() error, err error) {
	if s == nil {
		return func() error { return nil }, nil
	}
	before := &spaces{}
	for _, o := range s.own {
		name := map[int]string{unix.CLONE_NEWIPC: "ipc", unix.CLONE_NEWNET: "net", unix.CLONE_NEWNS: "mnt"}[o.flag]
		file, err := os.Open(fmt.Sprintf("/proc/%d/task/%d/ns/%s", os.Getpid(), unix.Gettid(), name))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("enter a namespace: %w", err), before.close())
		}
		before.own = append(before.own, space{o.flag, file})
	}
	at, err := os.Open(".")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("enter a namespace: %w", err), before.close())
	}
	back = func() error {
		err := before.set()
		return errors.Join(err, unix.Fchdir(int(at.Fd())), at.Close(), before.close())
	}
	// A thread that shares its root and working directory with others cannot be moved to another mount namespace.
	if err = unix.Unshare(unix.CLONE_FS); err == nil {
		err = s.set()
	}
	if err != nil {
		return nil, errors.Join(err, back())
	}
	return back, nil
}

// set moves this thread into the namespaces.
func (s *spaces) set() error {
	for _, o := range s.own {
		if err := unix.Setns(int(o.file.Fd()), o.flag); err != nil {
			return fmt.Errorf("enter a namespace: %w", err)
		}
	}
	return nil
}

// enterForGood moves this thread, which ends with its goroutine, into the trial's mount namespace.
func (s *spaces) enterForGood() error {
	if s == nil || !slices.ContainsFunc(s.own, func(o space) bool { return o.flag == unix.CLONE_NEWNS }) {
		return nil
	}
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("enter a namespace: %w", err)
	}
	return (&spaces{slices.DeleteFunc(slices.Clone(s.own), func(o space) bool { return o.flag != unix.CLONE_NEWNS })}).set()
}

func (s *spaces) close() error {
	if s == nil {
		return nil
	}
	var errs []error
	for _, o := range s.own {
		errs = append(errs, o.file.Close())
	}
	s.own = nil
	return errors.Join(errs...)
}

// trySpaces returns why this process cannot create the namespaces, or nil.
func trySpaces(w wants) error {
	dir, err := os.MkdirTemp("", "outbid-tmp-")
	if err != nil {
		return err
	}
	w.tmp = dir
	s, err := makeSpaces(w)
	return errors.Join(err, s.close(), os.Remove(filepath.Clean(dir)))
}
