package bus

import (
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
)

// A message above the server's max_payload is sent in pieces, which the receiver reassembles: orders with many new
// trials, or uplinks of many trials. Each piece has the header pieceHeader; the last one also has the signature of the
// whole message. NATS delivers the messages of one connection on a subject in order. So if a piece does not follow its
// predecessor, one was lost. Then the whole message is dropped, like a lost single message, and its sender repeats it.
const (
	pieceHeader = "Outbid-Piece"
	// headerRoom is the space reserved for headers in a message.
	headerRoom = 1 << 10
	// maxPieces limits the bytes of one message at the receiver.
	maxPieces = 64 << 20
)

// splitMessage splits a message whose data exceeds payload into several messages.
func splitMessage(m *nats.Msg, payload int) []*nats.Msg {
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

// partial is a message with some of its pieces received.
type partial struct {
	id   string
	next int
	data []byte
}

// assembler reassembles messages. It is not safe for concurrent use.
type assembler map[string]*partial

// add returns the message that m completes: m itself if it is not a piece, or nil if pieces are missing or m does not
// fit.
func (a assembler) add(m *nats.Msg) *nats.Msg {
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
