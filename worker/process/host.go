package process

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// groupEnv marks every process of a worker, so that the next start of the worker recognises leftovers.
const groupEnv = "OUTBID_GROUP"

// ErrInUse is returned by Open if another worker uses the directory.
var ErrInUse = errors.New("another worker uses this directory")

// Host starts processes and records the running ones in a file, so that the next start can end what a killed worker
// left behind. Close ends it.
type Host struct {
	dir   string
	token string
	log   *slog.Logger
	lock  *os.File

	starts chan func()
	thread sync.WaitGroup
	waits  sync.WaitGroup

	// dog is nil without a watchdog; watching starts it with the first process.
	dog      *watchdog
	watching sync.Once

	mu     sync.Mutex
	closed bool
	live   map[int]*Process
	groups []group
}

// Open locks a directory, which one worker at a time can use, and kills every process that an earlier worker left
// behind there. The error wraps ErrInUse if another worker has the directory.
func Open(dir string, log *slog.Logger) (*Host, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the worker's directory: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the worker's directory: %w", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = ErrInUse
		}
		return nil, errors.Join(fmt.Errorf("lock the worker's directory %s: %w", dir, err), lock.Close())
	}
	h := &Host{
		dir: dir, token: rand.Text(), log: log, lock: lock, starts: make(chan func()), live: make(map[int]*Process),
	}
	if err := h.endLeftovers(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	if err := h.save(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	if h.dog, err = openWatchdog(); err != nil {
		log.Warn("cannot watch the worker; if it hangs, its trials continue", "error", err)
	}
	h.thread.Go(h.launch)
	return h, nil
}

// Start starts a process. The error says in one line what is wrong with the command.
func (h *Host) Start(c Command) (*Process, error) {
	p, ends, err := newProcess(h, c)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		err = errors.New("the worker is stopping")
	} else {
		h.startWatchdog()
		started := make(chan error)
		h.starts <- func() { started <- p.start() }
		err = <-started
	}
	closeAll(ends)
	if err != nil {
		if p.below != nil {
			p.below.Close()
		}
		p.read.Wait() // the pipes have no writer
		closeAll(p.pipes)
		return nil, fmt.Errorf("start %s: %w", c.Argv[0], err)
	}
	h.live[p.pid] = p
	h.groups = append(h.groups, p.group())
	if err := h.save(); err != nil {
		h.log.Warn("cannot record a started process; it will not be ended if this worker is killed", "error", err)
	}
	h.waits.Go(p.wait)
	return p, nil
}

// start starts the process itself, on the launcher's thread.
func (p *Process) start() error {
	if p.below != nil {
		err := p.in.Start(p.below.Reaper, p.below.Start)
		p.pid = p.below.PID()
		return err
	}
	err := p.in.Start(p.cmd, p.cmd.Start)
	if err == nil {
		p.pid = p.cmd.Process.Pid
	}
	return err
}

// group returns the process's entry in the list.
func (p *Process) group() group {
	g := group{PID: p.pid, Start: startTime(p.pid)}
	if p.below != nil {
		g.Reaper = p.below.Reaper.Process.Pid
		g.ReaperStart = startTime(g.Reaper)
	}
	return g
}

// forget removes a process that is gone from the list.
func (h *Host) forget(p *Process) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.live, p.pid)
	for i, g := range h.groups {
		if g.PID == p.pid {
			h.groups = append(h.groups[:i], h.groups[i+1:]...)
			break
		}
	}
	if err := h.save(); err != nil {
		h.log.Warn("cannot remove an ended process from the record", "error", err)
	}
}

// Close kills every process that still runs, waits for them, and unlocks the directory.
func (h *Host) Close() error {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil
	}
	h.closed = true
	close(h.starts)
	for _, p := range h.live {
		p.Kill()
	}
	h.mu.Unlock()
	h.waits.Wait()
	h.thread.Wait()
	if h.dog != nil {
		h.dog.close()
	}
	// A process that is just being started by other code has the file open too, until it executes its own program.
	return errors.Join(unix.Flock(int(h.lock.Fd()), unix.LOCK_UN), h.lock.Close())
}
