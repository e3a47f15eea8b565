// Package session serves the Unix socket of training processes, and keeps those processes warm: one process runs
// several trials of the same function on the same devices, so that a trial need not wait until an interpreter has
// started and a framework is loaded. Each message on a socket has its length in front of it.
package session

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
	"github.com/outbid-dev/outbid/worker/confine"
	"github.com/outbid-dev/outbid/worker/process"
	"github.com/outbid-dev/outbid/worker/redact"
)

// Environment variables of a process.
const (
	// EnvStream names the variable with the path of the Unix socket.
	EnvStream = "OUTBID_STREAM"
	// EnvSession names the variable with the secret that the process presents when it attaches.
	EnvSession = "OUTBID_SESSION"
)

const (
	defaultIdleAfter    = 60 * time.Second
	defaultStartTimeout = 5 * time.Minute
	// leaveGrace is how long an idle process may take to exit when it has to.
	leaveGrace = 5 * time.Second
	// socketName is the name of the socket in its directory.
	socketName = "stream.sock"
	// maxSocketPath is slightly less than the longest path of a socket that the kernel accepts.
	maxSocketPath = 100
)

// Trial receives the events of a trial that runs in a process. Its methods are called one at a time, in order; Ended
// is the last call. Reports may block, which delays further messages of the process, and the process itself once its
// buffers are full.
type Trial interface {
	Reports(reports []*outbidv1.Report)
	// LastReports receives the reports directly before the end of the trial.
	LastReports(reports []*outbidv1.Report)
	Saved(saved *outbidv1.ProcessSaved)
	// Began is called when one of several forks begins its first step.
	Began()
	// Waiting receives that the process waits for shards that others of its gang store, until its next message.
	Waiting()
	Reached(step int64)
	Ended(ended *outbidv1.ForkEnded)
	// Note receives a line for the user. It must not block, and may be called while another method runs.
	Note(text string)
}

// StartError is returned if a process was started but cannot run its trial.
type StartError struct {
	Kind outbidv1.FailureKind
	// Detail is one line for the user.
	Detail string
}

// Error implements error.
func (e *StartError) Error() string { return e.Detail }

// Starter starts processes.
type Starter interface {
	Start(c process.Command) (*process.Process, error)
}

// Config configures a server.
type Config struct {
	// Dir is an existing directory for the socket.
	Dir string
	// Host starts the processes.
	Host Starter
	// Output receives what trials print, without line ends. The line is only valid during the call. nil discards the
	// output.
	Output func(fork *outbidv1.ForkRef, stream process.Stream, line []byte)
	// Confine creates the confinement of a process. If it is nil, a process has only its process group.
	Confine func(ctx context.Context, l confine.Limits) (*confine.Confinement, error)
	Logger  *slog.Logger
	// Others allows the users of processes from Confine to connect, in addition to the worker's own user.
	Others bool
	// IdleAfter is how long a process without a trial is kept; 0 means 60 s.
	IdleAfter time.Duration
	// StartTimeout is how long a process may take to attach or, after it was detached, to finish its trial. 0 means 5
	// minutes.
	StartTimeout time.Duration
}

// Spec describes the process that a trial needs. Trials whose specs are equal except for Speed and Prepare can share
// a process.
type Spec struct {
	// Argv is the command line of the process.
	Argv []string
	// Env is its environment, as "name=value".
	Env []string
	Dir string
	// Function identifies the function that the process runs, such as by a hash. A process never runs two functions.
	Function string
	// Devices are the devices of the process. No two processes share a device.
	Devices []int32
	// Owner is the owner of the process, which never runs a trial of another owner. Empty if trials are not isolated.
	Owner string
	// Limits are the resource limits of the process.
	Limits confine.Limits
	// In is the confinement of the process, which the caller closes. If it is nil, the server creates one for the process.
	In *confine.Confinement
	// Prepare makes the trial's files ready for the process that will run the trial; may be nil.
	Prepare func(in *confine.Confinement) error
	// Speed is relative to full speed; 0 means full speed. See process.SetSpeed.
	Speed float64
	// Mask replaces values of secrets in the output of the process; nil replaces nothing. It follows from Env.
	Mask *redact.Mask
	// Fresh requests a process that has not run a trial before, and that ends after this one.
	Fresh bool
}

func (s Spec) key() string {
	h := sha256.New()
	add := func(parts ...string) {
		for _, part := range parts {
			fmt.Fprintf(h, "%d:%s", len(part), part)
		}
		h.Write([]byte{0})
	}
	add(s.Argv...)
	add(s.Env...)
	add(s.Dir, s.Function, s.Owner, strconv.FormatFloat(s.Limits.CPUs, 'g', -1, 64), strconv.FormatInt(s.Limits.MemoryBytes, 10))
	for _, d := range s.Devices {
		add(strconv.Itoa(int(d)))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Server serves the session socket and manages their processes. Close ends it.
type Server struct {
	cfg    Config
	tmp    string // created for the socket if the path of Dir is too long
	frames *frames
	served sync.WaitGroup
	conns  connCounts

	mu     sync.Mutex
	closed bool
	procs  map[string]*proc // by the hash of their secret
}

// Listen opens the socket.
func Listen(ctx context.Context, cfg Config) (*Server, error) {
	if cfg.IdleAfter == 0 {
		cfg.IdleAfter = defaultIdleAfter
	}
	if cfg.StartTimeout == 0 {
		cfg.StartTimeout = defaultStartTimeout
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("session socket: %w", err)
	}
	s := &Server{cfg: cfg, procs: make(map[string]*proc)}
	s.frames = &frames{path: filepath.Join(dir, socketName), conns: make(map[net.Conn]struct{})}
	if len(s.frames.path) > maxSocketPath {
		if s.tmp, err = os.MkdirTemp("", "outbid-"); err != nil {
			return nil, fmt.Errorf("session socket: %w", err)
		}
		s.frames.path = filepath.Join(s.tmp, socketName)
	}
	if s.frames.listener, err = s.listen(ctx, s.frames.path); err != nil {
		return nil, err
	}
	s.served.Go(func() { s.frames.serve(s) })
	return s, nil
}

// listen opens a socket that accepts processes of known users.
func (s *Server) listen(ctx context.Context, path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("session socket: %w", err)
	}
	l, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("session socket: %w", err)
	}
	mode := os.FileMode(0o600)
	if s.cfg.Others {
		mode = 0o666 // admit checks the user of each connection
	}
	if err := os.Chmod(path, mode); err != nil {
		return nil, errors.Join(fmt.Errorf("session socket: %w", err), l.Close())
	}
	return &peerListener{Listener: l, srv: s, closed: make(chan struct{})}, nil
}

// Start runs a trial in a warm process, or in a new one if no warm process has the spec, and returns once the process
// has the assignment. It waits for a detached process that can be reused. Before it starts a process, it ends other
// processes without a trial that have a device of the spec. The error says in one line why the process cannot be
// started.
func (s *Server) Start(
	ctx context.Context, spec Spec, a *outbidv1.TrialAssignment, trial Trial,
) (*Session, error) {
	key := spec.key()
	for !spec.Fresh {
		p := s.takeIdle(key)
		if p == nil {
			waited, err := s.awaitDetached(ctx, key)
			if err != nil {
				return nil, err
			}
			if waited {
				continue
			}
			break
		}
		if err := spec.prepare(p); err != nil {
			return nil, err
		}
		if sess := p.assign(a, trial, spec.Speed); sess != nil {
			return sess, nil
		}
	}
	if err := s.Free(ctx, spec.Devices); err != nil {
		return nil, err
	}
	p, err := s.launch(ctx, spec, key, a.GetFork())
	if err != nil {
		return nil, err
	}
	if err := p.awaitAttached(ctx, s.cfg.StartTimeout); err != nil {
		return nil, err
	}
	if err := spec.prepare(p); err != nil {
		return nil, err
	}
	sess := p.assign(a, trial, spec.Speed)
	if sess == nil {
		<-p.gone
		return nil, p.startError("the process ended before it received the trial")
	}
	return sess, nil
}

// prepare makes the trial's files ready for a reserved process. The process is killed if that fails.
func (s *Spec) prepare(p *proc) error {
	if s.Prepare == nil {
		return nil
	}
	err := s.Prepare(p.in)
	if err != nil {
		p.process.Kill()
		<-p.gone
	}
	return err
}

// takeIdle reserves an idle process, or returns nil.
func (s *Server) takeIdle(key string) *proc {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.procs {
		if p.key == key && !p.spec.Fresh && p.reserve() {
			return p
		}
	}
	return nil
}

// Free ends the idle and detached processes that have any of the devices, and waits until they are gone, so that the
// devices' memory is free.
func (s *Server) Free(ctx context.Context, devices []int32) error {
	s.mu.Lock()
	var leaving []*proc
	for _, p := range s.procs {
		overlaps := slices.ContainsFunc(p.spec.Devices, func(d int32) bool { return slices.Contains(devices, d) })
		if overlaps && p.leave("its devices are needed by another trial") {
			leaving = append(leaving, p)
		}
	}
	s.mu.Unlock()
	for _, p := range leaving {
		select {
		case <-p.gone:
		case <-ctx.Done():
			return fmt.Errorf("wait for the previous process on the devices: %w", ctx.Err())
		}
	}
	return nil
}

// Processes returns the number of processes, including idle ones.
func (s *Server) Processes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.procs)
}

// Close ends idle processes, kills the others, waits for all of them and removes the socket.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	procs := make([]*proc, 0, len(s.procs))
	for _, p := range s.procs {
		procs = append(procs, p)
		if !p.leave("the worker is stopping") {
			p.process.Kill()
		}
	}
	s.mu.Unlock()
	for _, p := range procs {
		<-p.gone
	}
	s.frames.close()
	s.served.Wait()
	_ = os.Remove(s.frames.path) // the listener has removed it already
	if s.tmp != "" {
		return os.RemoveAll(s.tmp)
	}
	return nil
}
