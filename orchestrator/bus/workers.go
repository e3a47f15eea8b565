package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbid-dev/outbid/orchestrator/identity"
)

// WorkersBucket is the key-value bucket of the cluster's workers and of join tokens. Workers cannot read it.
const WorkersBucket = "OUTBID_WORKERS"

// The prefixes of keys in the bucket; a node follows, or the hex SHA-256 of a token.
const (
	nodePrefix  = "node."
	tokenPrefix = "token."
)

// operationHeader marks a message in the bucket that removes an entry.
const operationHeader = "KV-Operation"

// ErrStranger means that the worker of a node is not a member of the cluster.
var ErrStranger = errors.New("no worker with that name has joined, or it was removed")

// workerRecord is a member of the cluster.
type workerRecord struct {
	// Public is the key that verifies its uplinks.
	Public string    `json:"public"`
	Joined time.Time `json:"joined"`
	// Pod identifies the Kubernetes pod that it joined from, or is nil. The bus does not interpret it.
	Pod json.RawMessage `json:"pod,omitempty"`
}

// Workers is the list of the cluster's workers with their public keys. Every server, and every other holder of the
// cluster's keys, sees the same list. The caller must close it.
type Workers struct {
	kv   jetstream.KeyValue
	js   jetstream.JetStream
	log  *slog.Logger
	gone func(public string)
	// verifier returns the verifier for a worker's uplinks.
	verifier func(public string) (*identity.Verifier, error)

	// read returns the newest message of an entry. Any replica of the bucket answers, also one that lags behind.
	read func(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error)

	looking sync.Mutex

	mu    sync.RWMutex
	known map[string]*identity.Verifier
	// least has the sequence of a node's newest change that is heard of: older messages are not believed.
	least map[string]uint64

	next chan struct{}

	sub  *Subscription
	wake chan string // a node to look up, "" for all
	stop context.CancelFunc
	done chan struct{}
}

// WorkersConfig configures the list of workers.
type WorkersConfig struct {
	// Replicas of the bucket in a NATS cluster; 0 means 1.
	Replicas int
	// Gone, if set, is called with each key that is no longer valid.
	Gone func(public string)
	// Verifier returns the verifier for a public key; nil means identity.NewVerifier.
	Verifier func(public string) (*identity.Verifier, error)
	// Logger receives warnings; nil discards them.
	Logger *slog.Logger
}

// errBehind means that a replica has answered that does not have the newest change yet.
var errBehind = errors.New("a replica lags behind")

// OpenWorkers opens the bucket, which it creates if missing, and returns once the list is loaded.
func OpenWorkers(ctx context.Context, nc *nats.Conn, cfg WorkersConfig) (*Workers, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("open the list of workers: %w", err)
	}
	kv, err := MakeBucket(ctx, js, jetstream.KeyValueConfig{
		Bucket: WorkersBucket, Description: "which workers belong to the cluster",
		Storage: jetstream.FileStorage, Replicas: max(cfg.Replicas, 1),
		RePublish: &jetstream.RePublish{Source: bucketSubject + ">", Destination: changeSubject + ">"},
	})
	var stream jetstream.Stream
	if err == nil {
		stream, err = js.Stream(ctx, "KV_"+WorkersBucket)
	}
	if err != nil {
		return nil, fmt.Errorf("open the list of workers: %w", err)
	}
	// It ends with Close, not with ctx.
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	w := &Workers{
		kv: kv, js: js, log: orDiscard(cfg.Logger), gone: cfg.Gone, verifier: cfg.Verifier, known: make(map[string]*identity.Verifier),
		least: make(map[string]uint64),
		next:  make(chan struct{}), wake: make(chan string, wakes), stop: stop, done: make(chan struct{}),
	}
	w.read = func(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
		return stream.GetLastMsgForSubject(ctx, subject)
	}
	if w.verifier == nil {
		w.verifier = identity.NewVerifier
	}
	if w.sub, err = subscribe(nc, changeSubject+nodePrefix+"*", w.changedOn); err == nil {
		if err = w.load(ctx); err != nil {
			err = errors.Join(err, w.sub.Stop())
		}
	}
	if err != nil {
		stop()
		return nil, fmt.Errorf("open the list of workers: %w", err)
	}
	back := nc.StatusChanged(nats.CONNECTED)
	go func() {
		defer nc.RemoveStatusListener(back)
		w.follow(life, back)
	}()
	return w, nil
}

const (
	// bucketSubject starts the subjects of the bucket's entries. changeSubject starts those on which JetStream
	// announces that an entry has changed, once the change can be read.
	bucketSubject = "$KV." + WorkersBucket + "."
	changeSubject = "outbid.v1.workers."
	// loadEvery is when the list is reloaded even without an announced change. It limits the effect of missed
	// announcements.
	loadEvery = 15 * time.Second
	// wakes limits the pending changes; beyond it the whole list is reloaded.
	wakes = 64
	// loadAgain is when a failed reload is retried.
	loadAgain = time.Second
)

// changedOn queues the announced change of an entry.
func (w *Workers) changedOn(m *nats.Msg) {
	node := strings.TrimPrefix(m.Subject, changeSubject+nodePrefix)
	if seq, err := strconv.ParseUint(m.Header.Get(nats.JSSequence), 10, 64); err == nil {
		w.mu.Lock()
		w.least[node] = max(w.least[node], seq)
		w.mu.Unlock()
	}
	select {
	case w.wake <- node:
	default: // follow reloads everything
	}
}

// follow applies every change of the bucket. It does not use a consumer of the stream, which a killed server would
// leave behind. Instead it listens for announcements, and reloads everything after the connection was lost.
func (w *Workers) follow(ctx context.Context, back <-chan nats.Status) {
	defer close(w.done)
	again := time.NewTimer(loadEvery)
	defer again.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case node := <-w.wake:
			if len(w.wake) == 0 {
				err = w.reload(ctx, node)
			} else {
				err = w.load(ctx)
			}
		case _, ok := <-back:
			if !ok {
				back = nil
				continue
			}
			err = w.load(ctx)
		case <-again.C:
			err = w.load(ctx)
		}
		again.Reset(loadEvery)
		if err != nil && ctx.Err() == nil {
			w.log.Warn("the list of workers cannot be read; retrying", "error", err)
			again.Reset(loadAgain)
		}
	}
}

// load reads the whole list.
func (w *Workers) load(ctx context.Context) error {
	keys, err := w.list(ctx, nodePrefix+"*")
	if err != nil {
		return err
	}
	var behind error
	left := make(map[string]bool)
	w.mu.RLock()
	for node := range w.known {
		left[node] = true
	}
	w.mu.RUnlock()
	for _, key := range keys {
		left[strings.TrimPrefix(key, nodePrefix)] = true
	}
	for node := range left {
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
	stream, err := w.js.Stream(ctx, "KV_"+WorkersBucket)
	if err != nil {
		return nil, err
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(bucketSubject+pattern))
	if err != nil {
		return nil, err
	}
	keys := make([]string, 0, len(info.State.Subjects))
	for subject := range info.State.Subjects {
		keys = append(keys, strings.TrimPrefix(subject, bucketSubject))
	}
	return keys, nil
}

// reload reads the entry of a node. Calls are serialised so that the newest value wins.
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
	var by *identity.Verifier
	if msg.Sequence > 0 && msg.Header.Get(operationHeader) == "" {
		var record workerRecord
		if err = json.Unmarshal(msg.Data, &record); err == nil {
			by, err = w.verifier(record.Public)
		}
		if err != nil {
			w.log.Warn("the list of workers has a damaged entry; the node must join again", "node", node, "error", err)
		}
	}
	if !w.set(node, by, msg.Sequence) {
		return fmt.Errorf("worker %s: %w", node, errBehind)
	}
	return nil
}

// set stores the verifier of a node, or removes it if by is nil, unless a newer change than that of the sequence is known.
func (w *Workers) set(node string, by *identity.Verifier, seq uint64) bool {
	w.mu.Lock()
	if seq < w.least[node] {
		w.mu.Unlock()
		return false
	}
	if seq > 0 {
		w.least[node] = seq
	}
	before := w.known[node]
	if by == nil {
		delete(w.known, node)
	} else {
		w.known[node] = by
	}
	close(w.next)
	w.next = make(chan struct{})
	w.mu.Unlock()
	if before != nil && w.gone != nil && (by == nil || by.Public() != before.Public()) {
		w.gone(before.Public())
	}
	return true
}

// Close stops listening for changes.
func (w *Workers) Close() error {
	err := w.sub.Stop()
	w.stop()
	<-w.done
	return err
}

// changed returns a channel that is closed at the next change.
func (w *Workers) changed() <-chan struct{} {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.next
}

// Key returns the public key of a node's worker, or "" if it is not a member.
func (w *Workers) Key(node string) string {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if by := w.known[node]; by != nil {
		return by.Public()
	}
	return ""
}

// Check verifies the signature of a node's message. The node's name is the end of the subject. It is a Check.
func (w *Workers) Check(subject string, data []byte, signature string) error {
	w.mu.RLock()
	by := w.known[subject[strings.LastIndexByte(subject, '.')+1:]]
	w.mu.RUnlock()
	if by == nil {
		return ErrStranger
	}
	return by.Message(subject, data, signature)
}

// Add makes the worker with a public key the worker of a node, and replaces the previous one.
func (w *Workers) Add(ctx context.Context, node, public string, now time.Time) error {
	return w.AddPod(ctx, node, public, nil, now)
}

// AddPod is like Add for a worker in a Kubernetes pod; pod, which may be nil, is returned by Pod.
func (w *Workers) AddPod(ctx context.Context, node, public string, pod json.RawMessage, now time.Time) error {
	if err := CheckToken("node", node); err != nil {
		return err
	}
	by, err := w.verifier(public)
	if err != nil {
		return err
	}
	data, err := json.Marshal(workerRecord{Public: public, Joined: now.UTC(), Pod: pod})
	if err != nil {
		return fmt.Errorf("add worker %s: %w", node, err)
	}
	seq, err := w.kv.Put(ctx, nodePrefix+node, data)
	if err != nil {
		return fmt.Errorf("add worker %s: %w", node, err)
	}
	w.set(node, by, seq) // reading it could ask a replica that does not have it yet
	return nil
}

// Pod returns the pod of a node's worker, or nil if it joined otherwise. joined reports whether the node has a worker.
func (w *Workers) Pod(ctx context.Context, node string) (pod json.RawMessage, joined bool, err error) {
	if err := CheckToken("node", node); err != nil {
		return nil, false, err
	}
	entry, err := w.kv.Get(ctx, nodePrefix+node)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, false, nil
	}
	var record workerRecord
	if err == nil {
		err = json.Unmarshal(entry.Value(), &record)
	}
	if err != nil {
		return nil, false, fmt.Errorf("read the entry of worker %s: %w", node, err)
	}
	return record.Pod, true, nil
}

// Remove removes the worker of a node from the cluster, or returns ErrStranger. From then its messages are ignored, and
// it gets no orders.
func (w *Workers) Remove(ctx context.Context, node string) error {
	if err := CheckToken("node", node); err != nil {
		return err
	}
	if w.Key(node) == "" {
		return fmt.Errorf("worker %s: %w", node, ErrStranger)
	}
	// As kv.Purge does, which does not return the sequence.
	marker := nats.NewMsg(bucketSubject + nodePrefix + node)
	marker.Header.Set(operationHeader, "PURGE")
	marker.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
	ack, err := w.js.PublishMsg(ctx, marker)
	if err != nil {
		return fmt.Errorf("remove worker %s: %w", node, err)
	}
	w.set(node, nil, ack.Sequence)
	return nil
}

// pinKey is the entry with the key of the cluster's server.
const pinKey = "server"

// Pin returns an error if the listed workers have joined a server with another signing key, because they would reject
// this server's orders. It stores the key if it is the first, or if no worker is listed, so that keys can be replaced.
func (w *Workers) Pin(ctx context.Context, ordersKey string) error {
	_, err := w.kv.Create(ctx, pinKey, []byte(ordersKey))
	if err == nil {
		return nil
	}
	if !errors.Is(err, jetstream.ErrKeyExists) {
		return fmt.Errorf("read the owner of the list of workers: %w", err)
	}
	entry, err := w.kv.Get(ctx, pinKey)
	if err != nil {
		return fmt.Errorf("read the owner of the list of workers: %w", err)
	}
	w.mu.RLock()
	workers := len(w.known)
	w.mu.RUnlock()
	switch {
	case string(entry.Value()) == ordersKey:
		return nil
	case workers > 0:
		return fmt.Errorf("the workers of this cluster have joined a server with other keys (%s instead of %s): set --keys to the "+
			"directory of those keys on every machine that may lead, and remove all workers before you replace the keys", entry.Value(), ordersKey)
	}
	if _, err := w.kv.Update(ctx, pinKey, []byte(ordersKey), entry.Revision()); err != nil {
		return fmt.Errorf("replace the owner of the list of workers: %w", err)
	}
	return nil
}
