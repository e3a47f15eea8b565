package api

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"google.golang.org/grpc"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// keptTableUpdates is the number of encoded updates that a table keeps for other watchers.
const keptTableUpdates = 4

// sentUpdate is the encoded difference between two versions of a table.
type sentUpdate struct {
	from, to uint64
	messages []*encoded
}

// tableUpdate is an update for one watcher.
type tableUpdate struct {
	messages []*encoded
	version  uint64
	next     <-chan struct{}
	ended    bool
}

// ReadColumns implements the service.
func (s *sweepService) ReadColumns(
	req *outbidv1.ReadColumnsRequest, stream grpc.ServerStreamingServer[outbidv1.ReadColumnsResponse],
) error {
	if req.GetSweep() == "" {
		return errNoSweep()
	}
	ctx, table := stream.Context(), s.tables.table(req.GetSweep())
	at, since := req.GetSince(), uint64(0)
	for first := true; ; first = false {
		u, err := table.update(s.control, at, since, s.feeds.pace()/2)
		if errors.Is(err, state.ErrNotFound) {
			s.tables.forget(table)
		}
		if err != nil {
			return err
		}
		if first || u.version != since || u.ended {
			for _, m := range u.messages {
				if err := stream.SendMsg(m); err != nil {
					return err
				}
			}
		}
		at, since = "", u.version
		if !req.GetFollow() || u.ended {
			return nil
		}
		if err := awaitChange(ctx, u.next, s.feeds.pace()); err != nil {
			return err
		}
	}
}

// awaitChange waits for a change, and for at least a time.
func awaitChange(ctx context.Context, next <-chan struct{}, pace time.Duration) error {
	began := time.Now()
	if !wait(ctx, next) || !waitUntil(ctx, began.Add(pace)) {
		return ctx.Err()
	}
	return nil
}

// update returns what changed after a version, which is a token or, if that is empty, a number. A table that was read
// within the time fresh is not read again.
func (t *trialTable) update(c Control, token string, since uint64, fresh time.Duration) (tableUpdate, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if token != "" {
		since = t.parseSince(token)
	}
	if t.view == nil || since == 0 || time.Since(t.read) > fresh || sweepEnded(t.view.GetState()) {
		if err := t.refresh(c); err != nil {
			return tableUpdate{}, err
		}
	}
	u := tableUpdate{version: t.version, next: t.next, ended: sweepEnded(t.view.GetState())}
	for _, sent := range t.sent {
		if sent.from == since && sent.to == t.version {
			u.messages = sent.messages
			return u, nil
		}
	}
	var err error
	if u.messages, err = t.encodeAfter(since); err != nil {
		return u, err
	}
	if since > 0 { // the whole table is large
		t.sent = append(t.sent[max(0, len(t.sent)-keptTableUpdates+1):], sentUpdate{since, t.version, u.messages})
	}
	return u, nil
}

// encodeAfter returns the messages with the changes after a version; 0 is the start.
func (t *trialTable) encodeAfter(since uint64) ([]*encoded, error) {
	var messages []*encoded
	rows := t.rowsAfter(since)
	for first := true; first || len(rows) > 0; first = false {
		n := t.piece(rows)
		m := &outbidv1.ReadColumnsResponse{Whole: first && since == 0, Numbers: int32Bytes(rows[:n])}
		if first {
			m.Sweep = t.view
		}
		if rows = rows[n:]; len(rows) == 0 {
			m.Version = fmt.Sprintf("%s.%d", t.id, t.version)
		}
		m.Columns = t.columnsOf(m.GetNumbers())
		one, err := encode(m)
		if err != nil {
			return nil, err
		}
		messages = append(messages, one)
	}
	return messages, nil
}

// piece returns how many of the rows fit into a message.
func (t *trialTable) piece(rows []int32) int {
	size := 0
	for i, row := range rows {
		size += 4 + 8*len(t.columns)
		for _, c := range t.columns {
			if n := c.textOf(row); n > 0 {
				size += 4
				if len(c.words) > len(t.changed)/16 { // otherwise most rows share their words
					size += len(c.words[n-1])
				}
			}
		}
		if size > maxChunk && i > 0 {
			return i
		}
	}
	return len(rows)
}

func int32Bytes(values []int32) []byte {
	data := make([]byte, 0, 4*len(values))
	for _, v := range values {
		data = binary.LittleEndian.AppendUint32(data, uint32(v))
	}
	return data
}

// columnsOf returns the columns that have values in rows.
func (t *trialTable) columnsOf(numbers []byte) []*outbidv1.TrialColumn {
	rows := make([]int32, len(numbers)/4)
	for i := range rows {
		rows[i] = int32(binary.LittleEndian.Uint32(numbers[4*i:]))
	}
	var found []*outbidv1.TrialColumn
	for _, c := range t.columns {
		one := &outbidv1.TrialColumn{Kind: c.kind, Name: c.name}
		one.Words, one.TextType, one.Text = c.wordsOf(rows)
		one.Type, one.Values = c.valuesOf(rows)
		found = append(found, one)
	}
	return found
}

// wordsOf returns the words of rows, and the type and the data of their indexes; nothing if none has a word.
func (c *trialColumn) wordsOf(rows []int32) (words []string, kind string, data []byte) {
	if len(c.words) == 0 {
		return nil, "", nil
	}
	own := make(map[int32]int32)
	text := make([]float64, len(rows))
	for i, row := range rows {
		n := c.textOf(row)
		if n == 0 {
			continue
		}
		if own[n] == 0 {
			words = append(words, c.words[n-1])
			own[n] = int32(len(words))
		}
		text[i] = float64(own[n])
	}
	if len(words) == 0 {
		return nil, "", nil
	}
	kind, data = encodeNumbers(text)
	return words, kind, data
}

// valuesOf returns the type and the data of the numbers of rows; nothing if no row has a number.
func (c *trialColumn) valuesOf(rows []int32) (kind string, data []byte) {
	values := make([]float64, len(rows))
	none := true
	for i, row := range rows {
		values[i] = c.number(row)
		none = none && math.IsNaN(values[i])
	}
	if none {
		return "", nil
	}
	return encodeNumbers(values)
}

// encodeNumbers returns numbers in the smallest type that is exact.
func encodeNumbers(values []float64) (kind string, data []byte) {
	whole, single, low, high := true, true, 0.0, 0.0
	for _, v := range values {
		whole = whole && v == math.Trunc(v)
		single = single && (math.IsNaN(v) || float64(float32(v)) == v)
		low, high = min(low, v), max(high, v)
	}
	switch {
	case whole && low >= 0 && high <= math.MaxUint8:
		return "u8", appendEach(values, func(b []byte, v float64) []byte { return append(b, byte(v)) })
	case whole && low >= math.MinInt8 && high <= math.MaxInt8:
		return "i8", appendEach(values, func(b []byte, v float64) []byte { return append(b, byte(int8(v))) })
	case whole && low >= math.MinInt16 && high <= math.MaxInt16:
		return "i16", appendEach(values, func(b []byte, v float64) []byte {
			return binary.LittleEndian.AppendUint16(b, uint16(int16(v)))
		})
	case whole && low >= math.MinInt32 && high <= math.MaxInt32:
		return "i32", appendEach(values, func(b []byte, v float64) []byte {
			return binary.LittleEndian.AppendUint32(b, uint32(int32(v)))
		})
	case single:
		return "f32", appendEach(values, func(b []byte, v float64) []byte {
			return binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(v)))
		})
	}
	return "f64", appendEach(values, func(b []byte, v float64) []byte {
		return binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
	})
}

func appendEach(values []float64, appendTo func([]byte, float64) []byte) []byte {
	data := make([]byte, 0, 8*len(values))
	for _, v := range values {
		data = appendTo(data, v)
	}
	return data
}
