package control

import (
	"google.golang.org/protobuf/proto"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

const (
	// eventsPerBatch bounds the events of a batch, where a step that decides more can be cut.
	eventsPerBatch = 8192
	// bytesPerStep is how much a step may have decided until it begins nothing more that can wait for the next step. What
	// belongs together is finished all the same.
	bytesPerStep = 16 << 20
)

// batches cuts what a step decided into batches, each as large as one message of the ledger (mostBytes) and eventsPerBatch
// allow. A crash may come between any two, so each ends where the step says that it may. What must be in one batch stays
// together even if it is larger: the ledger then stores it in parts.
func batches(out Outcome, mostBytes int) [][]*outbidv1.Event {
	if len(out.Events) <= eventsPerBatch && out.Bytes <= mostBytes {
		if len(out.Events) == 0 {
			return nil
		}
		return [][]*outbidv1.Event{out.Events}
	}
	var all [][]*outbidv1.Event
	from, to, bytes := 0, 0, 0 // the batch under way is events from..to
	for _, end := range append(out.Ends, len(out.Events)) {
		group := sizeOfEvents(out.Events[to:end])
		if to > from && (end-from > eventsPerBatch || bytes+group > mostBytes) {
			all = append(all, out.Events[from:to])
			from, bytes = to, 0
		}
		to, bytes = end, bytes+group
	}
	if to > from {
		all = append(all, out.Events[from:to])
	}
	return all
}

// sizeOfEvents returns how many bytes events take in a batch.
func sizeOfEvents(events []*outbidv1.Event) int {
	n := 0
	for _, e := range events {
		n += sizeOfEvent(e)
	}
	return n
}

// sizeOfEvent counts the tag and the length that come before an event, too.
func sizeOfEvent(e *outbidv1.Event) int { return proto.Size(e) + 6 }

// full reports whether the step under way has decided so much that what can wait should come in the next.
func (c *Core) full() bool { return c.out.Bytes > bytesPerStep }
