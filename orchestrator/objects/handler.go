package objects

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
)

// HandlerPath is the path for mounting a Handler.
const HandlerPath = "/objects/"

// Handler serves objects over HTTP for a store that cannot sign, such as a directory. Each request must have this
// Handler's signature for its method, key and size. Signatures expire, and end with the process.
type Handler struct {
	store Store
	base  string
	key   []byte
	now   func() time.Time
}

// NewHandler returns a Handler that is reached at base, such as https://host:port.
func NewHandler(store Store, base string) *Handler {
	key := make([]byte, sha256.Size)
	_, _ = rand.Read(key) // it never fails
	return &Handler{store: store, base: base, key: key, now: time.Now}
}

// SignGet implements Signer.
func (h *Handler) SignGet(_ context.Context, key string) (Signed, error) {
	if err := CheckKey(key); err != nil {
		return Signed{}, err
	}
	return Signed{URL: h.url(http.MethodGet, key, 0)}, nil
}

// SignPut implements Signer.
func (h *Handler) SignPut(_ context.Context, key string, size int64) (Signed, error) {
	if err := checkPut(key, size); err != nil {
		return Signed{}, err
	}
	return Signed{URL: h.url(http.MethodPut, key, size)}, nil
}

func (h *Handler) url(method, key string, size int64) string {
	expires := h.now().Add(signedTime(size)).Unix()
	query := url.Values{
		"bytes": {strconv.FormatInt(size, 10)}, "expires": {strconv.FormatInt(expires, 10)},
		"signature": {hex.EncodeToString(h.sign(method, key, size, expires))},
	}
	return h.base + HandlerPath + key + "?" + query.Encode()
}

// FromHandler reports whether a signed URL belongs to a Handler, and not to a store that signs itself.
func FromHandler(u *url.URL) bool {
	return strings.HasPrefix(u.Path, HandlerPath) && u.Query().Has("signature")
}

// sign returns the signature of a request. Keys do not contain newlines.
func (h *Handler) sign(method, key string, size, expires int64) []byte {
	mac := hmac.New(sha256.New, h.key)
	fmt.Fprintf(mac, "%s\n%s\n%d\n%d", method, key, size, expires)
	return mac.Sum(nil)
}

// check returns what is wrong with a request's signature, or "".
func (h *Handler) check(r *http.Request, key string) (size int64, problem string) {
	query := r.URL.Query()
	size, sizeErr := strconv.ParseInt(query.Get("bytes"), 10, 64)
	expires, timeErr := strconv.ParseInt(query.Get("expires"), 10, 64)
	given, hexErr := hex.DecodeString(query.Get("signature"))
	switch {
	case errors.Join(sizeErr, timeErr, hexErr) != nil:
		return 0, "the request is not signed"
	case !hmac.Equal(given, h.sign(r.Method, key, size, expires)):
		return 0, "the signature does not match this request, or is from another server"
	case h.now().Unix() >= expires:
		return 0, "the signature has expired"
	case r.Method == http.MethodPut && r.ContentLength != size:
		return 0, fmt.Sprintf("signed for %d bytes, not %d", size, r.ContentLength)
	}
	return size, ""
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := strings.TrimPrefix(r.URL.Path, HandlerPath)
	size, problem := h.check(r, key)
	if problem != "" {
		writeProblem(w, http.StatusForbidden, "AccessDenied", problem)
		return
	}
	alive := &progress{rc: http.NewResponseController(w)}
	defer alive.done()
	var err error
	switch r.Method {
	case http.MethodGet:
		err = h.get(w, r, key, alive)
	case http.MethodPut:
		err = h.store.Put(r.Context(), key, &movingReader{r: r.Body, alive: alive}, size)
	}
	var short *shortError
	switch {
	case err == nil:
	case errors.Is(err, ErrNotFound):
		writeProblem(w, http.StatusNotFound, "NoSuchKey", err.Error())
	case errors.Is(err, ErrFull):
		writeProblem(w, http.StatusInsufficientStorage, "InsufficientStorage", err.Error())
	case errors.As(err, &short):
		writeProblem(w, http.StatusBadRequest, "IncompleteBody", err.Error())
	default:
		writeProblem(w, http.StatusServiceUnavailable, "ServiceUnavailable", err.Error())
	}
}

func (h *Handler) get(w http.ResponseWriter, r *http.Request, key string, alive *progress) error {
	info, err := h.store.Stat(r.Context(), key)
	if err != nil {
		return err
	}
	from, n, status := int64(0), info.Size, http.StatusOK
	object, err := io.ReadCloser(nil), error(nil)
	if first, last, ok := wantedRange(r.Header.Get("Range")); !ok {
		object, err = h.store.Get(r.Context(), key)
	} else if from, n, status = first, min(last+1, info.Size)-first, http.StatusPartialContent; n > 0 {
		object, err = h.store.GetRange(r.Context(), key, from, n)
	} else {
		writeProblem(w, http.StatusRequestedRangeNotSatisfiable, "InvalidRange", fmt.Sprintf("%s has %d bytes", key, info.Size))
		return nil
	}
	if err != nil {
		return err
	}
	defer object.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
	if status == http.StatusPartialContent {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, from+n-1, info.Size))
	}
	w.WriteHeader(status)
	if _, err := io.Copy(movingWriter{w: w, alive: alive}, object); err != nil {
		panic(http.ErrAbortHandler) //nolint:forbidigo // the reader notices by the length that it is incomplete
	}
	return nil
}

// wantedRange parses a Range header with one range that has a first and a last byte; the server may ignore others.
func wantedRange(header string) (first, last int64, ok bool) {
	text, isBytes := strings.CutPrefix(header, "bytes=")
	from, to, _ := strings.Cut(text, "-")
	first, firstErr := strconv.ParseInt(from, 10, 64)
	last, lastErr := strconv.ParseInt(to, 10, 64)
	return first, last, isBytes && firstErr == nil && lastErr == nil && 0 <= first && first <= last && last < math.MaxInt64
}

// writeProblem answers like S3.
func writeProblem(w http.ResponseWriter, status int, code, text string) {
	data, err := xml.Marshal(minio.ErrorResponse{Code: code, Message: text})
	if err != nil {
		data = nil
	}
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_, _ = w.Write(data) // the client may be gone
}

// stalledAfter aborts a transfer that makes no progress for this long. The total time is not limited.
const stalledAfter = time.Minute

// progress extends a transfer's deadline whenever it makes progress.
type progress struct{ rc *http.ResponseController }

func (p *progress) moved() {
	at := time.Now().Add(stalledAfter)
	// Test recorders do not support deadlines.
	_, _ = p.rc.SetReadDeadline(at), p.rc.SetWriteDeadline(at)
}

// done removes the deadlines before the connection's next request.
func (p *progress) done() {
	_, _ = p.rc.SetReadDeadline(time.Time{}), p.rc.SetWriteDeadline(time.Time{})
}

type movingReader struct {
	r     io.Reader
	alive *progress
}

// Read implements io.Reader.
func (m *movingReader) Read(p []byte) (int, error) {
	m.alive.moved()
	return m.r.Read(p)
}

type movingWriter struct {
	w     io.Writer
	alive *progress
}

// Write implements io.Writer.
func (m movingWriter) Write(p []byte) (int, error) {
	m.alive.moved()
	return m.w.Write(p)
}
