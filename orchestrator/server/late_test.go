package server

import (
	"context"
	"io"
	"log/slog"
	"net"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbid-dev/outbid/orchestrator/accounts"
	"github.com/outbid-dev/outbid/orchestrator/audit"
	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/secrets"
)

// lateNATS forwards to a NATS server. It holds the first request to create each stream, and all that follows it, until
// the client asks for that stream again. So the first answer comes after its client has given up on it.
type lateNATS struct {
	listener net.Listener
	target   string

	mu    sync.Mutex
	asked map[string]int
	conns []net.Conn
}

func newLateNATS(t *testing.T) *lateNATS {
	t.Helper()
	s, err := bus.StartServer(bus.ServerConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	late := &lateNATS{listener: l, target: strings.TrimPrefix(s.URL(), "nats://"), asked: map[string]int{}}
	var accepting sync.WaitGroup
	accepting.Go(late.accept)
	t.Cleanup(func() {
		_ = l.Close()
		accepting.Wait()
		late.mu.Lock()
		for _, c := range late.conns {
			_ = c.Close()
		}
		late.mu.Unlock()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return late
}

func (l *lateNATS) accept() {
	for {
		near, err := l.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", l.target)
		if err != nil {
			_ = near.Close()
			return
		}
		l.mu.Lock()
		l.conns = append(l.conns, near, far)
		l.mu.Unlock()
		go l.forward(far, near)
		go func() { _, _ = io.Copy(near, far) }()
	}
}

// request is the protocol line of a request to create, change or look up a stream.
var request = regexp.MustCompile(`PUB \$JS\.API\.STREAM\.(CREATE|UPDATE|INFO)\.(\S+) `)

func (l *lateNATS) forward(to io.Writer, from io.Reader) {
	var held []byte
	seen := 0 // how much of held was searched
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		held = append(held, buf[:n]...)
		for m := request.FindSubmatchIndex(held[seen:]); m != nil; m = request.FindSubmatchIndex(held[seen:]) {
			l.ask(string(held[seen+m[2]:seen+m[3]]) == "CREATE", string(held[seen+m[4]:seen+m[5]]))
			seen += m[1]
		}
		if l.holds() && err == nil {
			continue
		}
		if _, writeErr := to.Write(held); writeErr != nil || err != nil {
			return
		}
		held, seen = held[:0], 0
	}
}

func (l *lateNATS) ask(create bool, stream string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if create || l.asked[stream] > 0 {
		l.asked[stream]++
	}
}

// holds reports whether a stream was asked for only once since its creation.
func (l *lateNATS) holds() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range l.asked {
		if n == 1 {
			return true
		}
	}
	return false
}

// TestALateNATSIsWaitedFor checks that everything a server creates in NATS is created although the first answer is late,
// like from a NATS whose disk is busy.
func TestALateNATSIsWaitedFor(t *testing.T) {
	t.Parallel()
	quiet := slog.New(slog.DiscardHandler)
	for name, open := range map[string]func(ctx context.Context, nc *nats.Conn) error{
		"the lead": func(ctx context.Context, nc *nats.Conn) error {
			lead, err := bus.Campaign(ctx, nc, bus.Candidate{ID: "a"})
			if err == nil {
				err = lead.Resign(ctx)
			}
			return err
		},
		"the output of trials": func(ctx context.Context, nc *nats.Conn) error {
			logs, err := bus.OpenLogs(ctx, nc, bus.LogsConfig{})
			if err != nil {
				return err
			}
			defer logs.Close() //nolint:errcheck // only what was created counts
			return logs.Reserve(ctx, "tenant", 8<<20)
		},
		"the workers": func(ctx context.Context, nc *nats.Conn) error {
			workers, err := bus.OpenWorkers(ctx, nc, bus.WorkersConfig{})
			if err == nil {
				err = workers.Close()
			}
			return err
		},
		"the audit": func(ctx context.Context, nc *nats.Conn) error {
			log, err := audit.Open(nc, audit.Config{Now: time.Now, Logger: quiet})
			if err != nil {
				return err
			}
			defer log.Close() //nolint:errcheck // only what was created counts
			log.Record(ctx, audit.Event{Verb: "start"})
			return awaitStream(ctx, nc, audit.Stream)
		},
		"the API tokens": func(ctx context.Context, nc *nats.Conn) error {
			_, err := accounts.Open(ctx, nc, accounts.Config{Now: time.Now, Logger: quiet})
			return err
		},
		"the secrets": func(ctx context.Context, nc *nats.Conn) error {
			_, err := secrets.Open(ctx, nc, secrets.Config{Key: make([]byte, 32), Now: time.Now})
			return err
		},
		"the ledger": func(ctx context.Context, nc *nats.Conn) error {
			_, err := ledger.OpenJetStream(ctx, nc, ledger.Config{})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			late := newLateNATS(t)
			nc, err := bus.Connect(t.Context(), bus.ConnConfig{URL: "nats://" + late.listener.Addr().String()})
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			if err := open(t.Context(), nc); err != nil {
				t.Error(err)
			}
			late.mu.Lock()
			defer late.mu.Unlock()
			if len(late.asked) == 0 {
				t.Error("it created nothing")
			}
		})
	}
}

// awaitStream waits until a stream exists.
func awaitStream(ctx context.Context, nc *nats.Conn, name string) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := js.Stream(ctx, name); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
