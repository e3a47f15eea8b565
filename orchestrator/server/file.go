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

// File is what a running server leaves in its data directory, so that others find it.
type File struct {
	API  string `json:"api"`
	NATS string `json:"nats"`
	PID  int    `json:"pid"`
	// Keys is the directory of the cluster's keys, with which workers of the same user join by themselves.
	Keys    string `json:"keys"`
	Version string `json:"version"`
	// WhileClients is set if the server ends with its last client.
	WhileClients bool `json:"while_clients,omitempty"`
	// Locked is set if the server locks its file for as long as it runs. A process id alone may be another process's by now:
	// after a restart of the machine, or in a container.
	Locked bool `json:"locked,omitempty"`
}

// FilePath is where the server of a data directory leaves its file.
func FilePath(data string) string { return filepath.Join(data, "server.json") }

// HasServer reports whether a server has been started from a data directory, whether or not it runs. Workers, tokens and
// certificates may have a directory of the same name.
func HasServer(data string) bool {
	for _, name := range []string{"server.json", "clients", "keys", "nats", "history"} {
		if _, err := os.Lstat(filepath.Join(data, name)); err == nil {
			return true
		}
	}
	return false
}

// ReadFile reads the file of a data directory's server; ok is false if there is none, or if the server does not run.
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

// isFree reports whether no server holds a lock on its file.
func isFree(file *os.File) bool {
	return unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB) == nil
}

// processAlive says whether a process of that id exists. Signal 0 only asks.
func processAlive(pid int) bool {
	if pid <= 0 {
		return false
	}
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}

// write writes the file whole. It returns a lock on the file, which closing it gives back, or nil where files cannot be locked.
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

// nodesTimeout is how long a server waits for its own workers to be known before it says that it is ready.
const nodesTimeout = 3 * time.Second

// announce waits for the workers of this process and writes the files that say where the server is.
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

// readyFiles are the files that say where the server is.
func (s *Server) readyFiles() []string {
	files := []string{FilePath(s.cfg.Data)}
	if s.cfg.ReadyFile != "" {
		files = append(files, s.cfg.ReadyFile)
	}
	return files
}

// withdraw removes them.
func (s *Server) withdraw() error {
	var errs []error
	for _, path := range s.readyFiles() {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// awaitWorkers returns when the workers of this process are known, or it took too long: they may come later.
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
