package bus

import (
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// moveAfter is how long requests must have failed before a client turns to another server, and moveAgain the time
	// until the next one.
	moveAfter = 2 * time.Second
	moveAgain = 5 * time.Second
)

// Mover turns to another server of the NATS cluster while requests fail: the current one may be cut off from the others,
// and its clients would wait for as long. It is safe for concurrent use.
type Mover struct {
	// NC is the connection, or nil.
	NC *nats.Conn

	mu             sync.Mutex
	failing, moved time.Time
}

// Failed records that a request has failed.
func (m *Mover) Failed(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failing.IsZero() {
		m.failing = now
	}
	if m.NC == nil || now.Sub(m.failing) < moveAfter || now.Sub(m.moved) < moveAgain || !m.NC.IsConnected() || len(m.NC.Servers()) < 2 {
		return
	}
	m.moved = now
	_ = m.NC.ForceReconnect() // it fails only if the connection is closed
}

// Worked records that a request has succeeded.
func (m *Mover) Worked() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failing = time.Time{}
}
