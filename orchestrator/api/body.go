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

	"github.com/outbid-dev/outbid/orchestrator/audit"
	"github.com/outbid-dev/outbid/orchestrator/dashboard"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// pace is the minimum speed of a request's body. A slower client would hold a connection, a goroutine and memory.
type pace struct {
	// grace is the time allowed for the first byte, plus all pauses.
	grace time.Duration
	// rate is in bytes per second.
	rate int64
}

// bodyPace returns a pace that even a bad link achieves: 16 KiB per second after 20 seconds.
func bodyPace() pace { return pace{grace: 20 * time.Second, rate: 16 << 10} }

// deadline returns when the next byte is due of a body that began at the given time, after the given number of bytes.
func (p pace) deadline(began time.Time, bytes int64) time.Time {
	return began.Add(p.grace + time.Duration(float64(bytes)/float64(p.rate)*float64(time.Second)))
}

// pacedBody is a request's body that must keep the pace. It sets the read deadline of the connection, or of the stream
// in HTTP/2.
type pacedBody struct {
	io.ReadCloser
	pace  pace
	conn  *http.ResponseController
	began time.Time
	bytes int64
	// slow is the error of a missed deadline, or nil.
	slow error
}

// Read implements io.Reader.
func (b *pacedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.bytes += int64(n)
	switch {
	case errors.Is(err, io.EOF):
		_ = b.conn.SetReadDeadline(time.Time{}) // the next read waits for the client's next request
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

// tooSlow returns the error of a REST request whose body missed its deadline, or nil for other requests.
func tooSlow(r *http.Request) error {
	if b, ok := r.Context().Value(pacedKey{}).(*pacedBody); ok && b.slow != nil {
		return &runtime.HTTPStatusError{
			HTTPStatus: http.StatusRequestTimeout, Err: status.Error(codes.DeadlineExceeded, b.slow.Error()),
		}
	}
	return nil
}

// keepPace wraps next so that reading a request's body fails if it arrives slower than the pace.
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

// isPublicPath reports whether a path needs no API token: it shows only that the server is alive or how to sign
// in, has the files of the dashboard, or checks another token, like the join of a worker.
func isPublicPath(path string) bool {
	return strings.HasPrefix(path, dashboard.Path) || path == "/" || path == "/healthz" || path == "/readyz" || path == SignInPath ||
		path == outbidv1.OutbidService_JoinWorker_FullMethodName || path == "/v1/workers:join"
}

// admit rejects unauthenticated callers before their bodies are read.
func (i *interceptor) admit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if i.tokens == nil || isPublicPath(r.URL.Path) {
			next.ServeHTTP(w, r)
			return
		}
		_, err := i.authenticate(r.Context(), r.Header.Values("Authorization"))
		if err == nil {
			next.ServeHTTP(w, r)
			return
		}
		i.recordHTTP(r, Principal{}, strings.ToLower(r.Method), "requests", audit.DeniedUnauthenticated, err)
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

// methodName returns the metric label of a rejected call. A REST call's method is not known before routing.
func (i *interceptor) methodName(r *http.Request) string {
	if name, ok := strings.CutPrefix(r.URL.Path, "/outbid.v1.OutbidService/"); ok && requestFields(name) != nil {
		return name
	}
	return "REST"
}

// writeGRPCError answers a gRPC call with only a status.
func writeGRPCError(w http.ResponseWriter, err error) {
	st := status.Convert(err)
	w.Header().Del("Connection") // HTTP/2 does not have this header
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set("Grpc-Status", strconv.Itoa(int(st.Code())))
	w.Header().Set("Grpc-Message", percentEncode(st.Message()))
	w.WriteHeader(http.StatusOK)
}

// percentEncode encodes a message for the header Grpc-Message, which may have printable ASCII only.
func percentEncode(text string) string {
	var b strings.Builder
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
