package bus

import (
	"bytes"
	"testing"

	"github.com/nats-io/nats.go"
	"pgregory.net/rapid"
)

// TestPieces sends messages of any size, loses and repeats pieces, and mixes senders. The receiver must return only
// complete messages that were sent.
func TestPieces(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		payload := headerRoom + rapid.IntRange(1, 50).Draw(t, "room")
		a := assembler{}
		for n := range rapid.IntRange(1, 6).Draw(t, "messages") {
			data := bytes.Repeat([]byte{byte(n)}, rapid.IntRange(0, 300).Draw(t, "size"))
			m := &nats.Msg{Subject: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "subject"), Data: data, Header: nats.Header{signatureHeader: {"s"}}}
			pieces := splitMessage(m, payload)
			lost := rapid.IntRange(-5, len(pieces)-1).Draw(t, "lost")
			var got []*nats.Msg
			for i, piece := range pieces {
				if len(piece.Data) > payload-headerRoom {
					t.Fatalf("a piece of %d bytes", len(piece.Data))
				}
				if i == lost {
					continue
				}
				if whole := a.add(piece); whole != nil {
					got = append(got, whole)
				}
			}
			if lost >= 0 {
				if len(got) > 0 {
					t.Fatal("a message came out of which a piece was lost")
				}
				continue
			}
			if len(got) != 1 || !bytes.Equal(got[0].Data, data) || got[0].Header.Get(signatureHeader) != "s" || got[0].Subject != m.Subject {
				t.Fatalf("%d bytes became %d messages", len(data), len(got))
			}
		}
	})
}

func TestPiecesThatAreNoPieces(t *testing.T) {
	t.Parallel()
	a := assembler{}
	for _, header := range []string{"x", "x 1", "x 1 1", "x -1 3", "x 1 3", "x 0 0", "x 0 99999999999999999999"} {
		if a.add(&nats.Msg{Subject: "s", Header: nats.Header{pieceHeader: {header}}, Data: []byte("d")}) != nil {
			t.Errorf("%q", header)
		}
	}
	big := make([]byte, maxPieces/2+1)
	a.add(&nats.Msg{Subject: "s", Header: nats.Header{pieceHeader: {"x 0 3"}}, Data: big})
	a.add(&nats.Msg{Subject: "s", Header: nats.Header{pieceHeader: {"x 1 3"}}, Data: big})
	if len(a) != 0 {
		t.Error("more was kept than is allowed")
	}
}
