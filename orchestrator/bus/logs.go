package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// LogStream is the JetStream stream of what trials print.
const LogStream = "OUTBID_LOGS"

const (
	defaultLogBytes = 1 << 30
	// logEvery is how long output is gathered before it is sent.
	logEvery = 100 * time.Millisecond
	// logChunkBytes is how much of one trial's output goes into one message.
	logChunkBytes = 64 << 10
	// logBufferBytes is how much is kept while it cannot be sent; then the oldest is dropped, and said so.
	logBufferBytes = 4 << 20
)

const (
	// leastLogBytes is the least that is of use.
	leastLogBytes = 1 << 20
	// noRoomCode is how JetStream says that it cannot set so much storage aside.
	noRoomCode = 10047
)

// LogsConfig says how much output is kept. The oldest goes first.
type LogsConfig struct {
	// MaxBytes kept; 0 means 1 GiB.
	MaxBytes int64
	// MaxAge kept; 0 means for ever.
	MaxAge time.Duration
	// Replicas of the stream in a NATS cluster; 0 means 1.
	Replicas int
	// Logger gets what goes wrong; nil drops it.
	Logger *slog.Logger
}

// Logs carries what trials print. Output is worth less than reports: it is sent without acknowledgement and written
// without fsync, so that a chatty trial does not slow the ledger.
type Logs struct {
	nc  *nats.Conn
	js  jetstream.JetStream
	log *slog.Logger

	mu      sync.Mutex
	pending []*outbidv1.LogChunk
	bytes   int
	dropped int

	wake chan struct{}
	stop chan struct{}
	done chan struct{}
	once sync.Once
}

// OpenLogs makes the stream of logs, or sets its limits, and returns it. Close it.
func OpenLogs(ctx context.Context, nc *nats.Conn, cfg LogsConfig) (*Logs, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("open logs: %w", err)
	}
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = defaultLogBytes
	}
	stream := jetstream.StreamConfig{
		Name:        LogStream,
		Description: "what trials print",
		Subjects:    []string{logsPrefix + "*.*.*", logsPrefix + "*.*"},
		Discard:     jetstream.DiscardOld,
		MaxBytes:    cfg.MaxBytes,
		MaxAge:      cfg.MaxAge,
		Storage:     jetstream.FileStorage,
		Compression: jetstream.S2Compression,
		Replicas:    max(cfg.Replicas, 1),
		NoAck:       true,
	}
	if stream.Replicas == 1 { // replicated streams have no such mode
		stream.PersistMode = jetstream.AsyncPersistMode
	}
	if err := makeLogs(ctx, js, stream, orDiscard(cfg.Logger)); err != nil {
		return nil, fmt.Errorf("open stream %s: %w", LogStream, err)
	}
	return startLogs(nc, js, cfg.Logger), nil
}

// makeLogs makes the stream as large as the server has room for: JetStream sets its limit aside beforehand. Little
// room for logs is no reason not to start.
func makeLogs(ctx context.Context, js jetstream.JetStream, stream jetstream.StreamConfig, log *slog.Logger) error {
	wanted := stream.MaxBytes
	for {
		_, err := js.CreateOrUpdateStream(ctx, stream)
		if err == nil && stream.MaxBytes < wanted { // the ledger wants room too
			stream.MaxBytes /= 2
			_, err = js.UpdateStream(ctx, stream)
		}
		refused, ok := errors.AsType[*jetstream.APIError](err)
		switch {
		case err == nil && stream.MaxBytes < wanted:
			log.Warn("JetStream has little room, so that less of what trials print is kept; make room on the disk of NATS, or "+
				"raise max_file_store", "bytes", stream.MaxBytes, "wanted", wanted)
			return nil
		case !ok || refused.ErrorCode != noRoomCode:
			return err
		case stream.MaxBytes/2 < leastLogBytes:
			return fmt.Errorf("JetStream has no room for %d bytes: make room on the disk of NATS, or raise max_file_store: %w",
				stream.MaxBytes, err)
		}
		stream.MaxBytes /= 2
	}
}

// AttachLogs returns the logs for a worker, which leaves the stream's settings to the orchestrator. Close it.
func AttachLogs(nc *nats.Conn, log *slog.Logger) (*Logs, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("attach to logs: %w", err)
	}
	return startLogs(nc, js, log), nil
}

func startLogs(nc *nats.Conn, js jetstream.JetStream, log *slog.Logger) *Logs {
	l := &Logs{
		nc: nc, js: js, log: orDiscard(log),
		wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
	}
	go l.run()
	return l
}

// Append takes output to be sent soon. It does not block and keeps no reference to the chunk. Output that follows
// other output of the same fork and stream travels with it.
func (l *Logs) Append(chunk *outbidv1.LogChunk) error {
	if err := CheckToken("sweep", chunk.GetFork().GetSweep()); err != nil {
		return err
	}
	if err := CheckToken("node", chunk.GetNode()); err != nil {
		return err
	}
	for data := chunk.GetData(); len(data) > 0; {
		n := min(len(data), logChunkBytes)
		l.add(chunk, data[:n])
		data = data[n:]
	}
	return nil
}

func (l *Logs) add(chunk *outbidv1.LogChunk, data []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bytes += len(data)
	if last := l.lastOf(chunk); last != nil && len(last.GetData())+len(data) <= logChunkBytes {
		last.Data = append(last.Data, data...)
	} else {
		l.pending = append(l.pending, &outbidv1.LogChunk{
			Fork: proto.CloneOf(chunk.GetFork()), Node: chunk.GetNode(), Stream: chunk.GetStream(),
			TimeUnixMs: chunk.GetTimeUnixMs(), Data: append([]byte(nil), data...),
		})
	}
	for l.bytes > logBufferBytes {
		n := len(l.pending[0].GetData())
		l.bytes, l.dropped, l.pending = l.bytes-n, l.dropped+n, l.pending[1:]
	}
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// lastOf finds the newest pending chunk of the same fork, if it is of the same stream: more would mix up the order.
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

// send publishes what is pending, or leaves it for later if there is no connection.
func (l *Logs) send() {
	if !l.nc.IsConnected() {
		l.again()
		return
	}
	l.mu.Lock()
	chunks, dropped := l.pending, l.dropped
	l.pending, l.bytes, l.dropped = nil, 0, 0
	l.mu.Unlock()
	if dropped > 0 {
		l.log.Warn("output of trials was lost: it came faster than it could be sent", "bytes", dropped)
	}
	for _, chunk := range chunks {
		fork := chunk.GetFork()
		err := publish(l.nc, LogSubject(chunk.GetNode(), fork.GetSweep(), fork.GetTrial()), chunk, nil)
		if err != nil {
			l.log.Warn("output of a trial was lost", "error", err)
		}
	}
}

// again wakes the sender once more after a pause, so that output waits for the connection to come back.
func (l *Logs) again() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Close sends what is pending and ends the sender. Append must not be called after it.
func (l *Logs) Close() error {
	l.once.Do(func() { close(l.stop) })
	<-l.done
	if err := l.nc.FlushTimeout(connectTimeout); err != nil && l.nc.IsConnected() {
		return fmt.Errorf("send the last output: %w", err)
	}
	return nil
}

// Read calls f with the output of a sweep, or of one trial of it if trial is not nil, in order. With follow it goes on
// with what comes until ctx ends or f fails; without, it ends with the last chunk there is.
func (l *Logs) Read(
	ctx context.Context, sweep string, trial *int32, follow bool, f func(*outbidv1.LogChunk) error,
) error {
	if err := CheckToken("sweep", sweep); err != nil {
		return err
	}
	if err := l.read(ctx, logFilters(sweep, trial), follow, f); err != nil {
		return fmt.Errorf("read logs of %s: %w", sweep, err)
	}
	return nil
}

func (l *Logs) read(ctx context.Context, subjects []string, follow bool, f func(*outbidv1.LogChunk) error) error {
	r := StreamRead{Stream: LogStream, Subjects: subjects}
	r.Pending = func(messages uint64) (bool, error) { return messages > 0 || follow, nil }
	return ReadStream(ctx, l.js, r, func(m jetstream.Msg) (bool, error) {
		left, err := deliver(m, f)
		return left > 0 || follow, err
	})
}

// deliver decodes one message, hands it on and returns how many more there are.
func deliver(m jetstream.Msg, f func(*outbidv1.LogChunk) error) (uint64, error) {
	meta, err := m.Metadata()
	if err != nil {
		return 0, err
	}
	chunk := new(outbidv1.LogChunk)
	if proto.Unmarshal(m.Data(), chunk) == nil && saysSo(m.Subject(), chunk) {
		err = f(chunk)
	}
	return meta.NumPending, err
}

// Delete removes the output of a sweep.
func (l *Logs) Delete(ctx context.Context, sweep string) error {
	if err := CheckToken("sweep", sweep); err != nil {
		return err
	}
	stream, err := l.js.Stream(ctx, LogStream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	for _, subject := range logFilters(sweep, nil) {
		if err == nil {
			err = stream.Purge(ctx, jetstream.WithPurgeSubject(subject))
		}
	}
	if err != nil {
		return fmt.Errorf("delete logs of %s: %w", sweep, err)
	}
	return nil
}
