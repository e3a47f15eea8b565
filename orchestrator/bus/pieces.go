package bus

import (
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
)

// A message that is larger than the server's max_payload is sent in pieces, which the receiver puts together: the orders
// of a node with many new trials, and what a worker with many trials says. Each piece carries pieceHeader, and the last
// one the signature under the whole. NATS delivers what one connection publishes on a subject in order, so a piece that
// does not follow the one before means that something was lost: then the message is dropped, as a single one may be, and
// its sender repeats it.
const (
	pieceHeader = "Outbid-Piece"
	// headerRoom is what headers may take of a message.
	headerRoom = 1 << 10
	// maxPieces bounds what a receiver keeps of one message, in bytes.
	maxPieces = 64 << 20
)

// inPieces returns the messages that carry one message whose data is more than payload allows.
func inPieces(m *nats.Msg, payload int) []*nats.Msg {
	size := payload - headerRoom
	if len(m.Data) <= size {
		return []*nats.Msg{m}
	}
	id, count := nuid.Next(), (len(m.Data)+size-1)/size
	pieces := make([]*nats.Msg, count)
	for i := range pieces {
		piece := &nats.Msg{Subject: m.Subject, Header: nats.Header{}, Data: m.Data[i*size : min((i+1)*size, len(m.Data))]}
		if i == count-1 {
			for name, values := range m.Header {
				piece.Header[name] = values
			}
		}
		piece.Header.Set(pieceHeader, fmt.Sprintf("%s %d %d", id, i, count))
		pieces[i] = piece
	}
	return pieces
}

// partial is a message of which some pieces have come.
type partial struct {
	id   string
	next int
	data []byte
}

// assembler puts messages together. It is not safe for concurrent use.
type assembler map[string]*partial

// take returns the message that a message completes: itself if it is not a piece, and nil if more pieces are to come or it
// belongs to nothing.
func (a assembler) take(m *nats.Msg) *nats.Msg {
	header := m.Header.Get(pieceHeader)
	if header == "" {
		delete(a, m.Subject)
		return m
	}
	var id string
	var i, count int
	if _, err := fmt.Sscanf(header, "%s %d %d", &id, &i, &count); err != nil || i < 0 || i >= count {
		return nil
	}
	p := a[m.Subject]
	if i == 0 {
		p = &partial{id: id}
		a[m.Subject] = p
	}
	if p == nil || p.id != id || p.next != i || len(p.data)+len(m.Data) > maxPieces {
		delete(a, m.Subject)
		return nil
	}
	p.data = append(p.data, m.Data...)
	if p.next++; p.next < count {
		return nil
	}
	delete(a, m.Subject)
	return &nats.Msg{Subject: m.Subject, Header: m.Header, Data: p.data, Sub: m.Sub}
}
