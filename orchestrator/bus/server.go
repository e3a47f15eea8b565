package bus

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"golang.org/x/sys/unix"

	"github.com/outbid-dev/outbid/orchestrator/identity"
)

// MaxPayload is the maximum message size of the embedded server, in bytes. A separate NATS should have the same limit.
const MaxPayload = 8 << 20

// authTimeout limits how long a client may take to authenticate. NATS's default of 2 s is too short if thousands of
// workers connect at once, because it verifies two signatures of each.
const authTimeout = 10 * time.Second

// readyTimeout limits how long the server may take to open its store and listen.
const readyTimeout = 60 * time.Second

// ServerConfig configures the embedded server.
type ServerConfig struct {
	// Dir is the directory of JetStream's files, created if missing. Only one process may use it at a time.
	Dir string
	// Host to listen on; empty means 127.0.0.1.
	Host string
	// Port to listen on; 0 chooses a free one.
	Port int
	// Keys of the cluster, whose users the server admits; nil admits every client.
	Keys *identity.Keys
	// TLS of client connections, or nil.
	TLS *tls.Config
	// MaxPayload is the maximum message size in bytes; 0 means the constant MaxPayload. Tests use the limits of other
	// servers.
	MaxPayload int32
	// Logger receives the server's messages; nil discards them.
	Logger *slog.Logger
}

// Server is a NATS server with JetStream in this process.
type Server struct {
	ns    *server.Server
	lock  *dirLock
	url   string
	host  string // with the port
	keys  *identity.Keys
	close sync.Once
}

// StartServer starts the embedded server and returns once it accepts connections. It fails if another process uses Dir.
func StartServer(cfg ServerConfig) (*Server, error) {
	if cfg.Dir == "" {
		return nil, errors.New("start NATS: no data directory given")
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("start NATS: create data directory: %w", err)
	}
	lock, err := lockDir(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("start NATS: %w", err)
	}
	s, err := startLocked(cfg)
	if err != nil {
		return nil, errors.Join(err, lock.release())
	}
	s.lock = lock
	return s, nil
}

func startLocked(cfg ServerConfig) (*Server, error) {
	opts := options(cfg)
	log := newServerLog(orDiscard(cfg.Logger))
	if err := admitUsers(opts, cfg); err != nil {
		return nil, fmt.Errorf("start NATS: %w", err)
	}
	if err := portFree(opts.Host, opts.Port); err != nil {
		return nil, fmt.Errorf("start NATS: %w", err)
	}
	ns, err := server.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("start NATS: %w", err)
	}
	ns.SetLoggerV2(log, false, false, false)
	ns.Start()
	if !log.ready(ns) || !ns.JetStreamEnabled() {
		ns.Shutdown()
		ns.WaitForShutdown()
		return nil, fmt.Errorf("start NATS in %s on %s: %w", cfg.Dir, net.JoinHostPort(opts.Host,
			strconv.Itoa(opts.Port)), log.cause())
	}
	addr, ok := ns.Addr().(*net.TCPAddr)
	if !ok {
		ns.Shutdown()
		ns.WaitForShutdown()
		return nil, fmt.Errorf("start NATS: not listening on TCP but %v", ns.Addr())
	}
	scheme := "nats"
	if cfg.TLS != nil {
		scheme = "tls"
	}
	host := net.JoinHostPort(opts.Host, strconv.Itoa(addr.Port))
	return &Server{ns: ns, url: scheme + "://" + host, host: host, keys: cfg.Keys}, nil
}

// options returns the settings of the embedded server. SyncAlways makes acknowledged appends durable: by default NATS
// acknowledges up to two minutes before it syncs.
func options(cfg ServerConfig) *server.Options {
	host, port := cfg.Host, cfg.Port
	if host == "" {
		host = "127.0.0.1"
	}
	if port == 0 {
		port = server.RANDOM_PORT
	}
	return &server.Options{
		ServerName:             "outbid",
		Host:                   host,
		Port:                   port,
		TLS:                    cfg.TLS != nil,
		TLSConfig:              cfg.TLS,
		TLSTimeout:             5,
		AuthTimeout:            authTimeout.Seconds(),
		JetStream:              true,
		StoreDir:               filepath.Join(cfg.Dir, "store"),
		SyncAlways:             true,
		NoSigs:                 true,
		MaxPayload:             cmp.Or(cfg.MaxPayload, MaxPayload),
		MaxPending:             256 << 20,
		MaxConn:                maxConns(),
		DisableJetStreamBanner: true,
	}
}

// maxConns returns the server's maximum number of connections: a quarter of the process's descriptors. The others are
// for its files and for other listeners of the process.
func maxConns() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return server.DEFAULT_MAX_CONNECTIONS
	}
	return int(min(max(limit.Cur/4, 64), server.DEFAULT_MAX_CONNECTIONS))
}

// portFree returns a clear error for a port in use; the server itself only logs it.
func portFree(host string, port int) error {
	if port <= 0 {
		return nil
	}
	addr := net.JoinHostPort(host, strconv.Itoa(port))
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("cannot listen on %s: %w; give another port, or 0 to pick a free one", addr, err)
	}
	return l.Close()
}

// URL returns the server's URL without secrets.
func (s *Server) URL() string { return s.url }

// Close stops the server after its last write is on disk, and releases the data directory. Callers should drain
// connections first; others are cut off.
func (s *Server) Close() error {
	var err error
	s.close.Do(func() {
		s.ns.Shutdown()
		s.ns.WaitForShutdown()
		err = s.lock.release()
	})
	return err
}

// serverLog forwards the server's log, and keeps its last error, which explains a failed start.
type serverLog struct {
	log *slog.Logger
	// ended is closed once the server cannot start.
	ended chan struct{}

	mu    sync.Mutex
	last  string
	fatal error // with the system's error, such as that of a port in use
}

func newServerLog(log *slog.Logger) *serverLog {
	return &serverLog{log: log, ended: make(chan struct{})}
}

// ready waits until the server accepts connections or cannot start, and reports which.
func (l *serverLog) ready(ns *server.Server) bool {
	ready := make(chan bool, 1)
	go func() { ready <- ns.ReadyForConnections(readyTimeout) }()
	select {
	case ok := <-ready:
		return ok
	case <-l.ended:
		return false
	}
}

func (l *serverLog) cause() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fatal != nil {
		return l.fatal
	}
	if l.last == "" {
		return fmt.Errorf("not ready after %s", readyTimeout)
	}
	return errors.New(l.last)
}

func (l *serverLog) complain(format string, v []any) {
	text := fmt.Sprintf(format, v...)
	l.mu.Lock()
	l.last = text
	l.mu.Unlock()
	l.log.Warn("nats: " + text)
}

// Noticef implements server.Logger.
func (l *serverLog) Noticef(format string, v ...any) {
	l.log.Debug("nats: " + fmt.Sprintf(format, v...))
}

// Debugf implements server.Logger.
func (l *serverLog) Debugf(format string, v ...any) {
	l.log.Debug("nats: " + fmt.Sprintf(format, v...))
}

// Tracef implements server.Logger.
func (l *serverLog) Tracef(format string, v ...any) {
	l.log.Debug("nats: " + fmt.Sprintf(format, v...))
}

// Warnf implements server.Logger.
func (l *serverLog) Warnf(format string, v ...any) { l.complain(format, v) }

// Errorf implements server.Logger.
func (l *serverLog) Errorf(format string, v ...any) { l.complain(format, v) }

// Fatalf implements server.Logger. It does not exit: StartServer returns the error.
func (l *serverLog) Fatalf(format string, v ...any) {
	l.complain(format, v)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fatal != nil {
		return
	}
	l.fatal = errors.New(l.last)
	for _, arg := range v {
		if err, ok := arg.(error); ok {
			l.fatal = err
		}
	}
	close(l.ended)
}

func orDiscard(log *slog.Logger) *slog.Logger {
	if log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return log
}
