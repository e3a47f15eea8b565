package bus

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

const (
	// logEvery is how long output is gathered before it is sent.
	logEvery = 100 * time.Millisecond
	// logChunkBytes is how much of one trial's output goes into one message, unless NATS takes less.
	logChunkBytes = 64 << 10
	// logChunkHead is what a message holds beside the output: names of node, tenant and sweep, and the numbers.
	logChunkHead = 1 << 10
	// logBufferBytes is how much is kept while it cannot be sent; then the oldest is dropped, and said so.
	logBufferBytes = 4 << 20
)

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
	// reserved is how many bytes each tenant's stream may take, as far as this process set it.
	reserved map[string]int64
	// old says that there is a stream of a version that had one for all tenants.
	old bool
	cfg LogsConfig

	wake chan struct{}
	stop chan struct{}
	done chan struct{}
	once sync.Once
}

// AttachLogs returns the logs for a worker, which leaves the stream's settings to the orchestrator. Close it.
func AttachLogs(nc *nats.Conn, log *slog.Logger) (*Logs, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("attach to logs: %w", err)
	}
	return startLogs(nc, js, LogsConfig{Logger: log}), nil
}

func startLogs(nc *nats.Conn, js jetstream.JetStream, cfg LogsConfig) *Logs {
	l := &Logs{
		nc: nc, js: js, log: orDiscard(cfg.Logger), cfg: cfg, reserved: map[string]int64{},
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

// add queues output, with what waits of the same fork and stream if both together have at most so many bytes.
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
		if err := publish(l.nc, LogSubject(chunk), chunk, nil); err != nil {
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
	if !l.nc.IsConnected() {
		return nil // nobody would take it
	}
	if err := l.nc.FlushTimeout(connectTimeout); err != nil && l.nc.IsConnected() {
		return fmt.Errorf("send the last output: %w", err)
	}
	return nil
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
