package session

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// maxConns limits the connections of one process group and, multiplied by the number of its processes, those of
	// one user. A process of the SDK needs one connection.
	maxConns = 16
	// helloGrace limits the time from a connection until its process has attached, and helloBytes what the process
	// may send until then.
	helloGrace = 10 * time.Second
	helloBytes = 128 << 10
	// acceptPause and maxAcceptPause are the first and the longest pause after the kernel could not accept a
	// connection.
	acceptPause, maxAcceptPause = 5 * time.Millisecond, time.Second
)

// peerListener accepts a limited number of connections of each known user, identified by the kernel's credentials of
// the peer.
type peerListener struct {
	net.Listener
	srv    *Server
	closed chan struct{}
	once   sync.Once
}

// Accept implements net.Listener. It returns an error only after Close. If no descriptor is free, it waits for one.
func (l *peerListener) Accept() (net.Conn, error) {
	pause := acceptPause
	for {
		conn, err := l.Listener.Accept()
		switch {
		case err == nil:
		case errors.Is(err, net.ErrClosed):
			return nil, err
		default:
			if pause == acceptPause {
				l.srv.cfg.Logger.Warn("cannot accept connections of training processes; retrying", "error", err)
			}
			if !l.wait(pause) {
				return nil, net.ErrClosed
			}
			pause = min(2*pause, maxAcceptPause)
			continue
		}
		pause = acceptPause
		if admitted := l.srv.admit(conn); admitted != nil {
			return admitted, nil
		}
		_ = conn.Close() // an unknown user, or too many connections
	}
}

// wait waits for pause. It returns false if the listener was closed meanwhile.
func (l *peerListener) wait(pause time.Duration) bool {
	select {
	case <-time.After(pause):
		return true
	case <-l.closed:
		return false
	}
}

// Close implements net.Listener.
func (l *peerListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// credentials identify the process at the other end of a Unix socket.
type credentials struct {
	uid uint32
	// group is its process group; 0 if it is unknown.
	group int
}

func credentialsOf(conn net.Conn) (credentials, error) {
	c, ok := conn.(*net.UnixConn)
	if !ok {
		return credentials{}, errors.New("not a Unix socket")
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return credentials{}, err
	}
	var cred credentials
	var pid int
	var got error
	err = raw.Control(func(fd uintptr) { cred.uid, pid, got = peerUser(int(fd)) })
	if pid > 0 {
		if group, err := syscall.Getpgid(pid); err == nil { // fails if the process has ended
			cred.group = group
		}
	}
	return cred, errors.Join(err, got)
}

// peerConn is a connection with the credentials of its peer. It is closed unless the process attaches in time.
type peerConn struct {
	net.Conn
	addr peerAddr
	// unattached is how many bytes may still be read before the process attaches; negative once it has.
	unattached atomic.Int64
	timer      *time.Timer
	release    func()
}

// errTooMuch is returned by Read if a process sent too much before it attached.
var errTooMuch = errors.New("the process sent too many bytes before it attached")

// RemoteAddr implements net.Conn.
func (c *peerConn) RemoteAddr() net.Addr { return c.addr }

// Read implements net.Conn.
func (c *peerConn) Read(b []byte) (int, error) {
	left := c.unattached.Load()
	if left < 0 {
		return c.Conn.Read(b)
	}
	n, err := c.Conn.Read(b)
	if left = c.unattached.Load(); left >= 0 && int64(n) > left {
		return 0, errTooMuch
	}
	if left >= 0 {
		c.unattached.CompareAndSwap(left, left-int64(n)) // fails if the process has attached
	}
	return n, err
}

// Close implements net.Conn.
func (c *peerConn) Close() error {
	c.timer.Stop()
	c.release()
	return c.Conn.Close()
}

// attached removes the limits for connections whose process has not attached.
func (c *peerConn) attached() {
	c.timer.Stop()
	c.unattached.Store(-1)
}

type peerAddr struct {
	net.Addr
	credentials
	conn *peerConn
}

// user returns the uid that the process runs as.
func (p *proc) user() uint32 {
	if u := p.in.User(); u != nil {
		return u.UID
	}
	return uint32(os.Geteuid())
}

// isOwnUser reports whether a connection comes from the user that the process runs as.
func (p *proc) isOwnUser(from net.Addr) bool {
	addr, ok := from.(peerAddr)
	return ok && addr.uid == p.user()
}

// connCounts counts open connections.
type connCounts struct {
	mu     sync.Mutex
	users  map[uint32]int
	groups map[int]int
}

// admit returns the connection if it may be served, or nil.
func (s *Server) admit(conn net.Conn) *peerConn {
	cred, err := credentialsOf(conn)
	if err != nil {
		return nil
	}
	processes := s.processesOf(cred.uid)
	if processes == 0 && cred.uid != uint32(os.Geteuid()) {
		return nil
	}
	if !s.conns.acquire(cred, maxConns*max(processes, 1)) {
		s.noteRefusal(cred)
		return nil
	}
	return newPeerConn(conn, cred, func() { s.conns.release(cred) })
}

func newPeerConn(conn net.Conn, cred credentials, release func()) *peerConn {
	c := &peerConn{Conn: conn, release: sync.OnceFunc(release)}
	c.addr = peerAddr{conn.RemoteAddr(), cred, c}
	c.unattached.Store(helloBytes)
	c.timer = time.AfterFunc(helloGrace, func() { _ = conn.Close() })
	return c
}

// processesOf returns the number of processes that run as a user.
func (s *Server) processesOf(uid uint32) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.procs {
		if p.user() == uid {
			n++
		}
	}
	return n
}

// acquire counts a connection. It returns false if the user or the process group has too many already.
func (c *connCounts) acquire(cred credentials, most int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.users[cred.uid] >= most || cred.group != 0 && c.groups[cred.group] >= maxConns {
		return false
	}
	if c.users == nil {
		c.users, c.groups = map[uint32]int{}, map[int]int{}
	}
	c.users[cred.uid]++
	c.groups[cred.group]++
	return true
}

func (c *connCounts) release(cred credentials) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.users[cred.uid]--; c.users[cred.uid] == 0 {
		delete(c.users, cred.uid)
	}
	if c.groups[cred.group]--; c.groups[cred.group] == 0 {
		delete(c.groups, cred.group)
	}
}

// noteRefusal notifies the trials of a process that opens too many connections, once each.
func (s *Server) noteRefusal(cred credentials) {
	var tell []Trial
	s.mu.Lock()
	for _, p := range s.procs {
		if p.user() != cred.uid || p.in.User() == nil && cred.group != 0 && p.process.PID() != cred.group {
			continue
		}
		p.mu.Lock()
		if t := p.trial; t != nil && !t.refusedConn {
			t.refusedConn = true
			tell = append(tell, t.trial)
		}
		p.mu.Unlock()
	}
	s.mu.Unlock()
	for _, t := range tell {
		t.Note(fmt.Sprintf("it opens more connections to its worker than the %d that are allowed at a time; further ones are closed at once", maxConns))
	}
	if len(tell) > 0 {
		s.cfg.Logger.Warn("a trial opens too many connections to its worker; they are closed", slog.Uint64("user", uint64(cred.uid)))
	}
}
