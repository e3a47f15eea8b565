package session

import (
	"errors"
	"net"
	"os"
)

// peerListener lets in processes of known users only, by what the kernel says about who connects.
type peerListener struct {
	net.Listener
	known func(uid uint32) bool
}

// Accept implements net.Listener.
func (l *peerListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		uid, err := userOf(conn)
		if err == nil && l.known(uid) {
			return &peerConn{conn, peerAddr{conn.RemoteAddr(), uid}}, nil
		}
		_ = conn.Close() // a stranger
	}
}

// userOf is whose process is at the other end.
func userOf(conn net.Conn) (uint32, error) {
	c, ok := conn.(*net.UnixConn)
	if !ok {
		return 0, errors.New("no Unix socket")
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var uid uint32
	var got error
	err = raw.Control(func(fd uintptr) { uid, got = peerUser(int(fd)) })
	return uid, errors.Join(err, got)
}

// peerConn is a connection that knows whose process is at its other end.
type peerConn struct {
	net.Conn
	addr peerAddr
}

// RemoteAddr implements net.Conn.
func (c *peerConn) RemoteAddr() net.Addr { return c.addr }

type peerAddr struct {
	net.Addr
	uid uint32
}

// user is who a process runs as.
func (p *proc) user() uint32 {
	if u := p.in.User(); u != nil {
		return u.UID
	}
	return uint32(os.Geteuid())
}

// knows says whether any process runs as a user.
func (s *Server) knows(uid uint32) bool {
	if uid == uint32(os.Geteuid()) {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.procs {
		if p.user() == uid {
			return true
		}
	}
	return false
}

// mine says whether a connection comes from the user that the process runs as.
func (p *proc) mine(from net.Addr) bool {
	addr, ok := from.(peerAddr)
	return ok && addr.uid == p.user()
}
