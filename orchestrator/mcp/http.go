package mcp

import (
	"context"
	"crypto/sha256"
	"errors"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Path is the path of the server for HTTP clients.
const Path = "/mcp"

const (
	// maxBody limits the body of an HTTP request.
	maxBody = 2 << 20
	// maxSessions limits the sessions of clients with protocol versions that have sessions; idle ones end.
	maxSessions = 100
	idleSession = time.Hour
	// maxCalls limits the HTTP requests that are served at once.
	maxCalls = 64
	// sessionless is the first protocol version without sessions.
	sessionless = "2026-07-28"
	// admittedFor is how long a token is not checked again. Each call of a tool checks it anyway.
	admittedFor = 30 * time.Second
	// maxAdmitted limits the tokens that are remembered.
	maxAdmitted = 1000
)

// HTTPConfig configures the server on HTTP.
type HTTPConfig struct {
	// Open is set if other machines can connect. Then only an Outbid server that requires tokens may be used.
	Open bool
	// TLSCert and TLSKey are PEM files, or empty.
	TLSCert, TLSKey string
}

// Serve serves HTTP clients until ctx ends.
func (s *Server) Serve(ctx context.Context, l net.Listener, cfg HTTPConfig) error {
	srv := &http.Server{
		Handler: s.Handler(cfg.Open), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(s.Logger.Handler(), slog.LevelWarn),
	}
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(closed)
		_ = srv.Close() // calls of tools end; sweeps continue on the Outbid server
	})
	var err error
	if cfg.TLSCert != "" {
		err = srv.ServeTLS(l, cfg.TLSCert, cfg.TLSKey)
	} else {
		err = srv.Serve(l)
	}
	if !stop() {
		<-closed
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Handler returns the handler of HTTP requests. open is set if other machines can connect. Requests of web pages of
// other origins are refused, and on loopback requests for another host.
func (s *Server) Handler(open bool) http.Handler {
	get := func(*http.Request) *sdk.Server { return s.sdk }
	h := &httpHandler{
		server: s, open: open, calls: make(chan struct{}, maxCalls), admitted: map[[sha256.Size]byte]time.Time{},
		sessions: sdk.NewStreamableHTTPHandler(get, &sdk.StreamableHTTPOptions{
			Logger: s.Logger, SessionTimeout: idleSession, MaxRequestBodyBytes: maxBody,
		}),
		single: sdk.NewStreamableHTTPHandler(get, &sdk.StreamableHTTPOptions{
			Logger: s.Logger, Stateless: true, PropagateRequestCancellation: true, MaxRequestBodyBytes: maxBody,
		}),
	}
	return http.NewCrossOriginProtection().Handler(h)
}

// httpHandler limits what HTTP clients use.
type httpHandler struct {
	server *Server
	open   bool
	// sessions serves clients with sessions, single those without.
	sessions, single http.Handler
	// calls has an element for each request that is being served.
	calls chan struct{}

	mu sync.Mutex
	// admitted has the hashes of tokens that the Outbid server accepted, and when.
	admitted map[[sha256.Size]byte]time.Time
}

// ServeHTTP implements http.Handler.
func (h *httpHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path != Path:
		http.Error(w, "not found: the Model Context Protocol is at "+Path, http.StatusNotFound)
		return
	case r.Method == http.MethodDelete:
		h.sessions.ServeHTTP(w, r)
		return
	case r.Method != http.MethodPost: // a stream for messages of the server, which sends none by itself
		w.Header().Set("Allow", "POST, DELETE")
		http.Error(w, "method not allowed: use POST", http.StatusMethodNotAllowed)
		return
	}
	select {
	case h.calls <- struct{}{}:
		defer func() { <-h.calls }()
	default:
		http.Error(w, "too many requests at once: retry later", http.StatusServiceUnavailable)
		return
	}
	if code, problem := h.admit(r); code != 0 {
		if code == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", `Bearer realm="outbid"`)
		}
		http.Error(w, problem, code)
		return
	}
	switch {
	case r.Header.Get("Mcp-Protocol-Version") >= sessionless:
		h.single.ServeHTTP(w, r)
	case r.Header.Get("Mcp-Session-Id") == "" && count(h.server.sdk.Sessions()) >= maxSessions:
		http.Error(w, "too many sessions: retry later", http.StatusServiceUnavailable)
	default:
		h.sessions.ServeHTTP(w, r)
	}
}

func count[V any](all iter.Seq[V]) int {
	n := 0
	for range all {
		n++
	}
	return n
}

// admit asks the Outbid server whether it accepts the request's token. It returns the HTTP status of a refusal, or 0. A
// server that does not answer refuses nothing here: the tools report that.
func (h *httpHandler) admit(r *http.Request) (code int, problem string) {
	token := bearerToken(r.Header.Get("Authorization"))
	hash := sha256.Sum256([]byte(token))
	if h.isAdmitted(hash) {
		return 0, ""
	}
	ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
	defer cancel()
	c, err := h.server.Connect(ctx, token)
	if err != nil {
		return h.unanswered()
	}
	if c.Close != nil {
		defer c.Close()
	}
	info, err := c.API.GetServerInfo(ctx, &outbidv1.GetServerInfoRequest{})
	switch {
	case status.Code(err) == codes.Unauthenticated:
		return http.StatusUnauthorized, cleanLine(status.Convert(err).Message(), maxLine)
	case err != nil:
		return h.unanswered()
	case h.open && info.GetCaller().GetLocal():
		return http.StatusForbidden, "the Outbid server does not require tokens: it must not be reachable from other machines"
	}
	h.remember(hash)
	return 0, ""
}

// unanswered refuses requests of other machines while it is unknown whether the Outbid server requires tokens.
func (h *httpHandler) unanswered() (code int, problem string) {
	if h.open {
		return http.StatusBadGateway, "the Outbid server does not answer: retry later"
	}
	return 0, ""
}

func (h *httpHandler) isAdmitted(hash [sha256.Size]byte) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	at, ok := h.admitted[hash]
	return ok && time.Since(at) < admittedFor
}

func (h *httpHandler) remember(hash [sha256.Size]byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.admitted) >= maxAdmitted {
		clear(h.admitted)
	}
	h.admitted[hash] = time.Now()
}
