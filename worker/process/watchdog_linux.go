package process

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/outbid-dev/outbid/worker/subreaper"
)

const (
	// watchedPipe is the watchdog's end of a pipe that closes with the worker, and watchedLease the memory that it shares
	// with the worker.
	watchedPipe, watchedLease = 3, 4
	leaseBytes                = 4096
)

// leaseMemory is what a worker and its watchdog share. Times are those of the machine's monotonic clock in nanoseconds.
type leaseMemory struct {
	// until is the end of the lease, with the margin; 0 means no lease.
	until atomic.Int64
	// bites counts the expired leases.
	bites atomic.Int64
}

// monotonic returns the time of a clock that all processes of the machine share, and that cannot be set.
func monotonic() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // fails only without this clock
	return t.Nano()
}

// watchdog is the worker's side.
type watchdog struct {
	memory []byte
	file   *os.File
	end    chan struct{}
	over   sync.WaitGroup
}

func (w *watchdog) lease() *leaseMemory {
	return (*leaseMemory)(unsafe.Pointer(unsafe.SliceData(w.memory)))
}

func (w *watchdog) renew(d time.Duration) { w.lease().until.Store(monotonic() + int64(d)) }

func (w *watchdog) bites() int64 { return w.lease().bites.Load() }

// startWatchdog starts the watchdog when the worker starts its first process, and again whenever the watchdog ends.
func (h *Host) startWatchdog() {
	if h.dog != nil {
		h.watching.Do(func() { h.dog.over.Go(func() { h.dog.keep(h) }) })
	}
}

// openWatchdog makes what the worker and its watchdog share. It returns nil if this program cannot be a watchdog.
func openWatchdog() (*watchdog, error) {
	if !watchdogReady.Load() {
		return nil, nil //nolint:nilnil // as in tests
	}
	fd, err := unix.MemfdCreate(watchdogName, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create memory to share: %w", err)
	}
	w := &watchdog{file: os.NewFile(uintptr(fd), watchdogName), end: make(chan struct{})}
	if err = w.file.Truncate(leaseBytes); err == nil {
		w.memory, err = unix.Mmap(fd, 0, leaseBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		_ = w.file.Close() // nothing was written
		return nil, fmt.Errorf("share memory: %w", err)
	}
	return w, nil
}

// keep runs watchdogs, one after the other, until close.
func (w *watchdog) keep(h *Host) {
	for {
		err := w.run(h)
		select {
		case <-w.end:
			return
		case <-time.After(watchdogAgain):
			h.log.Warn("the watchdog of the worker ended; starting another", "error", err)
		}
	}
}

// run starts a watchdog and returns when it has ended.
func (w *watchdog) run(h *Host) error {
	theirs, ours, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{watchdogName, h.dir, h.token}, Env: []string{"GOMAXPROCS=1"}, Dir: "/",
		ExtraFiles: []*os.File{theirs, w.file}, SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
	err = cmd.Start()
	_ = theirs.Close() // the watchdog has it
	if err != nil {
		_ = ours.Close() // nothing was written
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err = <-ended:
	case <-w.end:
		_ = ours.Close() // which ends the watchdog
		err = <-ended
	}
	_ = ours.Close() // closed twice after end
	return err
}

// close ends the watchdog, which first ends what is left of the worker's processes.
func (w *watchdog) close() {
	close(w.end)
	w.over.Wait()
	_ = w.file.Close()        // nothing was written
	_ = unix.Munmap(w.memory) // valid since openWatchdog
}

// WatchdogMain must be called first in the main function of a program that runs workers. In a watchdog it returns true
// when the process should exit. Otherwise it returns false.
func WatchdogMain() bool {
	if os.Args[0] != watchdogName {
		watchdogReady.Store(true)
		return false
	}
	if len(os.Args) == 3 {
		watch(os.Args[1], os.Args[2])
	}
	return true
}

// watch ends the processes of a worker whenever its lease has expired, and when the worker is gone.
func watch(dir, token string) {
	// A signal to stop the worker may go to all of its processes, and trials have to save first.
	signal.Ignore(unix.SIGTERM, unix.SIGINT, unix.SIGHUP)
	unix.CloseOnExec(watchedPipe)
	memory, err := unix.Mmap(watchedLease, 0, leaseBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return
	}
	lease := (*watchdog).lease(&watchdog{memory: memory})
	gone := make(chan struct{})
	go func() { // returns with the worker
		_, _ = os.NewFile(watchedPipe, "worker").Read(make([]byte, 1))
		close(gone)
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	bitten := int64(0)
	for {
		select {
		case <-timer.C:
		case <-gone:
			_ = endAll(dir, token, func() bool { return false }) // the next worker in the directory ends the rest
			return
		}
		until := lease.until.Load()
		left := time.Duration(until - monotonic())
		switch {
		case until == 0:
			timer.Reset(watchdogIdle)
			continue
		case left > 0:
			timer.Reset(left)
			continue
		case until != bitten:
			bitten = until
			lease.bites.Add(1) // before it ends anything, so that the worker knows why its processes end
		}
		_ = endAll(dir, token, func() bool { return lease.until.Load() != until }) // tried again if it fails
		timer.Reset(watchdogAgain)
	}
}

// tellReapers asks the subreapers of a worker to end everything below them.
func tellReapers(old *state) {
	for _, g := range old.Groups {
		if g.ReaperStart != 0 && startTime(g.Reaper) == g.ReaperStart {
			_ = unix.Kill(g.Reaper, subreaper.EndNow) // gone, if it fails
		}
	}
}
