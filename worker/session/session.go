// Package session serves the Unix socket that training processes talk to, and keeps those processes warm: one process
// runs trial after trial of the same function on the same devices, so that a trial need not wait for an interpreter to
// start and a framework to load. On the socket each message goes with its length before it; on another it is gRPC's, for
// processes of older SDKs.
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

	"google.golang.org/grpc"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
	"github.com/outbid-dev/outbid/worker/confine"
	"github.com/outbid-dev/outbid/worker/process"
	"github.com/outbid-dev/outbid/worker/redact"
)

// What a process is given in its environment.
const (
	// EnvStream names the variable with the path of the Unix socket, EnvSocket that with the path of the one on which
	// gRPC is spoken.
	EnvStream = "OUTBID_STREAM"
	EnvSocket = "OUTBID_SOCKET"
	// EnvSession names the variable with the secret that the process shows when it attaches.
	EnvSession = "OUTBID_SESSION"
)

const (
	defaultIdleAfter    = 60 * time.Second
	defaultStartTimeout = 5 * time.Minute
	// leaveGrace is how long an idle process may take to leave when it is told to.
	leaveGrace = 5 * time.Second
	// maxSocketPath is what the kernel takes, less a little.
	maxSocketPath = 100
	// maxHeaders bounds the headers of a stream of gRPC's, in bytes.
	maxHeaders = 16 << 10
)

// Trial is who hears of a trial that runs in a process. Its methods are called one at a time, in order; Ended is the
// last call. Reports may block: it holds up what the process says, and the process once its buffers are full.
type Trial interface {
	Reports(reports []*outbidv1.Report)
	// LastReports are those behind which Ended follows at once.
	LastReports(reports []*outbidv1.Report)
	Saved(saved *outbidv1.ProcessSaved)
	// Began is told of one of a round of forks.
	Began()
	Reached(step int64)
	Ended(ended *outbidv1.ForkEnded)
	// Note is a line for the user. It does not block, and may be called while another method is.
	Note(text string)
}

// StartError says why a process that was started has no trial.
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

// Config is what a server needs.
type Config struct {
	// Dir for the socket; it must exist.
	Dir string
	// Host starts the processes.
	Host Starter
	// Output gets what trials print, without line end; the line is only valid during the call. nil drops it.
	Output func(fork *outbidv1.ForkRef, stream process.Stream, line []byte)
	// Confine makes what a process runs in; nil for no more than its process group.
	Confine func(ctx context.Context, l confine.Limits) (*confine.Confinement, error)
	Logger  *slog.Logger
	// Others lets processes of other users than this one connect, of those that Confine gave.
	Others bool
	// IdleAfter is how long a process without a trial is kept; 0 means 60 s.
	IdleAfter time.Duration
	// StartTimeout is how long a process may take to attach, or, detached, to be done with its trial; 0 means 5 minutes.
	StartTimeout time.Duration
}

// Spec says which process a trial needs. Trials with equal specs, Speed and Prepare aside, can share one.
type Spec struct {
	// Argv of the process.
	Argv []string
	// Env is its environment, as "name=value".
	Env []string
	Dir string
	// Function is what the process is for, such as a hash: a process never runs two functions.
	Function string
	// Devices it uses: no two processes share one.
	Devices []int32
	// Owner is whose the process is: it never runs a trial of another's. Empty if all are one's own.
	Owner string
	// Limits confine it.
	Limits confine.Limits
	// Prepare makes the trial's files ready for the process that is about to get it; may be nil.
	Prepare func(in *confine.Confinement) error
	// Speed relative to full speed; 0 means full. See process.SetSpeed.
	Speed float64
	// Mask replaces values of secrets in what the process prints; nil replaces nothing. It follows from Env.
	Mask *redact.Mask
	// Fresh asks for a process that has run no trial before, and ends after this one.
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

// Server is the session socket and the processes behind it. Close it.
type Server struct {
	outbidv1.UnimplementedSessionServiceServer

	cfg    Config
	socket string
	tmp    string // made for the sockets, if Dir is too long a path
	grpc   *grpc.Server
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
	s := &Server{cfg: cfg, socket: filepath.Join(dir, "session.sock"), procs: make(map[string]*proc)}
	if len(s.socket) > maxSocketPath {
		if s.tmp, err = os.MkdirTemp("", "outbid-"); err != nil {
			return nil, fmt.Errorf("session socket: %w", err)
		}
		s.socket = filepath.Join(s.tmp, "session.sock")
	}
	l, err := s.listen(ctx, s.socket)
	if err != nil {
		return nil, err
	}
	stream := filepath.Join(filepath.Dir(s.socket), "stream.sock")
	s.frames = &frames{path: stream, conns: make(map[net.Conn]struct{})}
	if s.frames.listener, err = s.listen(ctx, stream); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	s.grpc = grpc.NewServer(grpc.WaitForHandlers(true), grpc.MaxRecvMsgSize(maxFrame), grpc.MaxConcurrentStreams(1),
		grpc.MaxHeaderListSize(maxHeaders), grpc.ConnectionTimeout(helloGrace))
	outbidv1.RegisterSessionServiceServer(s.grpc, s)
	s.served.Go(func() {
		if err := s.grpc.Serve(l); err != nil {
			cfg.Logger.Error("the session socket failed", "error", err)
		}
	})
	s.served.Go(func() { s.frames.serve(s) })
	return s, nil
}

// listen opens a socket that lets in processes of known users.
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
		mode = 0o666 // who connects is asked for its user
	}
	if err := os.Chmod(path, mode); err != nil {
		return nil, errors.Join(fmt.Errorf("session socket: %w", err), l.Close())
	}
	return &peerListener{Listener: l, srv: s, closed: make(chan struct{})}, nil
}

// Start runs a trial in a warm process, or in a new one if there is none for the spec, and returns once the process
// has the assignment. For a detached process that could be used it waits until that is done. The error says
// in one line why the process cannot be started. Other processes without a trial that hold a device of the spec are ended
// first.
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
		return nil, p.startError("the process ended before it had the trial")
	}
	return sess, nil
}

// prepare makes the trial's files ready for a process that is reserved, which is ended if that fails.
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

// takeIdle reserves an idle process.
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

// Free ends the processes that hold any of the devices and are idle or detached, and waits until they
// are gone, so that the devices' memory is free.
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
			return fmt.Errorf("wait for the process that had the devices before: %w", ctx.Err())
		}
	}
	return nil
}

// Processes counts the processes, idle ones included.
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
	s.grpc.Stop()
	s.frames.close()
	s.served.Wait()
	_, _ = os.Remove(s.socket), os.Remove(s.frames.path) // the listeners have removed them already
	if s.tmp != "" {
		return os.RemoveAll(s.tmp)
	}
	return nil
}
