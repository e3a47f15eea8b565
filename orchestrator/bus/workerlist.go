package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbid-dev/outbid/orchestrator/identity"
)

// bucketStream is the stream of WorkersBucket.
const bucketStream = "KV_" + WorkersBucket

// openBucket opens the bucket of workers, and creates it if it is missing.
func openBucket(ctx context.Context, nc *nats.Conn, replicas int) (jetstream.JetStream, jetstream.KeyValue, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, nil, err
	}
	kv, err := MakeBucket(ctx, js, jetstream.KeyValueConfig{
		Bucket: WorkersBucket, Description: "which workers belong to the cluster",
		Storage: jetstream.FileStorage, Replicas: max(replicas, 1),
		RePublish: &jetstream.RePublish{Source: bucketSubject + ">", Destination: changeSubject + ">"},
	})
	return js, kv, err
}

// AddWorker makes the worker with a public key the worker of a node, unless it is already. Unlike OpenWorkers and Add it
// reads only that node's entry.
func AddWorker(ctx context.Context, nc *nats.Conn, node, public string, now time.Time) error {
	if err := CheckToken("node", node); err != nil {
		return err
	}
	if !identity.IsKey(public) {
		return fmt.Errorf("add worker %s: %q is not a NATS user public key", node, public)
	}
	_, kv, err := openBucket(ctx, nc, 1)
	if err != nil {
		return fmt.Errorf("add worker %s: %w", node, err)
	}
	var record workerRecord
	entry, err := kv.Get(ctx, nodePrefix+node)
	if err == nil && json.Unmarshal(entry.Value(), &record) == nil && record.Public == public {
		return nil
	}
	if err != nil && !errors.Is(err, jetstream.ErrKeyNotFound) {
		return fmt.Errorf("add worker %s: %w", node, err)
	}
	data, err := json.Marshal(workerRecord{Public: public, Joined: now.UTC()})
	if err == nil {
		_, err = kv.Put(ctx, nodePrefix+node, data)
	}
	if err != nil {
		return fmt.Errorf("add worker %s: %w", node, err)
	}
	return nil
}

// bucketMark identifies the content of the bucket: every change of the content changes the mark.
type bucketMark struct {
	created               time.Time
	first, last, messages uint64
}

// load brings the list up to date. If the bucket has changed since the last load, it reads all entries with one consumer:
// a request per worker would take seconds in a large cluster.
func (w *Workers) load(ctx context.Context) error {
	w.looking.Lock()
	defer w.looking.Unlock()
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	info, err := w.stream.Info(ctx) // answered by the leader of the stream
	if err != nil {
		return err
	}
	mark := bucketMark{info.Created, info.State.FirstSeq, info.State.LastSeq, info.State.Msgs}
	if mark == w.loaded {
		return nil
	}
	left := make(map[string]bool)
	w.mu.RLock()
	for node := range w.known {
		left[node] = true
	}
	w.mu.RUnlock()
	var behind error
	learn := func(node string, seq uint64, header nats.Header, data []byte) {
		delete(left, node)
		if err := w.learn(node, seq, header, data); err != nil {
			behind = err
		}
	}
	last, err := w.readEntries(ctx, mark.messages, learn)
	if err != nil {
		return err
	}
	for node := range left {
		learn(node, 0, nil, nil)
	}
	if behind == nil && last >= mark.last { // otherwise the answer may have come from a lagging replica
		w.loaded = mark
	}
	return behind
}

// loadTimeout limits a load of the whole list.
const loadTimeout = 15 * time.Second

// readEntries calls f with the entries of all nodes, and returns the sequence of the last message in the bucket.
func (w *Workers) readEntries(
	ctx context.Context, messages uint64, f func(node string, seq uint64, header nats.Header, data []byte),
) (last uint64, err error) {
	if messages == 0 {
		return 0, nil
	}
	read := StreamRead{Stream: bucketStream, Pending: func(n uint64) (bool, error) { return n > 0, nil }}
	err = ReadStream(ctx, w.js, read, func(m jetstream.Msg) (bool, error) {
		meta, err := m.Metadata()
		if err != nil {
			return false, err
		}
		last = meta.Sequence.Stream
		if node, ok := strings.CutPrefix(m.Subject(), bucketSubject+nodePrefix); ok {
			f(node, last, m.Headers(), m.Data())
		}
		return meta.NumPending > 0, nil
	})
	return last, err
}

// reloadChanged reads the entry of a node that has changed, and of those whose changes were announced meanwhile.
func (w *Workers) reloadChanged(ctx context.Context, node string) error {
	waiting := len(w.wake)
	nodes := map[string]bool{node: true}
	for range waiting {
		nodes[<-w.wake] = true
	}
	if waiting >= wakes-1 { // others may not have been queued
		return w.load(ctx)
	}
	var behind error
	for node := range nodes {
		switch err := w.reload(ctx, node); {
		case errors.Is(err, errBehind):
			behind = err
		case err != nil:
			return err
		}
	}
	return behind
}

// list returns the keys in the bucket that match a pattern, including those of deleted entries.
func (w *Workers) list(ctx context.Context, pattern string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	info, err := w.stream.Info(ctx, jetstream.WithSubjectFilter(bucketSubject+pattern))
	if err != nil {
		return nil, err
	}
	keys := make([]string, 0, len(info.State.Subjects))
	for subject := range info.State.Subjects {
		keys = append(keys, strings.TrimPrefix(subject, bucketSubject))
	}
	return keys, nil
}

// reload reads the entry of a node.
func (w *Workers) reload(ctx context.Context, node string) error {
	w.looking.Lock()
	defer w.looking.Unlock()
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	msg, err := w.read(ctx, bucketSubject+nodePrefix+node)
	if errors.Is(err, jetstream.ErrMsgNotFound) { // a removed entry leaves a message
		msg, err = &jetstream.RawStreamMsg{}, nil
	}
	if err != nil {
		return err
	}
	return w.learn(node, msg.Sequence, msg.Header, msg.Data)
}

// learn applies the message of a node's entry, whose sequence is 0 if the node has none.
func (w *Workers) learn(node string, seq uint64, header nats.Header, data []byte) error {
	if w.has(node, seq) {
		return nil
	}
	var by *identity.Verifier
	if seq > 0 && header.Get(operationHeader) == "" {
		var record workerRecord
		err := json.Unmarshal(data, &record)
		if err == nil {
			by, err = w.verifier(record.Public)
		}
		if err != nil {
			w.log.Warn("the list of workers has a damaged entry; the node must join again", "node", node, "error", err)
		}
	}
	if !w.set(node, by, seq) {
		return fmt.Errorf("worker %s: %w", node, errBehind)
	}
	return nil
}

// has reports whether the list already has the worker of a message.
func (w *Workers) has(node string, seq uint64) bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return seq > 0 && w.applied[node] == seq && w.least[node] <= seq
}
