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

// LogStream returns the JetStream stream for the output of a tenant's trials. Separate streams keep tenants from
// displacing each other's output.
func LogStream(tenant string) string { return "OUTBID_LOGS_" + tenant }

const (
	// leastLogBytes is the smallest useful size.
	leastLogBytes = 1 << 20
	// noRoomCode is JetStream's error code if it cannot reserve that much storage.
	noRoomCode = 10047
)

// LogsConfig configures the storage of output.
type LogsConfig struct {
	// MaxAge is how long output is kept; 0 means without a limit.
	MaxAge time.Duration
	// Replicas of the streams in a NATS cluster; 0 means 1.
	Replicas int
	// Logger receives warnings; nil discards them.
	Logger *slog.Logger
}

// OpenLogs returns the logs for the server, which reserves space for each tenant and stores the output with Keep. The
// caller must close it.
func OpenLogs(ctx context.Context, nc *nats.Conn, cfg LogsConfig) (*Logs, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("open logs: %w", err)
	}
	if err := removeSharedIntake(ctx, js); err != nil {
		return nil, fmt.Errorf("open logs: %w", err)
	}
	return startLogs(nc, js, cfg), nil
}

// Reserve sets the space for the output of a tenant's trials in bytes; the oldest output is dropped first.
func (l *Logs) Reserve(ctx context.Context, tenant string, bytes int64) error {
	if err := CheckToken("tenant", tenant); err != nil {
		return err
	}
	if err := l.reserveIntake(ctx, tenant); err != nil {
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
		Description: "output of the trials of " + tenant,
		Subjects:    []string{keptSubjects(tenant)},
		Discard:     jetstream.DiscardOld,
		MaxBytes:    bytes,
		MaxAge:      l.cfg.MaxAge,
		Storage:     jetstream.FileStorage,
		Compression: jetstream.S2Compression,
		Replicas:    max(l.cfg.Replicas, 1),
		NoAck:       true,
	}
	if stream.Replicas == 1 { // replicated streams do not have this mode
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

// IsNoRoom reports whether JetStream could not reserve the storage of a stream.
func IsNoRoom(err error) bool {
	refused, ok := errors.AsType[*jetstream.APIError](err)
	return ok && refused.ErrorCode == noRoomCode
}

// makeLogs creates the stream with as much space as the server has, because JetStream reserves the limit in advance.
// Too little space for logs does not prevent a start.
func makeLogs(ctx context.Context, js jetstream.JetStream, stream jetstream.StreamConfig, log *slog.Logger) error {
	wanted := stream.MaxBytes
	for {
		_, err := PutStream(ctx, js, stream)
		if err == nil && stream.MaxBytes < wanted { // leave space for the ledger
			stream.MaxBytes /= 2
			_, err = UpdateStream(ctx, js, stream)
		}
		switch {
		case err == nil && stream.MaxBytes < wanted:
			log.Warn("JetStream has little space left, so less output of trials is kept; free space on the disk of NATS, or "+
				"raise max_file_store", "bytes", stream.MaxBytes, "wanted", wanted)
			return nil
		case !IsNoRoom(err):
			return err
		case stream.MaxBytes/2 < leastLogBytes:
			return fmt.Errorf("JetStream has no space for %d bytes: free space on the disk of NATS, or raise max_file_store: %w",
				stream.MaxBytes, err)
		}
		stream.MaxBytes /= 2
	}
}

// Read calls f with the output of a tenant's sweep, or of one trial if trial is not nil, in order. It starts at from, a
// position in the tenant's stream that Tail returned, or at the first message. With follow it continues with new output
// until ctx ends or f fails; otherwise it returns after the last chunk.
func (l *Logs) Read(
	ctx context.Context, tenant, sweep string, trial *int32, from uint64, follow bool, f func(*outbidv1.LogChunk) error,
) error {
	if err := errors.Join(CheckToken("tenant", tenant), CheckToken("sweep", sweep)); err != nil {
		return err
	}
	r := StreamRead{Stream: LogStream(tenant), Subjects: []string{logFilter(tenant, sweep, trial)}, From: from}
	err := l.read(ctx, r, follow, f)
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
	if err := l.purge(ctx, LogStream(tenant), logFilter(tenant, sweep, nil)); err != nil {
		return fmt.Errorf("delete logs of %s: %w", sweep, err)
	}
	return nil
}

func (l *Logs) purge(ctx context.Context, name, subject string) error {
	stream, err := l.js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return stream.Purge(ctx, jetstream.WithPurgeSubject(subject))
}
