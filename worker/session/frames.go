package session

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"

	"google.golang.org/protobuf/proto"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

const (
	// maxFrame limits a message, and maxHello the first one, which attaches a process.
	maxFrame = 64 << 20
	maxHello = 64 << 10
	// lengthBytes is the size of the length in front of a message, in big-endian order.
	lengthBytes = 4
	// endTag is the first byte of an AttachRequest with a ProcessEnded: the field's number and wire type in protobuf.
	endTag = 5<<3 | 2
)

// frames serves the socket on which each message has its length in front of it. A message costs each side one system
// call, and a process needs neither a thread nor a library for it.
type frames struct {
	path     string
	listener net.Listener

	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]struct{}
}

// serve accepts connections until the listener is closed.
func (f *frames) serve(s *Server) {
	for {
		conn, err := f.listener.Accept()
		if err != nil {
			return
		}
		if f.addConn(conn) {
			s.served.Go(func() {
				defer f.closeConn(conn)
				s.attach(&frameStream{conn: conn, in: bufio.NewReaderSize(conn, 32<<10)}, conn.RemoteAddr())
			})
		}
	}
}

func (f *frames) addConn(conn net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		_ = conn.Close()
		return false
	}
	f.conns[conn] = struct{}{}
	return true
}

func (f *frames) closeConn(conn net.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.conns, conn)
	_ = conn.Close()
}

// close closes all connections and the listener.
func (f *frames) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	_ = f.listener.Close()
	for conn := range f.conns {
		_ = conn.Close()
	}
}

// frameStream is the stream of one connection.
type frameStream struct {
	conn net.Conn
	in   *bufio.Reader
	said bool
	out  []byte
}

// Recv returns the next message of the process.
func (f *frameStream) Recv() (*outbidv1.AttachRequest, error) {
	var length [lengthBytes]byte
	if _, err := io.ReadFull(f.in, length[:]); err != nil {
		return nil, err
	}
	n, most := binary.BigEndian.Uint32(length[:]), uint32(maxFrame)
	if !f.said {
		most = maxHello
	}
	if n > most {
		return nil, fmt.Errorf("message: must be at most %d bytes, got %d", most, n)
	}
	data := make([]byte, n)
	if _, err := io.ReadFull(f.in, data); err != nil {
		return nil, err
	}
	m := new(outbidv1.AttachRequest)
	if err := proto.Unmarshal(data, m); err != nil {
		return nil, fmt.Errorf("decode a message: %w", err)
	}
	f.said = true
	return m, nil
}

// Send sends a message to the process.
func (f *frameStream) Send(m *outbidv1.AttachResponse) error {
	out, err := proto.MarshalOptions{}.MarshalAppend(append(f.out[:0], make([]byte, lengthBytes)...), m)
	if err != nil {
		return fmt.Errorf("encode a message: %w", err)
	}
	f.out = out
	binary.BigEndian.PutUint32(out, uint32(len(out)-lengthBytes))
	if _, err := f.conn.Write(out); err != nil {
		return fmt.Errorf("send to the process: %w", err)
	}
	return nil
}

// EndFollows reports whether the next message is known to be the end of a trial.
func (f *frameStream) EndFollows() bool {
	if f.in.Buffered() <= lengthBytes {
		return false
	}
	next, err := f.in.Peek(lengthBytes + 1)
	return err == nil && next[lengthBytes] == endTag
}

// HangUp makes Recv and Send return.
func (f *frameStream) HangUp() { _ = f.conn.Close() }
