package endtoend

import (
	"context"
	"io"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// cable is a TCP connection that can be cut: bytes stop in both directions without an error.
type cable struct {
	addr   string
	target string
	ln     net.Listener

	mu     sync.Mutex
	whole  bool
	mended chan struct{}
	conns  []net.Conn
}

func newCable(t *testing.T, target string) *cable {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cable{addr: ln.Addr().String(), target: target, ln: ln, whole: true, mended: make(chan struct{})}
	go c.accept()
	t.Cleanup(func() {
		_ = ln.Close()
		c.mend()
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, conn := range c.conns {
			_ = conn.Close()
		}
	})
	return c
}

func (c *cable) accept() {
	for {
		near, err := c.ln.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", c.target)
		if err != nil {
			_ = near.Close()
			continue
		}
		c.mu.Lock()
		c.conns = append(c.conns, near, far)
		c.mu.Unlock()
		go c.carry(near, far)
		go c.carry(far, near)
	}
}

// carry copies until either end closes; while the cable is cut, bytes wait.
func (c *cable) carry(to io.WriteCloser, from io.Reader) {
	defer to.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		c.passable()
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (c *cable) passable() {
	for {
		c.mu.Lock()
		whole, mended := c.whole, c.mended
		c.mu.Unlock()
		if whole {
			return
		}
		<-mended
	}
}

func (c *cable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.whole = false
}

func (c *cable) mend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.whole {
		c.whole = true
		close(c.mended)
		c.mended = make(chan struct{})
	}
}

// startNATS runs a separate NATS server, as for a cluster, and returns its URL.
func startNATS(t *testing.T) string {
	t.Helper()
	s, err := bus.StartServer(bus.ServerConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s.URL()
}

// pendingServer is a server that may not be ready yet.
type pendingServer struct {
	*server
	file string
}

func startServer(t *testing.T, dir, name string, args ...string) *pendingServer {
	t.Helper()
	file := filepath.Join(t.TempDir(), name+".json")
	args = append(args, "--ready-file", file, "--api", "127.0.0.1:0")
	return &pendingServer{server: &server{proc: start(t, dir, args...)}, file: file}
}

// ready waits until the server answers.
func (p *pendingServer) ready() {
	p.t.Helper()
	waitFile(p.t, p.proc, p.file)
	p.connect(p.file)
}

func serveData(t *testing.T, dir, name string, args ...string) *server {
	t.Helper()
	p := startServer(t, dir, name, args...)
	p.ready()
	return p.server
}

func (s *server) nodes() []*outbidv1.Node {
	r, err := s.ListNodes(context.Background(), &outbidv1.ListNodesRequest{})
	if err != nil {
		return nil
	}
	return r.GetNodes()
}

func sortStrings(lines []string) { slices.Sort(lines) }
