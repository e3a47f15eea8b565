package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outbid-dev/outbid/orchestrator/dashboard"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// pace is how fast the body of a request must come: so much of it at once, and the rest at a rate. Whoever is slower
// holds a connection, a goroutine and memory for nothing.
type pace struct {
	// grace is how long the first byte may take, and every pause together.
	grace time.Duration
	// rate is in bytes a second.
	rate int64
}

// bodyPace is what a bad link still manages: 16 KiB a second after 20 seconds.
func bodyPace() pace { return pace{grace: 20 * time.Second, rate: 16 << 10} }

// deadline is until when a body that began at some time, and of which so many bytes have come, may take for the next.
func (p pace) deadline(began time.Time, bytes int64) time.Time {
	return began.Add(p.grace + time.Duration(float64(bytes)/float64(p.rate)*float64(time.Second)))
}

// pacedBody is a request's body that must keep the pace. Its deadline is the connection's, or the stream's in HTTP/2.
type pacedBody struct {
	io.ReadCloser
	pace  pace
	conn  *http.ResponseController
	began time.Time
	bytes int64
	// slow says that the deadline passed, once it did.
	slow error
}

// Read implements io.Reader.
func (b *pacedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.bytes += int64(n)
	switch {
	case errors.Is(err, io.EOF):
		_ = b.conn.SetReadDeadline(time.Time{}) // what follows is the wait for the client's next request
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = fmt.Errorf("the body of the request came too slowly, %d bytes in %s; at least %d bytes a second are needed",
			b.bytes, time.Since(b.began).Round(time.Second), b.pace.rate)
		b.slow = err
	case err == nil:
		_ = b.conn.SetReadDeadline(b.pace.deadline(b.began, b.bytes))
	}
	return n, err
}

type pacedKey struct{}

// tooSlow is the error of a REST request whose body came too slowly, nil for others.
func tooSlow(r *http.Request) error {
	if b, ok := r.Context().Value(pacedKey{}).(*pacedBody); ok && b.slow != nil {
		return &runtime.HTTPStatusError{
			HTTPStatus: http.StatusRequestTimeout, Err: status.Error(codes.DeadlineExceeded, b.slow.Error()),
		}
	}
	return nil
}

// keepPace lets requests through whose bodies come fast enough, and those alone.
func keepPace(next http.Handler, p pace) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != nil && r.Body != http.NoBody {
			b := &pacedBody{ReadCloser: r.Body, pace: p, conn: http.NewResponseController(w), began: time.Now()}
			_ = b.conn.SetReadDeadline(p.deadline(b.began, 0))
			r = r.WithContext(context.WithValue(r.Context(), pacedKey{}, b))
			r.Body = b
		}
		next.ServeHTTP(w, r)
	})
}

// answersAll says which paths answer everybody: they tell nothing but that the server lives, or ask for a token of their
// own, as a worker does that joins.
func answersAll(path string) bool {
	return strings.HasPrefix(path, dashboard.Path) || path == "/" || path == "/healthz" || path == "/readyz" ||
		path == outbidv1.OutbidService_JoinWorker_FullMethodName || path == "/v1/workers:join"
}

// admit turns away who may not call before a byte of their body is read.
func (i *interceptor) admit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if i.tokens == nil || answersAll(r.URL.Path) {
			next.ServeHTTP(w, r)
			return
		}
		_, err := i.authenticate(r.Header.Values("Authorization"))
		if err == nil {
			next.ServeHTTP(w, r)
			return
		}
		i.calls.WithLabelValues(i.methodName(r), status.Code(err).String()).Inc()
		_ = http.NewResponseController(w).SetReadDeadline(time.Now())
		w.Header().Set("Connection", "close")
		if r.ProtoMajor == 2 && isGRPC(r.Header.Get("Content-Type")) {
			writeGRPCError(w, err)
			return
		}
		writeError(w, err)
	})
}

// methodName is the label of a call that was turned away; REST's is not known before it is routed.
func (i *interceptor) methodName(r *http.Request) string {
	if name, ok := strings.CutPrefix(r.URL.Path, "/outbid.v1.OutbidService/"); ok && requestFields(name) != nil {
		return name
	}
	return "REST"
}

// writeGRPCError answers a gRPC call with a status alone.
func writeGRPCError(w http.ResponseWriter, err error) {
	st := status.Convert(err)
	w.Header().Del("Connection") // HTTP/2 has none
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set("Grpc-Status", strconv.Itoa(int(st.Code())))
	w.Header().Set("Grpc-Message", st.Message())
	w.WriteHeader(http.StatusOK)
}
