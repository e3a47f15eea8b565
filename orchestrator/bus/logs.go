package bus

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

const (
	// logEvery is how long output is collected before it is sent.
	logEvery = 100 * time.Millisecond
	// logChunkBytes is the maximum output of a trial in one message, unless NATS accepts less.
	logChunkBytes = 64 << 10
	// logChunkHead is the size of a message without the output: names of node, tenant and sweep, and numbers.
	logChunkHead = 1 << 10
	// logBufferBytes limits the buffered output. Beyond it the oldest output is dropped, with a warning.
	logBufferBytes = 4 << 20
)

// Logs transports the output of trials. Output is less important than reports: it is sent without acknowledgement and
// written without fsync, so that a trial with much output does not slow down the ledger.
type Logs struct {
	nc  *nats.Conn
	js  jetstream.JetStream
	log *slog.Logger

	mu      sync.Mutex
	pending []*outbidv1.LogChunk
	bytes   int
	dropped int
	// reserved is the size of each tenant's stream in bytes, as set by this process.
	reserved map[string]int64
	// intakes is the size of each tenant's intake in bytes, as set by this process; 0 if it could not be created.
	intakes map[string]int64
	cfg     LogsConfig
	// reserving is held while intakes are created or resized. reservedMore wakes Keep.
	reserving    sync.Mutex
	reservedMore chan struct{}

	wake chan struct{}
	stop chan struct{}
	done chan struct{}
	once sync.Once
}

// AttachLogs returns the logs for a worker, which does not configure the streams. The caller must close it.
func AttachLogs(nc *nats.Conn, log *slog.Logger) (*Logs, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("attach to logs: %w", err)
	}
	return startLogs(nc, js, LogsConfig{Logger: log}), nil
}

func startLogs(nc *nats.Conn, js jetstream.JetStream, cfg LogsConfig) *Logs {
	l := &Logs{
		nc: nc, js: js, log: orDiscard(cfg.Logger), cfg: cfg, reserved: map[string]int64{}, intakes: map[string]int64{}, reservedMore: make(chan struct{}, 1),
		wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
	}
	go l.run()
	return l
}

// Append queues output to be sent soon. It does not block or keep a reference to the chunk. Consecutive output of the
// same fork and stream is merged.
func (l *Logs) Append(chunk *outbidv1.LogChunk) error {
	if err := CheckToken("sweep", chunk.GetFork().GetSweep()); err != nil {
		return err
	}
	if err := CheckToken("node", chunk.GetNode()); err != nil {
		return err
	}
	if chunk.GetTenant() != "" {
		if err := CheckToken("tenant", chunk.GetTenant()); err != nil {
			return err
		}
	}
	most := min(logChunkBytes, MaxMessage(l.nc)-logChunkHead)
	for data := chunk.GetData(); len(data) > 0; {
		n := min(len(data), most)
		l.add(chunk, data[:n], most)
		data = data[n:]
	}
	return nil
}

// add queues output. It appends to pending output of the same fork and stream if both together have at most most bytes.
func (l *Logs) add(chunk *outbidv1.LogChunk, data []byte, most int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bytes += len(data)
	if last := l.lastOf(chunk); last != nil && len(last.GetData())+len(data) <= most {
		last.Data = append(last.Data, data...)
	} else {
		l.pending = append(l.pending, &outbidv1.LogChunk{
			Fork: proto.CloneOf(chunk.GetFork()), Node: chunk.GetNode(), Stream: chunk.GetStream(),
			Tenant: chunk.GetTenant(), TimeUnixMs: chunk.GetTimeUnixMs(), Data: append([]byte(nil), data...),
		})
	}
	for l.bytes > logBufferBytes {
		l.drop()
	}
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// drop drops the oldest pending chunk of the trial with the most pending bytes, so that a trial that prints much loses only
// its own output.
func (l *Logs) drop() {
	type trial struct {
		sweep  string
		number int32
	}
	of := func(c *outbidv1.LogChunk) trial { return trial{c.GetFork().GetSweep(), c.GetFork().GetTrial()} }
	pending, most := map[trial]int{}, 0
	for _, c := range l.pending {
		pending[of(c)] += len(c.GetData())
		most = max(most, pending[of(c)])
	}
	i := slices.IndexFunc(l.pending, func(c *outbidv1.LogChunk) bool { return pending[of(c)] == most })
	n := len(l.pending[i].GetData())
	l.bytes, l.dropped, l.pending = l.bytes-n, l.dropped+n, slices.Delete(l.pending, i, i+1)
}

// lastOf returns the newest pending chunk of the same fork if it has the same stream; earlier chunks would change the
// order.
func (l *Logs) lastOf(chunk *outbidv1.LogChunk) *outbidv1.LogChunk {
	for i := len(l.pending) - 1; i >= max(0, len(l.pending)-64); i-- {
		if p := l.pending[i]; proto.Equal(p.GetFork(), chunk.GetFork()) {
			if p.GetStream() == chunk.GetStream() {
				return p
			}
			return nil
		}
	}
	return nil
}

func (l *Logs) run() {
	defer close(l.done)
	for {
		select {
		case <-l.wake:
		case <-l.stop:
			l.send()
			return
		}
		pause := time.NewTimer(logEvery)
		select {
		case <-pause.C:
		case <-l.stop:
			pause.Stop()
		}
		l.send()
	}
}

// send publishes the pending chunks, or keeps them while disconnected.
func (l *Logs) send() {
	if !l.nc.IsConnected() {
		l.retryLater()
		return
	}
	l.mu.Lock()
	chunks, dropped := l.pending, l.dropped
	l.pending, l.bytes, l.dropped = nil, 0, 0
	l.mu.Unlock()
	if dropped > 0 {
		l.log.Warn("output of trials was dropped: it was produced faster than it could be sent", "bytes", dropped)
	}
	for _, chunk := range chunks {
		if err := publish(l.nc, LogSubject(chunk), chunk, nil); err != nil {
			l.log.Warn("output of a trial was lost", "error", err)
		}
	}
}

// retryLater wakes the sender after a pause, so that output waits for the connection.
func (l *Logs) retryLater() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Close sends the pending output and stops the sender. Append must not be called afterwards.
func (l *Logs) Close() error {
	l.once.Do(func() { close(l.stop) })
	<-l.done
	if !l.nc.IsConnected() {
		return nil // it cannot be sent
	}
	if err := l.nc.FlushTimeout(connectTimeout); err != nil && l.nc.IsConnected() {
		return fmt.Errorf("send the last output: %w", err)
	}
	return nil
}

// deliver decodes a message, passes it on, and returns how many messages follow.
func deliver(m jetstream.Msg, f func(*outbidv1.LogChunk) error) (uint64, error) {
	meta, err := m.Metadata()
	if err != nil {
		return 0, err
	}
	chunk := new(outbidv1.LogChunk)
	if proto.Unmarshal(m.Data(), chunk) == nil && matchesSubject(m.Subject(), chunk) {
		err = f(chunk)
	}
	return meta.NumPending, err
}
