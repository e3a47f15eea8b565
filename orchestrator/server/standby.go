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

// standby answers on the API's port while the server is not ready: as long as it restores its state or stands by. Probes
// learn that it lives and takes no commands, and clients are told to come again instead of waiting in vain.
type standby struct {
	http  *http.Server
	door  *lentListener
	ended chan error
	// metrics answers /metrics.
	metrics http.Handler
	// waits is what the server waits for, for people.
	waits atomic.Pointer[string]
}

// openStandby begins to answer on a listener, which stays the caller's.
func openStandby(l net.Listener, certs *tls.Config, metrics http.Handler) *standby {
	p := &standby{door: &lentListener{Listener: l}, ended: make(chan error, 1), metrics: metrics}
	p.waitFor("its parts")
	p.http = &http.Server{
		Handler: http.HandlerFunc(p.answer), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 20 * time.Second,
	}
	p.http.SetKeepAlivesEnabled(false) // the next request is for the API
	// gRPC speaks HTTP/2, which is not to be taken for a server of another kind.
	p.http.Protocols = new(http.Protocols)
	p.http.Protocols.SetHTTP1(true)
	p.http.Protocols.SetHTTP2(true)
	p.http.Protocols.SetUnencryptedHTTP2(true)
	go func() {
		inner := net.Listener(p.door)
		if certs != nil {
			inner = tls.NewListener(inner, certs)
		}
		p.ended <- p.http.Serve(inner)
	}()
	return p
}

// answerWithin is how long requests that have come are answered once the server is ready: each is at once, on a machine that has time.
const answerWithin = 500 * time.Millisecond

// leave answers what was asked, and leaves the listener open.
func (p *standby) leave() error {
	p.door.giveBack()
	err := <-p.ended
	ctx, cancel := context.WithTimeout(context.Background(), answerWithin)
	defer cancel()
	_ = p.http.Shutdown(ctx) // a connection without a request is not waited for
	closeErr := p.http.Close()
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
		err = nil
	}
	return errors.Join(err, closeErr, p.door.reset())
}

// waitFor says what the server waits for from now on.
func (p *standby) waitFor(what string) { p.waits.Store(&what) }

// unready is what clients are told; %s is what the server waits for.
const unready = "this orchestrator starts or stands by, and waits for %s: ask the one that leads, or again in a moment"

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

// lentListener is a listener for a while: Close ends its use and not the listener.
type lentListener struct {
	net.Listener
	once sync.Once
}

// Close implements net.Listener.
func (l *lentListener) Close() error {
	l.giveBack()
	return nil
}

// giveBack lets Accept return.
func (l *lentListener) giveBack() {
	l.once.Do(func() { _ = l.deadline(time.Unix(1, 0)) })
}

// reset makes the listener as it was.
func (l *lentListener) reset() error { return l.deadline(time.Time{}) }

func (l *lentListener) deadline(at time.Time) error {
	d, ok := l.Listener.(interface{ SetDeadline(t time.Time) error })
	if !ok {
		return nil
	}
	return d.SetDeadline(at)
}

// Accept implements net.Listener.
func (l *lentListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return nil, net.ErrClosed
	}
	return conn, err
}
