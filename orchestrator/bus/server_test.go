package bus

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// childEnv makes the test binary run a server and publish to it until it is killed.
const childEnv = "OUTBID_BUS_TEST_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		if err := publishForEver(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

func publishForEver(dir string) error {
	ctx := context.Background()
	s, err := StartServer(ServerConfig{Dir: dir})
	if err != nil {
		return err
	}
	defer s.Close() // never runs, but prevents the garbage collection of the server with its lock
	nc, err := Connect(ctx, ConnConfig{Server: s})
	if err != nil {
		return err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "T", Subjects: []string{"t"}}); err != nil {
		return err
	}
	for i := 1; ; i++ {
		if _, err := js.Publish(ctx, "t", []byte(strconv.Itoa(i))); err != nil {
			return err
		}
		fmt.Println(i)
	}
}

// patience limits every wait.
const patience = time.Minute

func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func startServer(t testing.TB, cfg ServerConfig) *Server {
	t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	s, err := StartServer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func connect(t testing.TB, cfg ConnConfig) *nats.Conn {
	t.Helper()
	nc, err := Connect(testContext(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func TestOptionsSyncBeforeAcknowledging(t *testing.T) {
	t.Parallel()
	opts := options(ServerConfig{Dir: "x"})
	if !opts.SyncAlways || !opts.JetStream || !opts.NoSigs {
		t.Errorf("SyncAlways %v, JetStream %v, NoSigs %v: want all true", opts.SyncAlways, opts.JetStream, opts.NoSigs)
	}
	if opts.Host != "127.0.0.1" || opts.Port != -1 || opts.MaxPayload != 8<<20 {
		t.Errorf("host %s, port %d, max payload %d", opts.Host, opts.Port, opts.MaxPayload)
	}
}

// killChild starts the publishing child on dir, waits for want lines, and kills it with SIGKILL. It returns the last
// acknowledged number.
func killChild(t *testing.T, dir string, want int) int {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	last := 0
	for scanner := bufio.NewScanner(out); scanner.Scan(); {
		if last, err = strconv.Atoi(scanner.Text()); err != nil {
			t.Fatal(err)
		}
		if last == want {
			checkInUse(t, dir, cmd.Process.Pid)
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); err == nil || last < want {
		t.Fatalf("child ended by itself after %d: %v", last, err)
	}
	return last
}

func checkInUse(t *testing.T, dir string, pid int) {
	t.Helper()
	s, err := StartServer(ServerConfig{Dir: dir})
	if err == nil {
		t.Fatal("two servers in one directory", s.Close())
	}
	if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), "(pid "+strconv.Itoa(pid)+")") {
		t.Errorf("error %q does not name pid %d", err, pid)
	}
}

func TestAcknowledgedSurvivesKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	last := killChild(t, dir, 25)
	s := startServer(t, ServerConfig{Dir: dir})
	js, err := jetstream.New(connect(t, ConnConfig{Server: s}))
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(testContext(t), "T")
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i <= last; i++ {
		m, err := stream.GetMsg(testContext(t), uint64(i))
		if err != nil || string(m.Data) != strconv.Itoa(i) {
			t.Fatalf("message %d of %d: %v", i, last, err)
		}
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	server, client := testCertificate(t)
	s := startServer(t, ServerConfig{TLS: server})
	connect(t, ConnConfig{URL: s.URL(), TLS: client})
	connect(t, ConnConfig{Server: s})
	_, err := Connect(testContext(t), ConnConfig{URL: s.URL(), TLS: &tls.Config{}})
	if err == nil || !strings.Contains(err.Error(), "check TLS") {
		t.Errorf("untrusted certificate: %v", err)
	}
}

func TestPortInUse(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	_, err = StartServer(ServerConfig{Dir: t.TempDir(), Port: port})
	if err == nil || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Errorf("port in use: %v", err)
	}
}

func TestConnectErrors(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		cfg  ConnConfig
		want string
	}{
		{ConnConfig{URL: "nats://user:secret@" + free}, "nats://" + free},
		{ConnConfig{URL: "nats://" + free}, "check that a server listens there"},
		{ConnConfig{URL: "nats://no-such-host.invalid:4222"}, "check"},
		{ConnConfig{URL: "nats://" + free, NKey: "/no/such/file"}, "/no/such/file"},
	}
	for _, c := range cases {
		_, err := Connect(testContext(t), c.cfg)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%+v: %v; want %q", c.cfg, err, c.want)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Connect(ctx, ConnConfig{URL: "nats://" + free}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// signals is a slog.Handler that announces every message.
type signals struct {
	mu   sync.Mutex
	seen map[string]chan struct{}
}

func (s *signals) of(text string) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen == nil {
		s.seen = map[string]chan struct{}{}
	}
	if s.seen[text] == nil {
		s.seen[text] = make(chan struct{}, 100)
	}
	return s.seen[text]
}

func (s *signals) Enabled(context.Context, slog.Level) bool { return true }
func (s *signals) WithAttrs([]slog.Attr) slog.Handler       { return s }
func (s *signals) WithGroup(string) slog.Handler            { return s }
func (s *signals) Handle(_ context.Context, r slog.Record) error {
	select {
	case s.of(r.Message) <- struct{}{}:
	default:
	}
	return nil
}

func wait(t testing.TB, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(30 * time.Second):
		t.Fatalf("waited too long for: %s", what)
	}
}

func TestReconnects(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := startServer(t, ServerConfig{Dir: dir})
	port, err := strconv.Atoi(first.URL()[strings.LastIndex(first.URL(), ":")+1:])
	if err != nil {
		t.Fatal(err)
	}
	seen := new(signals)
	nc := connect(t, ConnConfig{URL: first.URL(), Logger: slog.New(seen)})
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	wait(t, "loss of the connection", seen.of("lost the connection to NATS; reconnecting"))
	if err := PublishUplink(nc, uplink("n1", 1), nil); !errors.Is(err, ErrNotConnected) {
		t.Errorf("publish without a connection: %v", err)
	}
	startServer(t, ServerConfig{Dir: dir, Port: port})
	wait(t, "the connection to come back", seen.of("reconnected to NATS"))
	if err := PublishUplink(nc, uplink("n1", 1), nil); err != nil {
		t.Error(err)
	}
	if err := Drain(testContext(t), nc); err != nil || !nc.IsClosed() {
		t.Errorf("drain: %v", err)
	}
}

// Attempts to reconnect become rarer, and those of many clients spread out.
func TestReconnectsBackOff(t *testing.T) {
	t.Parallel()
	for attempts, want := range map[int]time.Duration{
		0: reconnectWait, 1: reconnectWait, 2: 2 * reconnectWait, 3: 4 * reconnectWait, 4: reconnectMost, 100: reconnectMost, math.MaxInt: reconnectMost,
	} {
		if least, most := reconnectDelay(attempts, 0), reconnectDelay(attempts, 1); least != want || most != 2*want {
			t.Errorf("attempt %d waits %s to %s, want %s to %s", attempts, least, most, want, 2*want)
		}
	}
}
