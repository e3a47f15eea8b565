package api

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/outbid-dev/outbid/orchestrator/explain/evidence"
	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/objects"
	"github.com/outbid-dev/outbid/orchestrator/usage"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Config is the configuration of a Server.
type Config struct {
	Control Control
	Store   objects.Store
	Logs    Logs
	// Workers may be nil: then workers cannot join or be removed.
	Workers Workers
	// Secrets may be nil: then tenants do not have secrets.
	Secrets Secrets
	// WhatIf may be nil: then nothing is simulated for explanations.
	WhatIf WhatIf
	// Accounts stores API tokens; nil for none.
	Accounts Accounts
	// Audit records calls; nil for none.
	Audit Audit
	// Retention may be nil: then RunRetention is not served.
	Retention Retention
	// Traces records spans of calls; nil for none.
	Traces Traces
	// Usage may be nil: then GetUsage is not served. Prices may be nil: then costs need prices in the request.
	Usage  Usage
	Prices *usage.PriceFile
	Logger *slog.Logger
	// Registry is the content of /metrics; the server adds its own metrics to it.
	Registry *prometheus.Registry
	// Addr is host:port; port 0 chooses a free port. Listener, if set, is used instead.
	Addr     string
	Listener net.Listener
	// Tokens authenticates callers. Without it every caller is accepted, which is allowed only on loopback.
	Tokens *Tokens
	// SignIn accepts people of an identity provider too, or is nil.
	SignIn *SignIn
	// TLS is the server's certificate. Without it connections are not encrypted, which is allowed only on loopback.
	TLS *tls.Config
	// Limits holds the limits of each tenant; nil gives every tenant the defaults.
	Limits *Limits

	// Alone reports whether no further nodes can join, so that a sweep that does not fit the nodes that are up is
	// rejected. It is nil for a cluster that may grow.
	Alone func() bool
	// Away returns why the server cannot answer now, or ""; nil if it always can.
	Away func() string
	// MaxPayload returns the maximum size of a NATS message in bytes; nil means no limit.
	MaxPayload func() int

	// Verify checks every file that can be rebuilt from the ledger, and rebuilds damaged ones, until ctx ends. It is
	// nil if the server has no such files. GetServerInfo's checks show the results.
	Verify func(ctx context.Context)

	// pace is the pace of request bodies; bodyPace if its rate is 0.
	pace pace
	// Objects serves objects at signed URLs to every bearer; nil for none.
	Objects *objects.Handler
}

// Server serves the API. Create it with New.
type Server struct {
	cfg      Config
	listener net.Listener
	inner    *bufconn.Listener
	conn     *grpc.ClientConn
	grpc     *grpc.Server
	http     *http.Server
	blobs    *blobBook
	throttle *throttle
	// stop ends every stream.
	stop context.CancelFunc
}

const (
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 64 << 10
	// stopTimeout is how long calls may take to finish when the server stops.
	stopTimeout = 5 * time.Second
	// streamsPerConn is high because a client may follow hundreds of sweeps over one connection.
	streamsPerConn = 10000
	innerBuffer    = 1 << 20
)

// New checks the configuration and listens. It refuses to listen beyond loopback without tokens and TLS.
func New(cfg Config) (*Server, error) {
	if cfg.Control == nil || cfg.Store == nil || cfg.Logs == nil || cfg.Registry == nil {
		return nil, errors.New("api: Control, Store, Logs and Registry must be set")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Alone == nil {
		cfg.Alone = func() bool { return false }
	}
	if cfg.MaxPayload == nil {
		cfg.MaxPayload = func() int { return math.MaxInt }
	}
	if cfg.pace.rate == 0 {
		cfg.pace = bodyPace()
	}
	if err := cfg.SignIn.check(); err != nil {
		return nil, err
	}
	if cfg.SignIn != nil && cfg.Tokens == nil {
		cfg.Tokens = &Tokens{}
	}
	if err := checkAddr(cfg); err != nil {
		return nil, err
	}
	calls, seconds := newCallMetrics()
	for _, c := range []prometheus.Collector{calls, seconds, newClusterMetrics(cfg.Control), newNodeMetrics(cfg.Control)} {
		if err := cfg.Registry.Register(c); err != nil {
			return nil, fmt.Errorf("register api metrics: %w", err)
		}
	}
	stopping, stop := context.WithCancel(context.Background())
	bound := newThrottle(func(tenant string) limits.Tenant { return LimitOf(cfg.Control, cfg.Limits, tenant) })
	i := &interceptor{
		sessions: &sessions{tokens: cfg.Tokens, provider: cfg.SignIn, secure: cfg.TLS != nil, now: time.Now},
		throttle: bound, control: cfg.Control, audit: cfg.Audit, tokens: cfg.Tokens, signIn: cfg.SignIn, logger: cfg.Logger, stopping: stopping, away: cfg.Away,
		calls: calls, seconds: seconds,
	}
	i.sessions.record = i.recordSignIn
	s := &Server{cfg: cfg, listener: cfg.Listener, stop: stop, inner: bufconn.Listen(innerBuffer), blobs: newBlobBook(cfg), throttle: bound}
	encodings := &sweepEncodings{}
	s.grpc = grpc.NewServer(grpc.UnaryInterceptor(i.unary), grpc.StreamInterceptor(i.stream),
		grpc.ForceServerCodecV2(newWireCodec(encodings)))
	outbidv1.RegisterOutbidServiceServer(s.grpc, newService(cfg, s.blobs, bound, encodings,
		func() evidence.API { return outbidv1.NewOutbidServiceClient(s.conn) }))
	if err := s.open(i); err != nil {
		stop()
		return nil, err
	}
	return s, nil
}

// open creates the connection through which REST calls gRPC, the handlers, and the listener.
func (s *Server) open(i *interceptor) error {
	// REST calls pass through the same interceptor as gRPC, in memory.
	conn, err := grpc.NewClient("passthrough:///api",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return s.inner.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		return fmt.Errorf("connect REST to gRPC: %w", err)
	}
	s.conn = conn
	rest, err := newPages(s.cfg, i, conn)
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	if s.listener == nil {
		if s.listener, err = net.Listen("tcp", s.cfg.Addr); err != nil {
			return errors.Join(fmt.Errorf("listen: %w", err), conn.Close())
		}
	}
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(s.cfg.TLS != nil)
	protocols.SetUnencryptedHTTP2(s.cfg.TLS == nil)
	s.http = &http.Server{
		Handler: withObjects(s.cfg.Objects,
			i.sameOrigin(i.sessions.admit(i.admit(keepPace(split(s.grpc, rest), s.cfg.pace))))),
		Protocols:         &protocols,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: streamsPerConn},
		TLSConfig:         s.cfg.TLS,
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelDebug),
	}
	return nil
}

// withObjects routes requests for signed objects to handler. The signature proves that they do not come from another
// origin, and they may have any size.
func withObjects(handler *objects.Handler, next http.Handler) http.Handler {
	if handler == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, objects.HandlerPath) {
			handler.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// checkAddr checks the address of cfg with CheckAddr.
func checkAddr(cfg Config) error {
	addr := cfg.Addr
	if cfg.Listener != nil {
		addr = cfg.Listener.Addr().String()
	}
	return CheckAddr(addr, cfg.Tokens != nil, cfg.TLS != nil)
}

// CheckAddr rejects a HOST:PORT beyond loopback without tokens and TLS. The error shows the commands that create them.
func CheckAddr(addr string, tokens, secure bool) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("address %q: must be HOST:PORT, such as 127.0.0.1:7700", addr)
	}
	if loopbackHost(host) || (tokens && secure) {
		return nil
	}
	var missing, commands []string
	if !tokens {
		missing = append(missing, "a tokens file (--tokens)")
		commands = append(commands, "'outbid token new --file tokens --name NAME'")
	}
	if !secure {
		name := host
		if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
			name = "NAME"
		}
		missing = append(missing, "a certificate (--tls-cert, --tls-key)")
		commands = append(commands, fmt.Sprintf("'outbid tls new --dir tls --host %s'", name))
	}
	if host == "" {
		host = "every address"
	}
	return fmt.Errorf("refused to listen on %s, which is not a loopback address, without %s; create what is missing with %s", host,
		strings.Join(missing, " and "), strings.Join(commands, " and "))
}

// Addr returns the address on which the server listens.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// URL returns the server's URL.
func (s *Server) URL() string {
	if s.cfg.TLS != nil {
		return "https://" + s.Addr()
	}
	return "http://" + s.Addr()
}

// Close releases the resources of New, for a server on which Serve was never called.
func (s *Server) Close() error {
	s.stop()
	return errors.Join(s.listener.Close(), s.conn.Close(), s.inner.Close())
}

// Serve answers calls until ctx ends. Then it ends streams, gives calls a few seconds to finish, and returns nil.
func (s *Server) Serve(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		err := s.grpc.Serve(s.inner)
		if errors.Is(err, grpc.ErrServerStopped) { // ctx ended first
			return nil
		}
		return err
	})
	group.Go(func() error {
		err := s.serveHTTP()
		if errors.Is(err, http.ErrServerClosed) {
			return nil
		}
		return fmt.Errorf("serve: %w", err)
	})
	group.Go(func() error {
		<-ctx.Done()
		s.shutdown()
		return nil
	})
	return group.Wait()
}

func (s *Server) serveHTTP() error {
	if s.cfg.TLS != nil {
		return s.http.ServeTLS(s.listener, "", "")
	}
	return s.http.Serve(s.listener)
}

func (s *Server) shutdown() {
	s.stop()
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		s.cfg.Logger.Warn("calls were cut off when the API stopped", "err", err)
		s.http.Close()
	}
	s.conn.Close()
	s.grpc.Stop()
}
