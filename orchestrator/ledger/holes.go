package ledger

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// Hole is a run of batches that the streams of a ledger have lost.
type Hole struct {
	// From and To are the first and the last of them.
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
}

// String returns the hole in words.
func (h Hole) String() string {
	if h.From == h.To {
		return fmt.Sprintf("batch %d", h.From)
	}
	return fmt.Sprintf("batches %d to %d", h.From, h.To)
}

// HolesText lists the first holes in words, and the number of the rest.
func HolesText(holes []Hole) string {
	var all []string
	for _, h := range holes[:min(len(holes), 5)] {
		all = append(all, h.String())
	}
	if more := len(holes) - len(all); more > 0 {
		all = append(all, fmt.Sprintf("%d more", more))
	}
	return strings.Join(all, ", ")
}

// Holes returns the batches that NATS counts but does not have. It takes one request per segment. Batches that NATS
// believes to have but cannot read are found only by reading.
func (l *JetStream) Holes(ctx context.Context) ([]Hole, error) {
	if _, _, err := l.segments.newest(ctx); err != nil {
		return nil, fmt.Errorf("look for holes in the ledger: %w", err)
	}
	var holes []Hole
	list := l.segments.known()
	for i, s := range list {
		end := uint64(math.MaxUint64)
		if i+1 < len(list) {
			end = list[i+1].first - 1
		}
		found, err := s.holes(ctx, end)
		if err != nil {
			return nil, fmt.Errorf("look for holes in stream %s of the ledger: %w", s.name, err)
		}
		holes = append(holes, found...)
	}
	return holes, nil
}

// holes returns the holes of a segment whose last batch is end, or math.MaxUint64 for the newest segment.
func (s *segment) holes(ctx context.Context, end uint64) ([]Hole, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	info, err := s.stream.Info(ctx)
	if err != nil {
		return nil, err
	}
	st := info.State
	var holes []Hole
	switch {
	case end != math.MaxUint64 && st.LastSeq < end:
		holes = append(holes, Hole{max(s.first, st.LastSeq+1), end})
	case end == math.MaxUint64:
		end = st.LastSeq
	}
	if st.LastSeq < s.first {
		return holes, nil // the segment is empty
	}
	if st.Msgs == 0 { // all messages are lost
		return []Hole{{s.first, end}}, nil
	}
	if st.FirstSeq > s.first {
		holes = append(holes, Hole{s.first, st.FirstSeq - 1})
	}
	if st.NumDeleted > 0 {
		if info, err = s.stream.Info(ctx, jetstream.WithDeletedDetails(true)); err != nil {
			return nil, err
		}
		holes = append(holes, runs(info.State.Deleted)...)
	}
	if _, err := s.stream.GetMsg(ctx, st.LastSeq); errors.Is(err, jetstream.ErrMsgNotFound) {
		holes = append(holes, Hole{st.LastSeq, st.LastSeq})
	} else if err != nil {
		return nil, err
	}
	// The seal is not a batch. It has the sequence number of the next batch.
	return Without(holes, []Hole{{end + 1, math.MaxUint64 - 1}}), nil
}

// runs joins consecutive numbers.
func runs(missing []uint64) []Hole {
	slices.Sort(missing)
	var holes []Hole
	for _, seq := range missing {
		holes = append(holes, Hole{seq, seq})
	}
	return joinHoles(holes)
}

// joinHoles sorts holes and joins adjacent ones.
func joinHoles(holes []Hole) []Hole {
	slices.SortFunc(holes, func(a, b Hole) int { return int(int64(a.From - b.From)) })
	var joined []Hole
	for _, h := range holes {
		if n := len(joined); n > 0 && h.From <= joined[n-1].To+1 {
			joined[n-1].To = max(joined[n-1].To, h.To)
			continue
		}
		joined = append(joined, h)
	}
	return joined
}

// Without returns the parts of holes that are not in others.
func Without(holes, others []Hole) []Hole {
	var left []Hole
	for _, h := range joinHoles(slices.Clone(holes)) {
		for _, o := range joinHoles(slices.Clone(others)) {
			if o.To < h.From || o.From > h.To {
				continue
			}
			if o.From > h.From {
				left = append(left, Hole{h.From, o.From - 1})
			}
			h.From = o.To + 1
		}
		if h.From <= h.To {
			left = append(left, h)
		}
	}
	return left
}

// Accept accepts the loss of batches: reading skips them, and the batch after them may follow any hash. Snapshots of
// batches beyond the ledger's end are also skipped.
func (l *JetStream) Accept(holes []Hole) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.accepted, l.lossy = joinHoles(slices.Clone(holes)), true
}

// lost returns the holes that were accepted, also before their segment was archived.
func (l *JetStream) lost() []Hole {
	l.mu.Lock()
	lost := slices.Clone(l.accepted)
	l.mu.Unlock()
	for _, s := range l.segments.archive.all() {
		lost = append(lost, s.Lost...)
	}
	return joinHoles(lost)
}

// after returns the first sequence number from seq on that is not in a hole.
func after(holes []Hole, seq uint64) uint64 {
	for _, h := range holes {
		if h.From <= seq && seq <= h.To {
			seq = h.To + 1
		}
	}
	return seq
}
