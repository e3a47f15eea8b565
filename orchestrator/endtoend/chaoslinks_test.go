package endtoend

import (
	"bufio"
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// network is the connections between the processes of a test. Each goes through a link, which a fault can stop in one
// direction or in both. Bytes sent meanwhile arrive later or never, as in a real network.
type network struct {
	t testing.TB

	mu      sync.Mutex
	blocked map[[2]string]bool
	changed chan struct{}
	closed  bool
	// lose and repeat are how many of a thousand NATS messages of clients are lost, or arrive twice.
	lose, repeat int
	rng          *rand.Rand
	open         []io.Closer
	lost, twice  int
}

func newNetwork(t testing.TB, seed uint64) *network {
	n := &network{t: t, blocked: map[[2]string]bool{}, changed: make(chan struct{}), rng: rand.New(rand.NewPCG(seed, 5))}
	t.Cleanup(func() {
		n.set(func() { n.closed = true })
		for _, c := range n.open {
			_ = c.Close()
		}
	})
	return n
}

func (n *network) set(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change()
	close(n.changed)
	n.changed = make(chan struct{})
}

// block stops what a sends to b, or lets it pass again.
func (n *network) block(a, b string, stop bool) {
	n.set(func() { n.blocked[[2]string{a, b}] = stop })
}

// isolate stops what a party sends to others, what it receives from them, or both.
func (n *network) isolate(party string, others []string, sends, receives, stop bool) {
	for _, other := range others {
		if other == party {
			continue
		}
		if sends {
			n.block(party, other, stop)
		}
		if receives {
			n.block(other, party, stop)
		}
	}
}

// pass waits until a can send to b. It returns false after the test.
func (n *network) pass(a, b string) bool {
	for {
		n.mu.Lock()
		stop, closed, changed := n.blocked[[2]string{a, b}], n.closed, n.changed
		n.mu.Unlock()
		if closed || !stop {
			return !closed
		}
		<-changed
	}
}

// copies returns how often a NATS message arrives.
func (n *network) copies() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch k := n.rng.IntN(1000); {
	case k < n.lose:
		n.lost++
		return 0
	case k < n.lose+n.repeat:
		n.twice++
		return 2
	}
	return 1
}

// link listens for from and forwards to a port of to. It understands NATS's protocol if messages is set.
func (n *network) link(from, to string, port int, messages bool) (address string) {
	n.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		n.t.Fatal(err)
	}
	n.set(func() { n.open = append(n.open, l) })
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			go n.connect(near, from, to, port, messages)
		}
	}()
	return l.Addr().String()
}

func (n *network) connect(near net.Conn, from, to string, port int, messages bool) {
	if !n.pass(from, to) || !n.pass(to, from) {
		_ = near.Close()
		return
	}
	far, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(port))
	if err != nil {
		_ = near.Close()
		return
	}
	n.set(func() { n.open = append(n.open, near, far) })
	carry := n.carryBytes
	if messages {
		carry = n.carryMessages
	}
	go carry(far, near, from, to)
	go carry(near, far, to, from)
}

// carryBytes forwards bytes until either end closes.
func (n *network) carryBytes(to, from net.Conn, a, b string) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 32<<10)
	for {
		got, err := from.Read(buf)
		if !n.pass(a, b) {
			return
		}
		if _, writeErr := to.Write(buf[:got]); writeErr != nil || err != nil {
			return
		}
	}
}

// carryMessages forwards NATS's protocol until either end closes. Messages may be lost or arrive twice.
func (n *network) carryMessages(to, from net.Conn, a, b string) {
	defer to.Close()
	defer from.Close()
	r := bufio.NewReaderSize(from, 64<<10)
	for {
		frame, message, err := readFrame(r)
		if err != nil || !n.pass(a, b) {
			return
		}
		times := 1
		if message {
			times = n.copies()
		}
		for range times {
			if _, err := to.Write(frame); err != nil {
				return
			}
		}
	}
}

// readFrame reads a line of NATS's protocol with its payload, and reports whether it is a message.
func readFrame(r *bufio.Reader) (frame []byte, message bool, err error) {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return nil, false, err
	}
	verb, _, _ := bytes.Cut(line, []byte(" "))
	switch strings.ToUpper(string(verb)) {
	case "PUB", "HPUB", "MSG", "HMSG":
	default:
		return line, false, nil
	}
	fields := bytes.Fields(line)
	size, err := strconv.Atoi(string(fields[len(fields)-1]))
	if err != nil {
		return nil, false, err
	}
	payload := make([]byte, size+2)
	if _, err := io.ReadFull(r, payload); err != nil {
		return nil, false, err
	}
	return append(line, payload...), true, nil
}
