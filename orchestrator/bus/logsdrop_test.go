package bus

import (
	"testing"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// A trial that prints more than the buffer holds loses its own output, and not that of others.
func TestAFloodDropsOnlyItself(t *testing.T) {
	t.Parallel()
	l := &Logs{wake: make(chan struct{}, 1)}
	quiet := &outbidv1.LogChunk{Fork: &outbidv1.ForkRef{Sweep: "quiet-1"}}
	loud := &outbidv1.LogChunk{Fork: &outbidv1.ForkRef{Sweep: "loud-1"}}
	l.add(quiet, []byte("said once"), 1<<16)
	for range 3 * logBufferBytes >> 16 {
		l.add(loud, make([]byte, 1<<16), 1<<16)
	}
	if string(l.pending[0].GetData()) != "said once" {
		t.Errorf("the first of %d chunks is of %s", len(l.pending), l.pending[0].GetFork().GetSweep())
	}
	sum := 0
	for _, c := range l.pending {
		sum += len(c.GetData())
	}
	if sum != l.bytes || sum > logBufferBytes || l.dropped < 2*logBufferBytes {
		t.Errorf("%d bytes are pending, counted as %d, and %d were dropped", sum, l.bytes, l.dropped)
	}
}
