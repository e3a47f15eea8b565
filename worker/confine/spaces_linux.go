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

// spaces are the namespaces of one trial. They last as long as they are open or a process is inside; with the last of them the
// kernel removes what only they held: shared memory, message queues, semaphores, and what is mounted.
type spaces struct {
	own []space
}

// space is one namespace: what kind it is of, and the file that holds it.
type space struct {
	flag int
	file *os.File
}

// kinds are the names of namespaces below /proc/PID/ns, in the order in which they are entered.
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

// makeSpaces makes the namespaces of a trial. It takes CAP_SYS_ADMIN.
func makeSpaces(w wants) (*spaces, error) {
	var made *spaces
	err := onThreadOfItsOwn(func() (err error) {
		made, err = unshare(w)
		return err
	})
	return made, err
}

// onThreadOfItsOwn calls f on a thread that ends with it, so that nothing else ever runs as f has left the thread.
func onThreadOfItsOwn(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()            // for good
		if unix.Gettid() == os.Getpid() { // the first thread cannot end, and what /proc says of it counts for the process
			defer runtime.UnlockOSThread()
			done <- onThreadOfItsOwn(f) // on another one, as this one is held
			return
		}
		done <- f()
	}()
	return <-done
}

// unshare makes namespaces of this thread's own and furnishes them.
func unshare(w wants) (_ *spaces, err error) {
	flags := unix.CLONE_FS
	for _, k := range kinds(w) {
		flags |= k.flag
	}
	if err := unix.Unshare(flags); err != nil {
		return nil, fmt.Errorf("make namespaces: %w", err)
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
			return nil, errors.Join(fmt.Errorf("hold a namespace: %w", err), s.close())
		}
		s.own = append(s.own, space{k.flag, file})
	}
	return s, nil
}

// machinesTmp is where programs of a machine meet, of which a trial sees little.
const machinesTmp = "/tmp/"

// mountOwn gives the mount namespace that this thread is in a /tmp and a /dev/shm of its own. What is mounted on the machine later is seen there,
// and nothing that is mounted there outside.
func mountOwn(w wants) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("keep mounts to a namespace: %w", err)
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

// mountTmp puts a directory over /tmp. What a trial needs of the machine's stays there.
func mountTmp(w wants) error {
	type kept struct {
		path string
		file *os.File
	}
	var all []kept
	defer func() {
		for _, k := range all {
			_ = k.file.Close() // only held
		}
	}()
	for _, path := range append(slices.Clone(w.keep), machinesTmp+"nvidia-mps", machinesTmp+".X11-unix") {
		if !strings.HasPrefix(path, machinesTmp) {
			continue
		}
		if file, err := os.OpenFile(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0); err == nil { // else it is not there
			all = append(all, kept{path, file})
		}
	}
	if err := unix.Mount(w.tmp, "/tmp", "", unix.MS_BIND, ""); err != nil {
		return err
	}
	for _, k := range all {
		err := os.MkdirAll(k.path, 0o755) //nolint:gosec // the way to what it had before
		if err == nil {
			err = unix.Mount(fmt.Sprintf("/proc/self/task/%d/fd/%d", unix.Gettid(), k.file.Fd()), k.path, "", unix.MS_BIND|unix.MS_REC, "")
		}
		if err != nil {
			return fmt.Errorf("keep %s: %w", k.path, err)
		}
	}
	return nil
}

// loopbackUp turns on the loopback of the network namespace that this thread is in.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("turn on a loopback: %w", err)
	}
	defer unix.Close(fd) //nolint:errcheck // only asked
	request := struct {
		name  [unix.IFNAMSIZ]byte
		flags uint16
		_     [22]byte
	}{flags: unix.IFF_UP | unix.IFF_RUNNING}
	copy(request.name[:], "lo")
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCSIFFLAGS, uintptr(unsafe.Pointer(&request))); errno != 0 {
		return fmt.Errorf("turn on a loopback: %w", errno)
	}
	return nil
}

// enter moves this thread, which is locked, into the namespaces, until back is called.
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
	// What one thread has to itself others are not moved to.
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

// enterForGood moves this thread, which ends with its goroutine, into the namespaces that files are found by.
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

// trySpaces returns why this process cannot make the namespaces, or nil.
func trySpaces(w wants) error {
	dir, err := os.MkdirTemp("", "outbid-tmp-")
	if err != nil {
		return err
	}
	w.tmp = dir
	s, err := makeSpaces(w)
	return errors.Join(err, s.close(), os.Remove(filepath.Clean(dir)))
}
