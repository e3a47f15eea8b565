package server

import (
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// leastConns is the minimum for the limit of connections, even if the process has few descriptors.
const leastConns = 64

// boundedListener limits the number of connections, in total and per address, and closes those above. So idle
// connections cannot use up the descriptors that the ledger and other clients need.
type boundedListener struct {
	net.Listener
	all, each int

	mu   sync.Mutex
	open map[string]int
	sum  int
}

// boundConns limits a listener to half of the process's descriptors in total, and a quarter per address.
func boundConns(l net.Listener) *boundedListener {
	most := 1 << 20
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err == nil {
		most = int(min(limit.Cur, uint64(most)))
	}
	return &boundedListener{Listener: l, all: max(most/2, leastConns), each: max(most/4, leastConns), open: map[string]int{}}
}

// SetDeadline limits how long Accept waits.
func (l *boundedListener) SetDeadline(at time.Time) error {
	if d, ok := l.Listener.(interface{ SetDeadline(t time.Time) error }); ok {
		return d.SetDeadline(at)
	}
	return nil
}

// Accept implements net.Listener.
func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		host, _, err := net.SplitHostPort(conn.RemoteAddr().String())
		if err != nil {
			host = conn.RemoteAddr().String()
		}
		if l.take(host) {
			return &boundedConn{Conn: conn, release: sync.OnceFunc(func() { l.give(host) })}, nil
		}
		_ = conn.Close() // above the limit
	}
}

func (l *boundedListener) take(host string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sum >= l.all || l.open[host] >= l.each {
		return false
	}
	l.sum, l.open[host] = l.sum+1, l.open[host]+1
	return true
}

func (l *boundedListener) give(host string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sum--
	if l.open[host]--; l.open[host] == 0 {
		delete(l.open, host)
	}
}

// boundedConn is counted until it is closed.
type boundedConn struct {
	net.Conn
	release func()
}

// ReadFrom implements io.ReaderFrom, so that the kernel can copy files.
func (c *boundedConn) ReadFrom(r io.Reader) (int64, error) { return io.Copy(c.Conn, r) }

// Close implements net.Conn.
func (c *boundedConn) Close() error {
	c.release()
	return c.Conn.Close()
}
