package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
)

// standby answers on the API's port while the server restores its state or is a standby. Probes learn that it is alive
// but not ready, and clients get an error to retry instead of waiting.
type standby struct {
	http  *http.Server
	door  *handoffListener
	ended chan error
	// metrics answers /metrics.
	metrics http.Handler
	// waits describes what the server waits for.
	waits atomic.Pointer[string]
}

// openStandby starts to answer on a listener, which the caller still owns.
func openStandby(l net.Listener, certs *tls.Config, metrics http.Handler) *standby {
	p := &standby{door: &handoffListener{Listener: l}, ended: make(chan error, 1), metrics: metrics}
	p.waitFor("its parts")
	p.http = &http.Server{
		Handler: http.HandlerFunc(p.answer), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 20 * time.Second,
	}
	p.http.SetKeepAlivesEnabled(false) // the next request is for the API
	// gRPC uses HTTP/2 and must not mistake this for another kind of server.
	p.http.Protocols = new(http.Protocols)
	p.http.Protocols.SetHTTP1(true)
	p.http.Protocols.SetHTTP2(true)
	p.http.Protocols.SetUnencryptedHTTP2(true)
	go func() {
		inner := net.Listener(p.door)
		if certs != nil {
			certs = certs.Clone()
			certs.NextProtos = []string{"h2", "http/1.1"} // without them clients of gRPC do not connect
			inner = tls.NewListener(inner, certs)
		}
		p.ended <- p.http.Serve(inner)
	}()
	return p
}

// answerWithin is how long pending requests may still be answered once the server is ready. Normally each is answered
// at once.
const answerWithin = 500 * time.Millisecond

// leave answers pending requests, and leaves the listener open.
func (p *standby) leave() error {
	p.door.stopAccepting()
	err := <-p.ended
	ctx, cancel := context.WithTimeout(context.Background(), answerWithin)
	defer cancel()
	_ = p.http.Shutdown(ctx) // does not wait for connections without a request
	closeErr := p.http.Close()
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
		err = nil
	}
	return errors.Join(err, closeErr, p.door.reset())
}

// waitFor sets what the server waits for.
func (p *standby) waitFor(what string) { p.waits.Store(&what) }

// unready is the error for clients; %s is what the server waits for.
const unready = "this server is starting or a standby, and waits for %s: use the leader, or retry in a moment"

func (p *standby) answer(w http.ResponseWriter, r *http.Request) {
	waits := *p.waits.Load()
	text := fmt.Sprintf(unready, waits)
	if strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Grpc-Status", strconv.Itoa(int(codes.Unavailable)))
		w.Header().Set("Grpc-Message", text)
		return
	}
	if r.URL.Path == "/metrics" {
		p.metrics.ServeHTTP(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path == "/healthz" {
		_, _ = io.WriteString(w, "{\"status\":\"ok\"}\n")
		return
	}
	w.Header().Set("Retry-After", "2")
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = fmt.Fprintf(w, "{\"code\":\"UNAVAILABLE\",\"message\":%q,\"waits_for\":%q}\n", text, waits)
}

// handoffListener is a listener that is used for a while: Close ends its use but does not close the listener.
type handoffListener struct {
	net.Listener
	once sync.Once
}

// Close implements net.Listener.
func (l *handoffListener) Close() error {
	l.stopAccepting()
	return nil
}

// stopAccepting makes Accept return.
func (l *handoffListener) stopAccepting() {
	l.once.Do(func() { _ = l.deadline(time.Unix(1, 0)) })
}

// reset restores the listener's original state.
func (l *handoffListener) reset() error { return l.deadline(time.Time{}) }

func (l *handoffListener) deadline(at time.Time) error {
	d, ok := l.Listener.(interface{ SetDeadline(t time.Time) error })
	if !ok {
		return nil
	}
	return d.SetDeadline(at)
}

// Accept implements net.Listener.
func (l *handoffListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return nil, net.ErrClosed
	}
	return conn, err
}
