package bus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// tailWindow is how many messages of a stream are first searched for a tail, and tailGrowth the factor for each further
// search.
const (
	tailWindow = 64
	tailGrowth = 4
)

// Tail returns the last chunks of a sweep's or trial's output that contain at least the given number of lines, and the
// position after them. It reads backwards from the end of the tenant's stream, so its cost depends on the number of
// lines, not on the earlier output.
func (l *Logs) Tail(ctx context.Context, tenant, sweep string, trial *int32, lines int) (
	chunks []*outbidv1.LogChunk, next uint64, err error,
) {
	if err := errors.Join(CheckToken("tenant", tenant), CheckToken("sweep", sweep)); err != nil {
		return nil, 0, err
	}
	chunks, next, err = l.tail(ctx, LogStream(tenant), []string{logFilter(tenant, sweep, trial)}, lines)
	if err != nil {
		return nil, 0, fmt.Errorf("read the end of the logs of %s: %w", sweep, err)
	}
	return chunks, next, nil
}

func (l *Logs) tail(ctx context.Context, name string, subjects []string, lines int) ([]*outbidv1.LogChunk, uint64, error) {
	stream, err := l.js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, 1, nil
	}
	if err != nil {
		return nil, 0, err
	}
	state := stream.CachedInfo().State
	next, first, end := state.LastSeq+1, state.FirstSeq, state.LastSeq
	// Skip everything after the last message of these subjects.
	last := uint64(0)
	for _, subject := range subjects {
		m, err := stream.GetLastMsgForSubject(ctx, subject)
		if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil, 0, err
		}
		if err == nil {
			last = max(last, m.Sequence)
		}
	}
	if last == 0 {
		return nil, next, nil
	}
	end = min(end, last)
	var found []*outbidv1.LogChunk
	for window := uint64(tailWindow); end >= first && countLines(found) < lines; window *= tailGrowth {
		begin := first
		if end >= first+window {
			begin = end - window + 1
		}
		part, err := l.window(ctx, name, subjects, begin, end, lines-countLines(found))
		if err != nil {
			return nil, 0, err
		}
		found = append(part, found...)
		end = begin - 1
	}
	return found, next, nil
}

// window returns the last chunks between two positions in a stream that contain at least the given number of lines.
func (l *Logs) window(ctx context.Context, name string, subjects []string, begin, end uint64, lines int) ([]*outbidv1.LogChunk, error) {
	var kept []*outbidv1.LogChunk
	held := 0
	r := StreamRead{Stream: name, Subjects: subjects, From: begin}
	r.Pending = func(messages uint64) (bool, error) { return messages > 0, nil }
	err := ReadStream(ctx, l.js, r, func(m jetstream.Msg) (bool, error) {
		meta, err := m.Metadata()
		if err != nil || meta.Sequence.Stream > end {
			return false, err
		}
		c := new(outbidv1.LogChunk)
		if proto.Unmarshal(m.Data(), c) == nil && matchesSubject(m.Subject(), c) {
			kept, held = append(kept, c), held+linesOf(c)
			for held-linesOf(kept[0]) >= lines {
				held -= linesOf(kept[0])
				kept = slices.Delete(kept, 0, 1)
			}
		}
		return meta.NumPending > 0 && meta.Sequence.Stream < end, nil
	})
	return kept, err
}

// linesOf counts the lines of a chunk.
func linesOf(c *outbidv1.LogChunk) int {
	n := bytes.Count(c.GetData(), []byte{'\n'})
	if data := c.GetData(); len(data) > 0 && data[len(data)-1] != '\n' {
		n++
	}
	return n
}

func countLines(chunks []*outbidv1.LogChunk) int {
	n := 0
	for _, c := range chunks {
		n += linesOf(c)
	}
	return n
}
