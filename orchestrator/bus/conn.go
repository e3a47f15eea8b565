package bus

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/outbid-dev/outbid/orchestrator/identity"
)

// DefaultURL is used if no URL is given.
const DefaultURL = "nats://127.0.0.1:4222"

// ErrNotConnected means that the message was not sent because the connection is lost. Messages on the bus are repeated
// anyway, so they are not buffered.
var ErrNotConnected = errors.New("not connected to NATS")

// ErrRefused means that a message can never be sent: it cannot be encoded, or it exceeds NATS's limit. A retry does not
// help.
var ErrRefused = errors.New("the message cannot be sent")

const (
	connectTimeout = 5 * time.Second
	// reconnectWait is the pause before an attempt to reconnect, and reconnectMost the longest one after failed attempts.
	reconnectWait = 250 * time.Millisecond
	reconnectMost = 2 * time.Second
	// A server that does not answer pingsOut pings, one each pingInterval, is given up. That is earlier than other NATS
	// servers elect a leader in its place, which takes four seconds or more.
	pingInterval = time.Second
	pingsOut     = 3
	// reconnectBuffer limits the bytes that are buffered while disconnected.
	reconnectBuffer = 16 << 20
)

// ConnConfig configures a connection to NATS.
type ConnConfig struct {
	// URL, or several separated by commas. Not used with Server.
	URL string
	// User has the credentials to connect with, or is nil.
	User *identity.Credentials
	// Creds is the path of a NATS credentials file, for a NATS with separately managed users; or empty.
	Creds string
	// NKey is the path of a file with an NKey seed, or empty.
	NKey string
	// TLS settings; nil for those of the URL's scheme.
	TLS *tls.Config
	// Name is shown in the NATS server's listings.
	Name string
	// Server, if set, is connected to in memory.
	Server *Server
	// Logger receives messages about lost and restored connections; nil discards them.
	Logger *slog.Logger
}

// Connect opens a connection that reconnects by itself without a limit. Only the first attempt can fail; its error
// names the URL, the cause and a hint.
func Connect(ctx context.Context, cfg ConnConfig) (*nats.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	target := cfg.URL
	if target == "" {
		target = DefaultURL
	}
	opts, err := connOptions(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS at %s: %w", RedactURLs(target), err)
	}
	if cfg.Server != nil {
		target = "nats://" + cfg.Server.host // never TLS: it does not leave the process
		opts = append(opts, nats.InProcessServer(cfg.Server.ns))
	}
	nc, err := nats.Connect(target, opts...)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS at %s: %w; %s", RedactURLs(target), err, hint(err))
	}
	return nc, nil
}

func connOptions(ctx context.Context, cfg ConnConfig) ([]nats.Option, error) {
	timeout := connectTimeout
	if end, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(end))
	}
	opts := []nats.Option{
		nats.Name(cfg.Name),
		nats.Timeout(timeout),
		nats.MaxReconnects(-1),
		nats.CustomReconnectDelay(func(attempts int) time.Duration { return reconnectDelay(attempts, rand.Float64()) }),
		nats.ReconnectBufSize(reconnectBuffer),
		nats.PingInterval(pingInterval),
		nats.MaxPingsOutstanding(pingsOut),
		nats.IgnoreAuthErrorAbort(),
	}
	opts = append(opts, handlers(orDiscard(cfg.Logger))...)
	if cfg.User != nil {
		opts = append(opts, cfg.User.Options()...)
	}
	if cfg.Creds != "" {
		opts = append(opts, nats.UserCredentials(cfg.Creds))
	}
	if cfg.NKey != "" {
		opt, err := nats.NkeyOptionFromSeed(cfg.NKey)
		if err != nil {
			return nil, fmt.Errorf("read NKey seed %s: %w", cfg.NKey, err)
		}
		opts = append(opts, opt)
	}
	if cfg.TLS != nil && cfg.Server == nil {
		opts = append(opts, nats.Secure(cfg.TLS))
	}
	return opts, nil
}

// reconnectDelay returns the pause before an attempt to reconnect, between one and two times a time that doubles with each
// failed attempt. If thousands of workers lose NATS at once, it cannot admit all of them before their attempts time out;
// with a constant pause they would keep it busy with attempts that fail. dice is between 0 and 1.
func reconnectDelay(attempts int, dice float64) time.Duration {
	least := min(reconnectWait<<min(max(attempts-1, 0), 10), reconnectMost)
	return least + time.Duration(dice*float64(least))
}

// complaints prevents repeated logging of a cause, because a refused publication fails with every message.
type complaints struct {
	mu     sync.Mutex
	logged map[string]time.Time
}

const (
	// complainAgain is when a cause is logged again.
	complainAgain = 10 * time.Minute
	// maxComplaints limits how many causes are remembered.
	maxComplaints = 1000
)

// isNew reports whether a cause was not logged recently, and records it as logged.
func (c *complaints) isNew(cause string, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at, ok := c.logged[cause]; ok && now.Sub(at) < complainAgain {
		return false
	}
	if c.logged == nil || len(c.logged) >= maxComplaints {
		c.logged = map[string]time.Time{}
	}
	c.logged[cause] = now
	return true
}

func handlers(log *slog.Logger) []nats.Option {
	said := new(complaints)
	return []nats.Option{
		nats.DisconnectErrHandler(func(nc *nats.Conn, err error) {
			if err != nil {
				log.Warn("lost the connection to NATS; reconnecting", "url", nc.ConnectedUrlRedacted(), "error", err)
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			log.Info("reconnected to NATS", "url", nc.ConnectedUrlRedacted())
		}),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			subject := ""
			if sub != nil {
				subject = sub.Subject
			}
			level := slog.LevelDebug
			if said.isNew(subject+" "+err.Error(), time.Now()) {
				level = slog.LevelWarn
			}
			log.Log(context.Background(), level, "NATS", "subject", subject, "error", err)
		}),
	}
}

// Drain delivers pending messages, closes the connection, and waits until it is closed or ctx ends.
func Drain(ctx context.Context, nc *nats.Conn) error {
	closed := nc.StatusChanged(nats.CLOSED)
	defer nc.RemoveStatusListener(closed)
	err := nc.Drain()
	if errors.Is(err, nats.ErrConnectionClosed) {
		return nil
	}
	if err != nil { // reconnecting: nothing can be delivered
		nc.Close()
		return nil
	}
	select {
	case <-closed:
		return nil
	case <-ctx.Done():
		nc.Close()
		return fmt.Errorf("drain the connection to NATS: %w", ctx.Err())
	}
}

// MayConnectLater reports whether waiting may help after a failure to connect: NATS does not run yet, or does not answer.
// Credentials, certificates and addresses must be right.
func MayConnectLater(err error) bool {
	if _, address := errors.AsType[*url.Error](err); address || isAboutTLS(err) { // url.Error is a net.Error, too
		return false
	}
	_, network := errors.AsType[net.Error](err)
	return network || errors.Is(err, nats.ErrNoServers) || errors.Is(err, nats.ErrTimeout) || errors.Is(err, io.EOF)
}

func isAboutTLS(err error) bool {
	_, record := errors.AsType[tls.RecordHeaderError](err)
	return record || strings.Contains(err.Error(), "x509") || strings.Contains(err.Error(), "tls:") ||
		errors.Is(err, nats.ErrSecureConnRequired) || errors.Is(err, nats.ErrSecureConnWanted)
}

func hint(err error) string {
	switch {
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired):
		return "check the credentials: they must come from this server, and must not be revoked or expired ('outbid worker join')"
	case isAboutTLS(err):
		return "check TLS: both sides must use it, and the server's certificate must be trusted here"
	case errors.Is(err, nats.ErrTimeout):
		return "something listens but does not answer in time: check that it is a NATS server"
	case strings.Contains(err.Error(), "no such host"):
		return "check the host's name"
	default:
		return "check that a server listens there (`outbid serve`, or nats-server with JetStream) and that no " +
			"firewall is in between"
	}
}

// RedactURLs removes passwords and tokens from a list of URLs.
func RedactURLs(list string) string {
	parts := strings.Split(list, ",")
	for i, part := range parts {
		if at := strings.LastIndex(part, "@"); at >= 0 {
			scheme, _, found := strings.Cut(part, "://")
			if !found {
				scheme = "nats"
			}
			parts[i] = scheme + "://" + part[at+1:]
		} else if u, err := url.Parse(part); err == nil {
			parts[i] = u.Redacted()
		}
	}
	return strings.Join(parts, ",")
}
