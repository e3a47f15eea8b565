package ledger

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
)

// snapshotChunk is the maximum size in bytes of a message with a part of a snapshot. It is smaller if the server's
// limit is.
const snapshotChunk = 512 << 10

// maxGrow limits how much memory is reserved for a snapshot before its content is read.
const maxGrow = 1 << 30

// snapshots stores snapshots as chunks with subjects PREFIX.<seq>.<nonce>.<chunk>, and a manifest with
// PREFIX.<seq>.<nonce>.end, which is written last. The nonce distinguishes two writers. JetStream's object store is
// not used because it publishes without a limit, leaves a marker for every deleted object, and waits forever for lost
// chunks.
type snapshots struct {
	js      jetstream.JetStream
	stream  jetstream.Stream
	subject string
	// payload returns how many bytes fit one message.
	payload func() int
	log     *slog.Logger
}

// manifest describes a whole snapshot.
type manifest struct {
	Seq    uint64 `json:"seq"`
	Bytes  int    `json:"bytes"`
	Chunks int    `json:"chunks"`
	SHA256 string `json:"sha256"`
}

// snapshotsConfig allows direct reads, which are several times faster, unless a replica can lag behind.
func snapshotsConfig(name, subject string, replicas int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: name, Subjects: []string{subject + ".*.*.*"}, Description: "snapshots of the state",
		Storage: jetstream.FileStorage, Discard: jetstream.DiscardNew, Replicas: max(replicas, 1),
		AllowDirect: replicas <= 1,
		MaxMsgs:     -1, MaxBytes: -1, MaxMsgsPerSubject: 1, // a chunk that is sent again replaces itself
	}
}

// SaveSnapshot implements Ledger. It also keeps the newest whole snapshot before the new one.
func (l *JetStream) SaveSnapshot(ctx context.Context, seq uint64, snapshot []byte) error {
	last, err := l.Last(ctx)
	if err == nil && seq > last {
		err = fmt.Errorf("the last batch of the ledger is %d", last)
	}
	if err == nil {
		err = l.snapshots.save(ctx, seq, snapshot)
	}
	if err != nil {
		return fmt.Errorf("save snapshot of batch %d: %w", seq, err)
	}
	return nil
}

// LoadSnapshot implements Ledger. A snapshot that cannot be read is skipped with a warning, because an older one, or
// none, gives the same state more slowly. A snapshot of a batch that the ledger does not have means that the ledger
// has lost its end, and is a *DamageError.
func (l *JetStream) LoadSnapshot(ctx context.Context) (uint64, []byte, error) {
	most, err := l.usable(ctx)
	if err != nil {
		return 0, nil, err
	}
	seq, data, err := l.snapshots.load(ctx, most)
	if err != nil {
		return 0, nil, fmt.Errorf("load snapshot: %w", err)
	}
	last, err := l.Last(ctx)
	if err != nil {
		return 0, nil, err
	}
	if seq > last {
		return 0, nil, missingTail(last, seq+1)
	}
	return seq, data, nil
}

// usable returns the last batch whose snapshot may be loaded: any, unless the loss of the ledger's end was accepted.
func (l *JetStream) usable(ctx context.Context) (uint64, error) {
	l.mu.Lock()
	lossy := l.lossy
	l.mu.Unlock()
	if !lossy {
		return math.MaxUint64, nil
	}
	return l.Last(ctx)
}

func (s *snapshots) save(ctx context.Context, seq uint64, data []byte) error {
	id := fmt.Sprintf("%020d.%s", seq, nuid.Next())
	sum := sha256.Sum256(data)
	m := manifest{Seq: seq, Bytes: len(data), SHA256: hex.EncodeToString(sum[:])}
	for chunk := range slices.Chunk(data, min(snapshotChunk, s.payload())) {
		if err := s.publish(ctx, id, strconv.Itoa(m.Chunks), chunk); err != nil {
			return err
		}
		m.Chunks++
	}
	end, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if err := s.publish(ctx, id, "end", end); err != nil {
		return err
	}
	if err := s.clean(ctx, id); err != nil {
		s.log.Warn("cannot remove old snapshots", "error", err)
	}
	return nil
}

// publish returns once the server has the message on disk.
func (s *snapshots) publish(ctx context.Context, id, part string, data []byte) error {
	return patiently(ctx, func(ctx context.Context) error {
		_, err := s.js.Publish(ctx, s.subject+"."+id+"."+part, data)
		return err
	})
}

// ids lists whole snapshots, and partial ones that a crash has left or that are being written, newest first.
func (s *snapshots) ids(ctx context.Context) (whole, partial []string, err error) {
	info, err := s.stream.Info(ctx, jetstream.WithSubjectFilter(s.subject+".>"))
	if err != nil {
		return nil, nil, err
	}
	found := map[string]bool{} // whether it has its end
	for subject := range info.State.Subjects {
		rest := strings.TrimPrefix(subject, s.subject+".")
		if cut := strings.LastIndex(rest, "."); cut > 0 {
			found[rest[:cut]] = found[rest[:cut]] || rest[cut+1:] == "end"
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(found), func(a, b string) int { return cmp.Compare(b, a) }) {
		if found[id] {
			whole = append(whole, id)
		} else {
			partial = append(partial, id)
		}
	}
	return whole, partial, nil
}

// clean removes all snapshots except id, the newest whole one before it, and later ones of another writer.
func (s *snapshots) clean(ctx context.Context, id string) error {
	whole, partial, err := s.ids(ctx)
	if err != nil {
		return err
	}
	older := slices.DeleteFunc(whole, func(other string) bool { return other >= id })
	remove := slices.DeleteFunc(partial, func(other string) bool { return other >= id })
	if len(older) > 1 {
		remove = append(remove, older[1:]...)
	}
	var errs []error
	for _, old := range remove {
		errs = append(errs, s.stream.Purge(ctx, jetstream.WithPurgeSubject(s.subject+"."+old+".*")))
	}
	return errors.Join(errs...)
}

// load returns the newest readable snapshot of a batch up to most.
func (s *snapshots) load(ctx context.Context, most uint64) (uint64, []byte, error) {
	whole, _, err := s.ids(ctx)
	if err != nil {
		return 0, nil, err
	}
	for _, id := range whole {
		seq, data, err := s.read(ctx, id)
		switch {
		case err == nil && seq > most:
			s.log.Warn("a snapshot is of a batch that the ledger has lost; using an older one", "snapshot", id)
			continue
		case err == nil:
			return seq, data, nil
		}
		if retryable(err) {
			return 0, nil, err // not damaged, only unreachable
		}
		s.log.Warn("a snapshot cannot be read; using an older one", "snapshot", id, "error", err)
	}
	return 0, nil, nil
}

func (s *snapshots) read(ctx context.Context, id string) (uint64, []byte, error) {
	end, err := s.get(ctx, id, "end")
	if err != nil {
		return 0, nil, err
	}
	var m manifest
	if err := json.Unmarshal(end, &m); err != nil {
		return 0, nil, fmt.Errorf("decode its manifest: %w", err)
	}
	var data bytes.Buffer
	data.Grow(min(max(m.Bytes, 0), maxGrow))
	for i := range m.Chunks {
		chunk, err := s.get(ctx, id, strconv.Itoa(i))
		if err != nil {
			return 0, nil, fmt.Errorf("read chunk %d of %d: %w", i, m.Chunks, err)
		}
		data.Write(chunk)
	}
	sum := sha256.Sum256(data.Bytes())
	if got := hex.EncodeToString(sum[:]); got != m.SHA256 || data.Len() != m.Bytes {
		return 0, nil, fmt.Errorf("it has %d bytes of hash %s, want %d of hash %s", data.Len(), got, m.Bytes, m.SHA256)
	}
	return m.Seq, data.Bytes(), nil
}

func (s *snapshots) get(ctx context.Context, id, part string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	m, err := s.stream.GetLastMsgForSubject(ctx, s.subject+"."+id+"."+part)
	if err != nil {
		return nil, err
	}
	return m.Data, nil
}
