package bus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// readerIdle is how long the server keeps the consumer of a reader that died or that is idle; a slow reader
	// recreates its consumer.
	readerIdle = 30 * time.Second
	// forgetTimeout limits the deletion of an unused consumer.
	forgetTimeout = 5 * time.Second
	// tooManyConsumers is JetStream's error code for a stream that has its maximum of consumers.
	tooManyConsumers jetstream.ErrorCode = 10026
	// roomFor is how many unused consumers are deleted if a stream has its maximum.
	roomFor = 64
)

// StreamRead configures a read of a stream.
type StreamRead struct {
	Stream string
	// From is the first message to read; 0 means the first in the stream.
	From uint64
	// Subjects, if not empty, restricts the read to these subjects.
	Subjects []string
	// AheadMessages and AheadBytes limit what may be in flight from the server; zero means the client's defaults.
	AheadMessages, AheadBytes int
	// Pending is called once, before the first message, with the number of messages. The read ends if it returns false.
	Pending func(messages uint64) (bool, error)
}

// ReadStream calls f with the messages of a stream, in order and without gaps, until f returns false or an error, or
// ctx ends. It always deletes its consumer, because a stream accepts a limited number. If there are too many, it
// deletes unused ones.
func ReadStream(ctx context.Context, js jetstream.JetStream, r StreamRead, f func(jetstream.Msg) (more bool, err error)) error {
	cons, err := openReader(ctx, js, r)
	if err != nil {
		return err
	}
	defer forget(ctx, js, r.Stream, cons)
	info, err := cons.Info(ctx)
	if err != nil {
		return err
	}
	if r.Pending != nil {
		if more, err := r.Pending(info.NumPending); err != nil || !more {
			return err
		}
	}
	var opts []jetstream.PullMessagesOpt
	if r.AheadMessages > 0 {
		opts = append(opts, jetstream.PullMaxMessagesWithBytesLimit(r.AheadMessages, r.AheadBytes))
	}
	messages, err := cons.Messages(opts...)
	if err != nil {
		return err
	}
	defer messages.Stop()
	for {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return err
		}
		if more, err := f(m); err != nil || !more {
			return err
		}
	}
}

func openReader(ctx context.Context, js jetstream.JetStream, r StreamRead) (jetstream.Consumer, error) {
	cfg := jetstream.OrderedConsumerConfig{InactiveThreshold: readerIdle}
	if r.From > 0 {
		cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverByStartSequencePolicy, r.From
	}
	cfg.FilterSubjects = r.Subjects
	cons, err := js.OrderedConsumer(ctx, r.Stream, cfg)
	if refused, ok := errors.AsType[*jetstream.APIError](err); !ok || refused.ErrorCode != tooManyConsumers {
		return cons, err
	}
	if clearErr := clearIdle(ctx, js, r.Stream); clearErr != nil {
		return nil, fmt.Errorf("%w; and no room could be made: %w", err, clearErr)
	}
	return js.OrderedConsumer(ctx, r.Stream, cfg)
}

// clearIdle deletes a stream's oldest idle consumers: those of killed readers, and leftovers of earlier versions. A
// live reader recreates its consumer if it is deleted.
func clearIdle(ctx context.Context, js jetstream.JetStream, stream string) error {
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return err
	}
	var idle []*jetstream.ConsumerInfo
	list := s.ListConsumers(ctx)
	for info := range list.Info() {
		if info.Config.Durable == "" && info.NumWaiting == 0 && !info.PushBound {
			idle = append(idle, info)
		}
	}
	if err := list.Err(); err != nil {
		return err
	}
	slices.SortFunc(idle, func(a, b *jetstream.ConsumerInfo) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
	})
	for _, info := range idle[:min(len(idle), roomFor)] {
		if err := s.DeleteConsumer(ctx, info.Name); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			return err
		}
	}
	return nil
}

// forget deletes the consumer of a reader that has ended, even if ctx has ended. If that fails, the server deletes it
// after readerIdle.
func forget(ctx context.Context, js jetstream.JetStream, stream string, cons jetstream.Consumer) {
	info := cons.CachedInfo()
	if info == nil || !js.Conn().IsConnected() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), forgetTimeout)
	defer cancel()
	_ = js.DeleteConsumer(ctx, stream, info.Name)
}
