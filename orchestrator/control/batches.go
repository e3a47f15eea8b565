package control

import (
	"google.golang.org/protobuf/proto"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

const (
	// eventsPerBatch limits the events of a batch, if the step can be split there.
	eventsPerBatch = 8192
	// bytesPerStep is the size of a step's events from which work that can wait is left to the next step. Events that
	// belong together are still finished.
	bytesPerStep = 16 << 20
)

// batches splits a step's events into batches that fit one message of the ledger (mostBytes) and eventsPerBatch. A
// crash may occur between any two, so each ends where the step allows it. Events that must be in one batch stay
// together even if they are larger: the ledger then stores the batch in parts.
func batches(out Outcome, mostBytes int) [][]*outbidv1.Event {
	if len(out.Events) <= eventsPerBatch && out.Bytes <= mostBytes {
		if len(out.Events) == 0 {
			return nil
		}
		return [][]*outbidv1.Event{out.Events}
	}
	var all [][]*outbidv1.Event
	from, to, bytes := 0, 0, 0 // the current batch is events from..to
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

// sizeOfEvents returns the size of events in a batch in bytes.
func sizeOfEvents(events []*outbidv1.Event) int {
	n := 0
	for _, e := range events {
		n += sizeOfEvent(e)
	}
	return n
}

// sizeOfEvent includes the tag and the length before an event.
func sizeOfEvent(e *outbidv1.Event) int { return proto.Size(e) + 6 }
