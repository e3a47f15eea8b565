package ledger

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbid-dev/outbid/orchestrator/bus"
)

// Default limits of a segment. After a kill, NATS reads a segment that was written to in the last minutes from its
// beginning, which takes about half a second for a segment of this size.
const (
	defaultSegmentBatches = 1_000_000
	defaultSegmentBytes   = 512 << 20
)

// sealHeader marks the last message of a full segment, which is not a batch.
const sealHeader = "Outbid-Sealed"

// segments are the successive streams of a ledger. Batches are appended to the newest. When it is full, a last
// message seals it. The seal is appended like a batch, after the sequence number that its writer knows as the last.
// The next segment begins with the sequence number of that message, so there is one order of everything. A writer
// that was deposed meanwhile finds the seal in the place of its batch, and a writer that finds a sealed segment
// without a successor creates the next one. NATS keeps an index of data that no longer changes, so after a kill it reads
// only the newest segments again.
//
// A stream of JetStream has a file with its settings and another with their checksum. NATS ignores the stream if it
// was killed between writing the two, even after creating the same stream again. So settings are written again before
// the first batch, and never changed after it.
type segments struct {
	js jetstream.JetStream
	// config makes the settings of a new segment.
	config segmentConfig
	// batches and bytes are the maximum size of a segment, and age its maximum age; 0 means no limit of age.
	batches, bytes uint64
	age            time.Duration
	log            *slog.Logger
	// archive lists the segments before the first of list.
	archive *archiveList

	mu   sync.Mutex
	list []*segment // in order; the last one is the newest known
	// notBefore is the batch before which no segment is sealed, after an attempt failed.
	notBefore uint64
}

// segment is one stream of the ledger.
type segment struct {
	stream  jetstream.Stream
	name    string
	subject string
	// n is its number, counted from 1.
	n int
	// first is the sequence number of its first batch.
	first uint64
	// bytes is its size, and began the time of its first batch or zero, as far as this process knows.
	bytes uint64
	began time.Time
}

// segmentConfig holds the names and settings that the streams of a ledger share.
type segmentConfig struct {
	stream, subject string
	replicas        int
}

// settings returns the settings of segment n, counted from 1, whose first batch is first. It has no limits and denies
// deletion, because a full disk must refuse new messages and never drop old ones. Direct reads are off, because a
// replica that lags behind may answer them.
func (c segmentConfig) settings(n int, first uint64) jetstream.StreamConfig {
	cfg := jetstream.StreamConfig{
		Name: c.name(n), Subjects: []string{c.subject}, Description: "what happened, in order",
		Storage: jetstream.FileStorage, Discard: jetstream.DiscardNew, Replicas: max(c.replicas, 1),
		MaxMsgs: -1, MaxBytes: -1, DenyDelete: true, DenyPurge: true,
	}
	if n > 1 {
		cfg.Subjects = []string{c.subject + ".segment." + strconv.Itoa(n)}
		cfg.Description += fmt.Sprintf(", from batch %d on", first)
		cfg.FirstSeq = first
	}
	return cfg
}

func (c segmentConfig) name(n int) string {
	if n == 1 {
		return c.stream
	}
	return c.stream + "_" + strconv.Itoa(n)
}

// open opens or creates the first segment that is not archived, and opens those that follow.
func (s *segments) open(ctx context.Context) error {
	if err := s.archive.load(ctx); err != nil {
		return err
	}
	n := len(s.archive.all()) + 1
	if err := s.openFirst(ctx, n); err != nil {
		return err
	}
	for {
		newest, _, err := s.newest(ctx)
		if err != nil {
			return err
		}
		// A segment with a successor was sealed. If its seal is missing, it has lost its end, but it is not the
		// newest.
		n := newest.n + 1
		next, err := s.js.Stream(ctx, s.config.name(n))
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		s.add(n, next)
	}
}

// openFirst opens segment n, which is the first that is not archived. It creates only the first of all.
func (s *segments) openFirst(ctx context.Context, n int) error {
	if n == 1 {
		stream, err := openStream(ctx, s.js, s.config.settings(1, 1))
		if err == nil {
			s.add(1, stream)
		}
		return err
	}
	last, _ := s.archive.last()
	name := s.config.name(n)
	stream, err := s.js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return damaged(last+1, "stream %s, which continues the archived batches, is missing", name)
	}
	if err == nil {
		err = keepsAll(stream, s.config.settings(n, last+1))
	}
	if err != nil {
		return fmt.Errorf("stream %s: %w", name, err)
	}
	if first := stream.CachedInfo().Config.FirstSeq; first != last+1 {
		return damaged(min(first, last)+1, "the archive ends with batch %d, and stream %s begins with %d", last, name, first)
	}
	s.add(n, stream)
	return nil
}

// refresh removes segments from the list that another process has archived meanwhile. It reports whether there were
// any.
func (s *segments) refresh(ctx context.Context) (bool, error) {
	if err := s.archive.load(ctx); err != nil {
		return false, err
	}
	n := len(s.archive.all()) + 1
	s.mu.Lock()
	before := len(s.list)
	s.list = slices.DeleteFunc(slices.Clone(s.list), func(known *segment) bool { return known.n < n })
	changed, empty := len(s.list) < before, len(s.list) == 0
	s.mu.Unlock()
	if empty {
		return true, s.openFirst(ctx, n)
	}
	return changed, nil
}

// add appends segment n to the list, unless it is in it already.
func (s *segments) add(n int, stream jetstream.Stream) {
	info := stream.CachedInfo()
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.ContainsFunc(s.list, func(known *segment) bool { return known.name == info.Config.Name }) {
		return
	}
	s.list = append(s.list, &segment{
		stream: stream, name: info.Config.Name, subject: info.Config.Subjects[0], n: n, first: max(info.Config.FirstSeq, 1),
		bytes: info.State.Bytes, began: info.State.FirstTime,
	})
}

// known returns the known segments in order.
func (s *segments) known() []*segment {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clip(s.list)
}

// segmentState describes the end of a segment.
type segmentState struct {
	// last is the sequence number of its last batch, or first-1.
	last   uint64
	sealed bool
	info   *jetstream.StreamInfo
}

// newest asks NATS for the newest segment and its state.
func (s *segments) newest(ctx context.Context) (*segment, segmentState, error) {
	for {
		list := s.known()
		newest := list[len(list)-1]
		state, err := newest.state(ctx)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			archived, refreshErr := s.refresh(ctx)
			if err = errors.Join(err, refreshErr); archived && refreshErr == nil {
				continue
			}
		}
		if err != nil || !state.sealed {
			return newest, state, err
		}
		n := newest.n + 1
		name := s.config.name(n)
		next, err := s.js.Stream(ctx, name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return newest, state, nil // its writer was killed, or has not created it yet
		}
		if err == nil {
			err = keepsAll(next, s.config.settings(n, 1))
		}
		if err != nil {
			return nil, segmentState{}, fmt.Errorf("stream %s: %w", name, err)
		}
		if first := next.CachedInfo().Config.FirstSeq; first != state.last+1 {
			return nil, segmentState{}, damaged(min(first, state.last)+1, "stream %s ends with batch %d, and %s begins with %d",
				newest.name, state.last, name, first)
		}
		s.add(n, next)
	}
}

func (s *segment) state(ctx context.Context) (segmentState, error) {
	info, err := s.stream.Info(ctx)
	if err != nil {
		return segmentState{}, err
	}
	state := segmentState{last: info.State.LastSeq, info: info}
	if info.State.Msgs == 0 {
		return state, nil
	}
	m, err := s.stream.GetMsg(ctx, info.State.LastSeq)
	if errors.Is(err, jetstream.ErrMsgNotFound) { // a later read will report it
		return state, nil
	}
	if err != nil {
		return segmentState{}, err
	}
	if isSeal(m) {
		state.last, state.sealed = state.last-1, true
	}
	return state, nil
}

func isSeal(m *jetstream.RawStreamMsg) bool { return m.Header.Get(sealHeader) != "" }

// extend creates the segment after the newest, if that is sealed.
func (s *segments) extend(ctx context.Context) error {
	newest, state, err := s.newest(ctx)
	if err != nil || !state.sealed {
		return err
	}
	n := newest.n + 1
	cfg := s.config.settings(n, state.last+1)
	next, err := bus.CreateStream(ctx, s.js, cfg)
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another writer was faster
		next, err = s.js.Stream(ctx, cfg.Name)
	}
	if err != nil {
		return fmt.Errorf("create stream %s to continue the ledger: %w", cfg.Name, err)
	}
	s.add(n, next)
	s.log.Info("the ledger continues in another stream", "stream", cfg.Name, "from", cfg.FirstSeq, "before", newest.name)
	return nil
}

// confirm writes the settings of a segment that has no batch yet.
func (s *segments) confirm(ctx context.Context, empty *segment) error {
	_, err := bus.UpdateStream(ctx, s.js, empty.stream.CachedInfo().Config)
	return err
}

// holding returns the segment for batch seq.
func (s *segments) holding(seq uint64) *segment {
	list := s.known()
	for i := len(list) - 1; i > 0; i-- {
		if list[i].first <= seq {
			return list[i]
		}
	}
	return list[0]
}

// grow records the size and the time of a batch that was appended to the newest segment.
func (s *segments) grow(bytes int, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	newest := s.list[len(s.list)-1]
	newest.bytes += uint64(bytes)
	if newest.began.IsZero() {
		newest.began = at
	}
}

// full reports whether to seal the newest segment, which ends with batch seq, before a batch of the time at.
func (s *segments) full(seq uint64, at time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	newest := s.list[len(s.list)-1]
	if seq < newest.first || seq < s.notBefore {
		return false
	}
	old := s.age > 0 && !newest.began.IsZero() && at.Sub(newest.began) >= s.age
	return old || seq-newest.first+1 >= s.batches || newest.bytes >= s.bytes
}

// seal ends the newest segment after batch seq, which its writer has appended, and creates the next one. If that
// fails, the ledger continues where it can, and another attempt follows some batches later.
func (s *segments) seal(ctx context.Context, seq uint64) {
	err := s.trySeal(ctx, seq)
	if err == nil {
		return
	}
	s.mu.Lock()
	s.notBefore = seq + max(s.batches/100, 1)
	s.mu.Unlock()
	s.log.Warn("could not continue the ledger in another stream; starts after a crash will take longer",
		"batch", seq, "err", err)
}

func (s *segments) trySeal(ctx context.Context, seq uint64) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	account, err := s.js.AccountInfo(ctx)
	if err != nil {
		return err
	}
	if limit := account.Limits.MaxStreams; limit > 0 && account.Streams >= limit {
		return fmt.Errorf("max_streams: this NATS account has reached its limit of %d streams; raise it", limit)
	}
	list := s.known()
	newest := list[len(list)-1]
	seal := &nats.Msg{
		Subject: newest.subject, Header: nats.Header{sealHeader: {s.config.name(newest.n + 1)}},
		Data: []byte("the ledger goes on in the stream that the header names"),
	}
	if _, err := s.js.PublishMsg(ctx, seal, jetstream.WithExpectStream(newest.name), jetstream.WithExpectLastSequence(seq)); err != nil {
		return err
	}
	return s.extend(ctx)
}
