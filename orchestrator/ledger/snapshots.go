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

// snapshotAhead is how many chunks are read at a time. Two are enough for a NATS server on the same machine.
const snapshotAhead = 4

// maxGrow limits how much memory is reserved for a snapshot before its content is read.
const maxGrow = 1 << 30

// snapshots stores snapshots as chunks with subjects PREFIX.<seq>.<nonce>.<chunk>, and a manifest with
// PREFIX.<seq>.<nonce>.end, which is written last. The nonce distinguishes two writers. The manifest of changes ends in
// since-<batch> instead of end, so that versions without changes take them for partial snapshots. JetStream's object store
// is not used because it publishes without a limit, leaves a marker for every deleted object, and waits forever for lost
// chunks.
type snapshots struct {
	js      jetstream.JetStream
	stream  jetstream.Stream
	subject string
	// payload returns how many bytes fit one message.
	payload func() int
	log     *slog.Logger
	// before is called before each step of writing or cleaning, and stops it with an error. It is nil except in tests.
	before func(step string) error
}

func (s *snapshots) step(what string) error {
	if s.before == nil {
		return nil
	}
	return s.before(what)
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

// SaveChanges implements Ledger.
func (l *JetStream) SaveChanges(ctx context.Context, since, seq uint64, changes []byte) error {
	last, err := l.Last(ctx)
	if err == nil && (seq > last || since >= seq) {
		err = fmt.Errorf("the last batch of the ledger is %d", last)
	}
	if err == nil {
		_, err = l.snapshots.write(ctx, seq, sincePart+strconv.FormatUint(since, 10), changes)
	}
	if err != nil {
		return fmt.Errorf("save changes from batch %d to %d: %w", since, seq, err)
	}
	return nil
}

// LoadChanges implements Ledger. Changes that cannot be read are skipped with a warning, because the batches give the same
// state more slowly.
func (l *JetStream) LoadChanges(ctx context.Context, since uint64) ([][]byte, error) {
	most, err := usableSnapshots(ctx, l)
	if err != nil {
		return nil, err
	}
	seq, all, err := l.snapshots.follow(ctx, since, most)
	if err != nil {
		return nil, fmt.Errorf("load changes: %w", err)
	}
	last, err := l.Last(ctx)
	if err != nil {
		return nil, err
	}
	if seq > last {
		return nil, missingTail(last, seq+1)
	}
	return all, nil
}

// LoadSnapshot implements Ledger. A snapshot that cannot be read is skipped with a warning, because an older one, or
// none, gives the same state more slowly. A snapshot of a batch that the ledger does not have means that the ledger
// has lost its end, and is a *DamageError.
func (l *JetStream) LoadSnapshot(ctx context.Context) (uint64, []byte, error) {
	most, err := usableSnapshots(ctx, l)
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

// usableSnapshots returns the last batch whose snapshot may be loaded: any, unless the loss of the ledger's end was
// accepted. In that case it removes the snapshots of lost batches, because the ledger will have other batches of these
// numbers.
func usableSnapshots(ctx context.Context, l *JetStream) (uint64, error) {
	l.mu.Lock()
	lossy := l.lossy
	l.mu.Unlock()
	if !lossy {
		return math.MaxUint64, nil
	}
	list, err := l.snapshots.list(ctx)
	if err != nil {
		return 0, err
	}
	last, err := l.Last(ctx) // after the list, because a snapshot follows its batch
	if err != nil {
		return 0, err
	}
	return last, l.snapshots.removeAfter(ctx, list, last)
}

// removeAfter removes the listed snapshots of batches after last.
func (s *snapshots) removeAfter(ctx context.Context, l listed, last uint64) error {
	ids := slices.Concat(l.whole, l.partial)
	for _, c := range l.changes {
		ids = append(ids, c.id)
	}
	for _, id := range ids {
		if seq, err := seqOf(id); err != nil || seq <= last {
			continue
		}
		s.log.Warn("a snapshot is of a batch that the ledger has lost; removing it", "snapshot", id)
		if err := s.remove(ctx, id); err != nil {
			return fmt.Errorf("remove the snapshot of a lost batch: %w", err)
		}
	}
	return nil
}

func (s *snapshots) remove(ctx context.Context, id string) error {
	return s.stream.Purge(ctx, jetstream.WithPurgeSubject(s.subject+"."+id+".*"))
}

func (s *snapshots) save(ctx context.Context, seq uint64, data []byte) error {
	id, err := s.write(ctx, seq, endPart, data)
	if err != nil {
		return err
	}
	if err := s.clean(ctx, id); err != nil {
		s.log.Warn("cannot remove old snapshots", "error", err)
	}
	return nil
}

// The last part of the manifest's subject, of a snapshot and of changes.
const (
	endPart   = "end"
	sincePart = "since-"
)

// write writes the chunks and then the manifest.
func (s *snapshots) write(ctx context.Context, seq uint64, last string, data []byte) (id string, err error) {
	id = fmt.Sprintf("%020d.%s", seq, nuid.Next())
	sum := sha256.Sum256(data)
	m := manifest{Seq: seq, Bytes: len(data), SHA256: hex.EncodeToString(sum[:])}
	for chunk := range slices.Chunk(data, min(snapshotChunk, s.payload())) {
		if err := s.step("chunk"); err != nil {
			return id, err
		}
		if err := s.publish(ctx, id, strconv.Itoa(m.Chunks), chunk); err != nil {
			return id, err
		}
		m.Chunks++
	}
	end, err := json.Marshal(m)
	if err != nil {
		return id, err
	}
	if err := s.step("manifest"); err != nil {
		return id, err
	}
	return id, s.publish(ctx, id, last, end)
}

// publish returns once the server has the message on disk.
func (s *snapshots) publish(ctx context.Context, id, part string, data []byte) error {
	return patiently(ctx, func(ctx context.Context) error {
		_, err := s.js.Publish(ctx, s.subject+"."+id+"."+part, data)
		return err
	})
}

// listed are the snapshots in the stream, newest first.
type listed struct {
	whole, partial []string // partial ones were left by a crash or are being written
	changes        []changes
}

// changes are those between the batches since and seq.
type changes struct {
	id         string
	since, seq uint64
}

// list lists the snapshots.
func (s *snapshots) list(ctx context.Context) (listed, error) {
	info, err := s.stream.Info(ctx, jetstream.WithSubjectFilter(s.subject+".>"))
	if err != nil {
		return listed{}, err
	}
	manifests := map[string]string{} // their last parts by id; empty without one
	for subject := range info.State.Subjects {
		rest := strings.TrimPrefix(subject, s.subject+".")
		if cut := strings.LastIndex(rest, "."); cut > 0 {
			id, part := rest[:cut], rest[cut+1:]
			if part != endPart && !strings.HasPrefix(part, sincePart) {
				part = ""
			}
			manifests[id] = max(manifests[id], part)
		}
	}
	var l listed
	for _, id := range slices.SortedFunc(maps.Keys(manifests), func(a, b string) int { return cmp.Compare(b, a) }) {
		since, isChanges := strings.CutPrefix(manifests[id], sincePart)
		switch {
		case manifests[id] == endPart:
			l.whole = append(l.whole, id)
		case isChanges:
			from, err1 := strconv.ParseUint(since, 10, 64)
			to, err2 := seqOf(id)
			if err1 == nil && err2 == nil && from < to { // a later version may write others
				l.changes = append(l.changes, changes{id, from, to})
			}
		default:
			l.partial = append(l.partial, id)
		}
	}
	return l, nil
}

// seqOf returns the batch of a snapshot.
func seqOf(id string) (uint64, error) {
	seq, _, _ := strings.Cut(id, ".")
	return strconv.ParseUint(seq, 10, 64)
}

// clean removes all snapshots except id, the newest whole one before it, and later ones, which are changes since id or of
// another writer.
func (s *snapshots) clean(ctx context.Context, id string) error {
	l, err := s.list(ctx)
	if err != nil {
		return err
	}
	seq, err := seqOf(id)
	if err != nil {
		return err
	}
	older := slices.DeleteFunc(l.whole, func(other string) bool { return other >= id })
	remove := slices.DeleteFunc(l.partial, func(other string) bool { return other >= id })
	for _, c := range l.changes {
		if c.seq <= seq {
			remove = append(remove, c.id)
		}
	}
	if len(older) > 1 {
		remove = append(remove, older[1:]...)
	}
	var errs []error
	for _, old := range remove {
		if err := s.step("clean"); err != nil {
			return err
		}
		errs = append(errs, s.remove(ctx, old))
	}
	return errors.Join(errs...)
}

// follow returns the changes that lead from a batch to a later one up to most, and that one. Of several it takes the
// longest.
func (s *snapshots) follow(ctx context.Context, since, most uint64) (uint64, [][]byte, error) {
	l, err := s.list(ctx)
	if err != nil {
		return 0, nil, err
	}
	var all [][]byte
	for i := 0; i < len(l.changes); i++ {
		c := l.changes[i]
		if c.since != since || c.seq > most {
			continue
		}
		seq, data, err := s.read(ctx, c.id, sincePart+strconv.FormatUint(since, 10))
		if err == nil && seq != c.seq {
			err = fmt.Errorf("its manifest is of batch %d", seq)
		}
		if err != nil && retryable(err) {
			return 0, nil, err // not damaged, only unreachable
		}
		if err != nil {
			s.log.Warn("changes since a snapshot cannot be read; reading the ledger instead", "snapshot", c.id, "error", err)
			continue
		}
		all, since, i = append(all, data), seq, -1 // continue from there
	}
	return since, all, nil
}

// load returns the newest readable snapshot of a batch up to most.
func (s *snapshots) load(ctx context.Context, most uint64) (uint64, []byte, error) {
	l, err := s.list(ctx)
	if err != nil {
		return 0, nil, err
	}
	for _, id := range l.whole {
		seq, data, err := s.read(ctx, id, endPart)
		switch {
		case err == nil && seq > most:
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

func (s *snapshots) read(ctx context.Context, id, last string) (uint64, []byte, error) {
	end, err := s.get(ctx, id, last)
	if err != nil {
		return 0, nil, err
	}
	var m manifest
	if err := json.Unmarshal(end, &m); err != nil {
		return 0, nil, fmt.Errorf("decode its manifest: %w", err)
	}
	data, err := s.join(ctx, id, m)
	if err != nil {
		return 0, nil, err
	}
	return m.Seq, data, nil
}

// join reads the chunks of a snapshot, the next few ahead of time, and compares size and hash with the manifest.
func (s *snapshots) join(ctx context.Context, id string, m manifest) ([]byte, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		chunk []byte
		err   error
	}
	ahead := make([]chan answer, snapshotAhead)
	ask := func(i int) {
		if i < m.Chunks {
			slot := make(chan answer, 1)
			ahead[i%len(ahead)] = slot
			go func() {
				chunk, err := s.get(ctx, id, strconv.Itoa(i))
				slot <- answer{chunk, err}
			}()
		}
	}
	for i := range ahead {
		ask(i)
	}
	var data bytes.Buffer
	data.Grow(min(max(m.Bytes, 0), maxGrow))
	sum := sha256.New()
	for i := range m.Chunks {
		next := <-ahead[i%len(ahead)]
		if next.err != nil {
			return nil, fmt.Errorf("read chunk %d of %d: %w", i, m.Chunks, next.err)
		}
		ask(i + len(ahead))
		data.Write(next.chunk)
		sum.Write(next.chunk)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != m.SHA256 || data.Len() != m.Bytes {
		return nil, fmt.Errorf("it has %d bytes of hash %s, want %d of hash %s", data.Len(), got, m.Bytes, m.SHA256)
	}
	return data.Bytes(), nil
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
