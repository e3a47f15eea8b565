package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outbid-dev/outbid/orchestrator/atomicfile"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// File is the content of the file through which clients and workers find a running server.
type File struct {
	API  string `json:"api"`
	NATS string `json:"nats"`
	PID  int    `json:"pid"`
	// Keys is the directory of the cluster's keys. Workers of the same user use it to join by themselves.
	Keys    string `json:"keys"`
	Version string `json:"version"`
	// WhileClients is set if the server stops with its last client.
	WhileClients bool `json:"while_clients,omitempty"`
	// Locked is set if the server holds a lock on its file while it runs. The process id alone is not enough: after a
	// reboot, or in a container, it may belong to another process.
	Locked bool `json:"locked,omitempty"`
}

// FilePath returns the path of a data directory's file.
func FilePath(data string) string { return filepath.Join(data, "server.json") }

// HasServer reports whether a server was ever started from a data directory, even if it is not running. A directory of
// the same name may contain only workers, tokens or certificates.
func HasServer(data string) bool {
	for _, name := range []string{"server.json", "clients", "keys", "nats", "history"} {
		if _, err := os.Lstat(filepath.Join(data, name)); err == nil {
			return true
		}
	}
	return false
}

// ReadFile reads the file of a data directory's server. ok is false if the file does not exist or the server is not
// running.
func ReadFile(data string) (f File, ok bool, err error) {
	path := FilePath(data)
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, false, nil
	}
	if err != nil {
		return f, false, err
	}
	defer file.Close()
	if err := json.NewDecoder(file).Decode(&f); err != nil {
		return f, false, fmt.Errorf("%s is damaged: %w", path, err)
	}
	return f, processAlive(f.PID) && !(f.Locked && isFree(file)), nil
}

// isFree reports whether the file is not locked by a server.
func isFree(file *os.File) bool {
	return unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB) == nil
}

// processAlive reports whether a process with that id exists. Signal 0 only checks.
func processAlive(pid int) bool {
	if pid <= 0 {
		return false
	}
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}

// write writes the file atomically. It returns the locked file, whose closing releases the lock, or nil if files cannot
// be locked.
func (f File) write(path string) (lock *os.File, err error) {
	err = atomicfile.Write(path, 0o644, func(w *os.File) error {
		if fd, err := unix.FcntlInt(w.Fd(), unix.F_DUPFD_CLOEXEC, 0); err == nil {
			lock = os.NewFile(uintptr(fd), path)
			f.Locked = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) == nil
		}
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		return enc.Encode(f)
	})
	return lock, err
}

// nodesTimeout is how long a server waits for its own workers before it reports that it is ready.
const nodesTimeout = 3 * time.Second

// announce waits for the workers of this process and writes the files with the server's addresses.
func (s *Server) announce(ctx context.Context) error {
	s.awaitWorkers(ctx)
	keys, err := filepath.Abs(s.cfg.NATS.Keys)
	if err != nil {
		return fmt.Errorf("keys: %w", err)
	}
	file := File{
		API: s.api.URL(), NATS: s.natsURL, PID: os.Getpid(), Keys: keys, Version: s.cfg.Version,
		WhileClients: s.cfg.WhileClients,
	}
	for _, path := range s.readyFiles() {
		lock, err := file.write(path)
		if lock != nil {
			s.onClose(lock.Close)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readyFiles returns the paths of the files with the server's addresses.
func (s *Server) readyFiles() []string {
	files := []string{FilePath(s.cfg.Data)}
	if s.cfg.ReadyFile != "" {
		files = append(files, s.cfg.ReadyFile)
	}
	return files
}

// withdraw removes these files.
func (s *Server) withdraw() error {
	var errs []error
	for _, path := range s.readyFiles() {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// awaitWorkers waits for the workers of this process, up to a limit; they may come up later.
func (s *Server) awaitWorkers(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, nodesTimeout)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for s.missingWorkers() > 0 {
		select {
		case <-tick.C:
		case <-s.lead.Lost():
			return
		case <-ctx.Done():
			return
		}
	}
}

// missingWorkers counts the workers of this process that are not up yet.
func (s *Server) missingWorkers() int {
	up := map[string]bool{}
	for _, n := range s.loop.Nodes() {
		up[n.GetInfo().GetName()] = n.GetState() == outbidv1.NodeState_NODE_STATE_UP
	}
	missing := 0
	for _, w := range s.cfg.Workers {
		if !up[w.Name] {
			missing++
		}
	}
	return missing
}
