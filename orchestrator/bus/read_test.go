package bus

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// numbered creates a stream of n messages on an embedded server.
func numbered(t *testing.T, n int) (jetstream.JetStream, jetstream.Stream) {
	t.Helper()
	s, err := StartServer(ServerConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	nc, err := Connect(t.Context(), ConnConfig{Server: s})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		nc.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "N", Subjects: []string{"n"}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if _, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: "n", Data: fmt.Append(nil, i)}); err != nil {
			t.Fatal(err)
		}
	}
	return js, stream
}

func consumers(t *testing.T, s jetstream.Stream) int {
	t.Helper()
	info, err := s.Info(context.WithoutCancel(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	return info.State.Consumers
}

func TestReadersLeaveNoConsumersBehind(t *testing.T) {
	t.Parallel()
	js, stream := numbered(t, 10)
	stop := errors.New("stop")
	for name, read := range map[string]func(ctx context.Context, cancel func(), n int) (bool, error){
		"to the end":      func(_ context.Context, _ func(), n int) (bool, error) { return n < 10, nil },
		"enough":          func(_ context.Context, _ func(), n int) (bool, error) { return n < 3, nil },
		"failed":          func(context.Context, func(), int) (bool, error) { return true, stop },
		"the reader left": func(_ context.Context, cancel func(), _ int) (bool, error) { cancel(); return true, nil },
	} {
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		err := ReadStream(ctx, js, StreamRead{Stream: "N"}, func(jetstream.Msg) (bool, error) {
			n++
			return read(ctx, cancel, n)
		})
		if err != nil && !errors.Is(err, stop) && !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
		if got := consumers(t, stream); got != 0 {
			t.Errorf("%s: %d consumers are left", name, got)
		}
		cancel()
	}
}

func TestAReaderFindsRoomAmongWhatOthersLeftBehind(t *testing.T) {
	t.Parallel()
	js, stream := numbered(t, 3)
	left := 0
	for {
		_, err := stream.OrderedConsumer(t.Context(), jetstream.OrderedConsumerConfig{})
		if refused, ok := errors.AsType[*jetstream.APIError](err); ok && refused.ErrorCode == tooManyConsumers {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		left++
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	n := 0
	err := ReadStream(ctx, js, StreamRead{Stream: "N", From: 2}, func(m jetstream.Msg) (bool, error) {
		n++
		return n < 2, nil
	})
	if err != nil || n != 2 {
		t.Errorf("with %d consumers left behind: read %d messages of 2: %v", left, n, err)
	}
	if got := consumers(t, stream); got >= left {
		t.Errorf("there are %d consumers, there were %d", got, left)
	}
}
