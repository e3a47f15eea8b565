package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// OldLogStream is the JetStream stream of what trials printed under versions that had one for all tenants. It is read,
// and makes room for nobody any more.
const OldLogStream = "OUTBID_LOGS"

// LogStream is the JetStream stream of what the trials of a tenant print: nobody's output pushes out another's.
func LogStream(tenant string) string { return OldLogStream + "_" + tenant }

const (
	// leastLogBytes is the least that is of use.
	leastLogBytes = 1 << 20
	// noRoomCode is how JetStream says that it cannot set so much storage aside.
	noRoomCode = 10047
)

// LogsConfig says how output is kept.
type LogsConfig struct {
	// MaxAge kept; 0 means for ever.
	MaxAge time.Duration
	// Replicas of the streams in a NATS cluster; 0 means 1.
	Replicas int
	// Logger gets what goes wrong; nil drops it.
	Logger *slog.Logger
}

// OpenLogs returns the logs for the orchestrator, which reserves room for each tenant, and keeps what Keep lets through.
// Close it.
func OpenLogs(ctx context.Context, nc *nats.Conn, cfg LogsConfig) (*Logs, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("open logs: %w", err)
	}
	old, err := js.Stream(ctx, OldLogStream)
	if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, fmt.Errorf("open logs: %w", err)
	}
	if _, err := openIntake(ctx, js, cfg.Replicas); err != nil {
		return nil, fmt.Errorf("open logs: %w", err)
	}
	l := startLogs(nc, js, cfg)
	l.old = old != nil
	return l, nil
}

// Reserve makes room for so many bytes of what a tenant's trials print; of more the oldest goes first.
func (l *Logs) Reserve(ctx context.Context, tenant string, bytes int64) error {
	if err := CheckToken("tenant", tenant); err != nil {
		return err
	}
	l.mu.Lock()
	done := l.reserved[tenant] == bytes
	l.mu.Unlock()
	if done {
		return nil
	}
	stream := jetstream.StreamConfig{
		Name:        LogStream(tenant),
		Description: "what the trials of " + tenant + " print",
		Subjects:    []string{keptSubjects(tenant)},
		Discard:     jetstream.DiscardOld,
		MaxBytes:    bytes,
		MaxAge:      l.cfg.MaxAge,
		Storage:     jetstream.FileStorage,
		Compression: jetstream.S2Compression,
		Replicas:    max(l.cfg.Replicas, 1),
		NoAck:       true,
	}
	if stream.Replicas == 1 { // replicated streams have no such mode
		stream.PersistMode = jetstream.AsyncPersistMode
	}
	if err := makeLogs(ctx, l.js, stream, l.log); err != nil {
		return fmt.Errorf("open stream %s: %w", stream.Name, err)
	}
	l.mu.Lock()
	l.reserved[tenant] = bytes
	l.mu.Unlock()
	return nil
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

// Read calls f with the output of a tenant's sweep, or of one trial of it if trial is not nil, in order. With from it
// begins at that place in the tenant's stream, which Tail returned. With follow it goes on with what comes until ctx ends
// or f fails; without, it ends with the last chunk there is.
func (l *Logs) Read(
	ctx context.Context, tenant, sweep string, trial *int32, from uint64, follow bool, f func(*outbidv1.LogChunk) error,
) error {
	if err := errors.Join(CheckToken("tenant", tenant), CheckToken("sweep", sweep)); err != nil {
		return err
	}
	var err error
	if l.old && from == 0 {
		err = l.read(ctx, StreamRead{Stream: OldLogStream, Subjects: oldLogFilters(sweep, trial)}, false, f)
	}
	if err == nil {
		r := StreamRead{Stream: LogStream(tenant), Subjects: logFilters(tenant, sweep, trial), From: from}
		err = l.read(ctx, r, follow, f)
	}
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil // nothing was ever printed
	}
	if err != nil {
		return fmt.Errorf("read logs of %s: %w", sweep, err)
	}
	return nil
}

func (l *Logs) read(ctx context.Context, r StreamRead, follow bool, f func(*outbidv1.LogChunk) error) error {
	r.Pending = func(messages uint64) (bool, error) { return messages > 0 || follow, nil }
	return ReadStream(ctx, l.js, r, func(m jetstream.Msg) (bool, error) {
		left, err := deliver(m, f)
		return left > 0 || follow, err
	})
}

// Delete removes the output of a sweep.
func (l *Logs) Delete(ctx context.Context, tenant, sweep string) error {
	if err := errors.Join(CheckToken("tenant", tenant), CheckToken("sweep", sweep)); err != nil {
		return err
	}
	err := l.purge(ctx, LogStream(tenant), logFilters(tenant, sweep, nil)...)
	if l.old {
		err = errors.Join(err, l.purge(ctx, OldLogStream, oldLogFilters(sweep, nil)...))
	}
	if err != nil {
		return fmt.Errorf("delete logs of %s: %w", sweep, err)
	}
	return nil
}

func (l *Logs) purge(ctx context.Context, name string, subjects ...string) error {
	stream, err := l.js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	for _, subject := range subjects {
		if err == nil {
			err = stream.Purge(ctx, jetstream.WithPurgeSubject(subject))
		}
	}
	return err
}
