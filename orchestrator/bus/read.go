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
	// readerIdle is how long the server keeps the consumer of a reader that died, or that takes nothing: the reader of a
	// slow client makes itself a new one.
	readerIdle = 30 * time.Second
	// forgetTimeout bounds the deletion of a consumer that is not needed any more.
	forgetTimeout = 5 * time.Second
	// tooManyConsumers is how JetStream says that a stream takes no more consumers.
	tooManyConsumers jetstream.ErrorCode = 10026
	// roomFor is how many consumers that nobody uses are deleted when a stream takes no more.
	roomFor = 64
)

// StreamRead says what of a stream is read.
type StreamRead struct {
	Stream string
	// From is the first message; 0 for the first there is.
	From uint64
	// Subjects, if there are any, are the only ones that are read.
	Subjects []string
	// Ahead bounds what may be under way from the server, in messages and bytes; zero for the client's own bounds.
	AheadMessages, AheadBytes int
	// Pending is told once, before the first message, how many there are; reading ends if it returns false.
	Pending func(messages uint64) (bool, error)
}

// ReadStream calls f with the messages of a stream, in order and without a gap, until f returns false or an error, or
// ctx ends. It leaves no consumer behind: a stream takes only so many, and the next reader would find no room. Where
// others left some, it makes room.
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

// clearIdle deletes the oldest consumers of a stream that nobody waits at: those of readers that were killed, and those
// that earlier versions left behind. A reader that lives makes itself a new one if it loses its own.
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

// forget deletes the consumer of a reader that has ended, also one that ended because ctx did. If that fails the server
// deletes it after readerIdle.
func forget(ctx context.Context, js jetstream.JetStream, stream string, cons jetstream.Consumer) {
	info := cons.CachedInfo()
	if info == nil || !js.Conn().IsConnected() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), forgetTimeout)
	defer cancel()
	_ = js.DeleteConsumer(ctx, stream, info.Name)
}
