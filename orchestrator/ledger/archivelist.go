package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/ledger/archive"
)

// archived describes a segment that was moved to an object store.
type archived struct {
	// First and Last are the sequence numbers of its first and its last batch, and Hash is the hash of the last batch.
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
	Hash  []byte `json:"hash"`
	// Lost are the batches of the segment whose loss was accepted before.
	Lost []Hole `json:"lost,omitempty"`
	// Store is the location of the object store as its server was given it, or "" for the store in the data directory.
	Store  string          `json:"store,omitempty"`
	Pieces []archive.Piece `json:"pieces"`
}

// archiveList is the list of archived segments: a stream in which message n describes segment n. A segment is archived
// once its message is stored, and its own stream is deleted after that.
type archiveList struct {
	js      jetstream.JetStream
	subject string
	config  jetstream.StreamConfig

	mu     sync.Mutex
	stream jetstream.Stream // nil until it is found
	list   []archived
}

func newArchiveList(js jetstream.JetStream, name, subject string, replicas int) *archiveList {
	return &archiveList{js: js, subject: subject, config: jetstream.StreamConfig{
		Name: name, Subjects: []string{subject}, Description: "where archived segments of the ledger are",
		Storage: jetstream.FileStorage, Discard: jetstream.DiscardNew, Replicas: max(replicas, 1),
		MaxMsgs: -1, MaxBytes: -1, DenyDelete: true, DenyPurge: true,
	}}
}

// all returns the archived segments in order.
func (a *archiveList) all() []archived {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clip(a.list)
}

// last returns the last archived batch and its hash, or 0.
func (a *archiveList) last() (uint64, []byte) {
	list := a.all()
	if len(list) == 0 {
		return 0, nil
	}
	end := list[len(list)-1]
	return end.Last, end.Hash
}

// load reads what was added to the list.
func (a *archiveList) load(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return patiently(ctx, a.loadOnce)
}

// loadOnce is one attempt of load. The caller holds the lock.
func (a *archiveList) loadOnce(ctx context.Context) error {
	stream := a.stream
	if stream == nil {
		var err error
		stream, err = a.js.Stream(ctx, a.config.Name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil
		}
		if err == nil {
			err = keepsAll(stream, a.config)
		}
		if err != nil {
			return fmt.Errorf("stream %s: %w", a.config.Name, err)
		}
	}
	info, err := stream.Info(ctx)
	if err != nil {
		return fmt.Errorf("stream %s: %w", a.config.Name, err)
	}
	a.stream = stream
	for n := uint64(len(a.list)) + 1; n <= info.State.LastSeq; n++ {
		m, err := stream.GetMsg(ctx, n)
		if err != nil {
			return fmt.Errorf("stream %s: message %d: %w", a.config.Name, n, err)
		}
		var s archived
		if err := json.Unmarshal(m.Data, &s); err != nil {
			return fmt.Errorf("stream %s: message %d: %w", a.config.Name, n, err)
		}
		a.list = append(a.list, s)
	}
	return nil
}

// add adds the next segment. Another server may have added the same.
func (a *archiveList) add(ctx context.Context, s archived) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	n := len(a.list)
	return patiently(ctx, func(ctx context.Context) error {
		if err := a.open(ctx); err != nil {
			return err
		}
		_, err := a.js.Publish(ctx, a.subject, data, jetstream.WithExpectStream(a.config.Name),
			jetstream.WithExpectLastSequence(uint64(n)), jetstream.WithRetryAttempts(0))
		if err != nil && !isOutOfPlace(err) {
			return err
		}
		if err := a.loadOnce(ctx); err != nil {
			return err
		}
		if len(a.list) <= n || a.list[n].Last != s.Last || string(a.list[n].Hash) != string(s.Hash) {
			return fmt.Errorf("stream %s: message %d is not about the segment that was archived", a.config.Name, n+1)
		}
		return nil
	})
}

// open creates the stream if it is missing. It writes the settings again before the first message: see segments.
func (a *archiveList) open(ctx context.Context) (err error) {
	if a.stream == nil {
		if a.stream, err = openStream(ctx, a.js, a.config); err != nil {
			a.stream = nil
			return err
		}
	}
	if len(a.list) > 0 {
		return nil
	}
	_, err = bus.UpdateStream(ctx, a.js, a.stream.CachedInfo().Config)
	return err
}
