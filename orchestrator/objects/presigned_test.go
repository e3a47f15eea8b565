package objects_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/objects"
	"github.com/outbid-dev/outbid/orchestrator/objects/objectstest"
)

// signing requests a signature for every object, like the server for workers.
func signing(signer objects.Signer) objects.SignFunc {
	return func(ctx context.Context, key string, write bool, size int64) (objects.Signed, error) {
		if write {
			return signer.SignPut(ctx, key, size)
		}
		return signer.SignGet(ctx, key)
	}
}

func presigned(sign objects.SignFunc) *objects.Presigned {
	return &objects.Presigned{Sign: sign, Client: &http.Client{}, Name: func() string { return "a store" }}
}

// through is a store that is read and written only through signatures.
type through struct {
	objects.Store
	access objects.Access
}

func (s through) Put(ctx context.Context, key string, r io.Reader, size int64) error {
	return s.access.Put(ctx, key, r, size)
}

func (s through) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	return s.access.Get(ctx, key)
}

func (s through) GetRange(ctx context.Context, key string, from, n int64) (io.ReadCloser, error) {
	return s.access.GetRange(ctx, key, from, n)
}

// handled is a directory behind a Handler.
func handled(t *testing.T) (objects.Store, *objects.Handler) {
	t.Helper()
	dir := open(t, t.TempDir())
	var handler atomic.Pointer[objects.Handler]
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler.Load().ServeHTTP(w, r) }))
	t.Cleanup(server.Close)
	h := objects.NewHandler(dir, server.URL)
	handler.Store(h)
	return dir, h
}

// bucket is a bucket of a real server.
func bucket(t *testing.T, v *objectstest.Versity, name string) (objects.Store, objects.Signer) {
	t.Helper()
	s := open(t, "s3://"+name+"/some/prefix?region=us-east-1&endpoint="+v.Endpoint)
	signer, ok := s.(objects.Signer)
	if !ok {
		t.Fatalf("%T signs nothing", s)
	}
	return s, signer
}

func TestPresignedThroughHandler(t *testing.T) {
	t.Parallel()
	objectstest.Run(t, func(t *testing.T) objects.Store {
		dir, h := handled(t)
		return through{dir, presigned(signing(h))}
	})
}

func TestPresignedAgainstMinio(t *testing.T) {
	t.Parallel()
	urls := objectstest.URLs(objectstest.StartMinio(t).Endpoint)
	objectstest.Run(t, func(t *testing.T) objects.Store {
		return signedThrough(t, urls())
	})
}

func TestPresignedAgainstVersity(t *testing.T) {
	t.Parallel()
	urls := objectstest.URLs(objectstest.StartVersity(t).Endpoint)
	objectstest.Run(t, func(t *testing.T) objects.Store {
		return signedThrough(t, urls())
	})
}

// signedThrough is a store whose objects are accessed by presigned URLs.
func signedThrough(t *testing.T, url string) through {
	t.Helper()
	s := open(t, url)
	signer, ok := s.(objects.Signer)
	if !ok {
		t.Fatalf("%T signs nothing", s)
	}
	return through{s, presigned(signing(signer))}
}

// status returns a server's answer to a forged request.
func status(t *testing.T, method, target, content string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, target, strings.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

// mustBindOne fails if the right to one object permits anything else.
func mustBindOne(t *testing.T, store objects.Store, signer objects.Signer) {
	t.Helper()
	ctx := t.Context()
	mine, other := "checkpoints/a-1/0/000000000003-1.ckpt", "checkpoints/b-1/0/000000000003-2.ckpt"
	for key, text := range map[string]string{mine: "mine", other: "not mine"} {
		if err := store.Put(ctx, key, strings.NewReader(text), int64(len(text))); err != nil {
			t.Fatal(err)
		}
	}
	get, err := signer.SignGet(ctx, mine)
	if err != nil {
		t.Fatal(err)
	}
	put, err := signer.SignPut(ctx, mine, 4)
	if err != nil {
		t.Fatal(err)
	}
	unsigned, _, _ := strings.Cut(get.URL, "?")
	to := func(signed string) string { return strings.Replace(signed, mine, other, 1) }
	for _, c := range []struct{ name, method, url, content string }{
		{"read another key", http.MethodGet, to(get.URL), ""},
		{"write another key", http.MethodPut, to(put.URL), "evil"},
		{"write with the right to read", http.MethodPut, get.URL, "evil"},
		{"read with the right to write", http.MethodGet, put.URL, ""},
		{"delete with the right to write", http.MethodDelete, put.URL, ""},
		{"delete with the right to read", http.MethodDelete, get.URL, ""},
		{"write more than was signed for", http.MethodPut, put.URL, "evil and long"},
		{"read without a signature", http.MethodGet, unsigned, ""},
		{"write without a signature", http.MethodPut, unsigned, "evil"},
		{"go up from the key", http.MethodGet, strings.Replace(get.URL, mine, mine+"/../../../../b-1/0/000000000003-2.ckpt", 1), ""},
	} {
		if got := status(t, c.method, c.url, c.content); got != http.StatusForbidden && got != http.StatusBadRequest {
			t.Errorf("%s: status %d, want that it is refused", c.name, got)
		}
	}
	for key, want := range map[string]string{mine: "mine", other: "not mine"} {
		if r, err := store.Get(ctx, key); err != nil {
			t.Errorf("%s: %v", key, err)
		} else if got, err := io.ReadAll(r); err != nil || string(got) != want {
			t.Errorf("%s holds %q, %v", key, got, err)
		} else {
			r.Close()
		}
	}
	if status(t, http.MethodGet, get.URL, "") != http.StatusOK || status(t, http.MethodPut, put.URL, "anew") != http.StatusOK {
		t.Error("the right itself is not good for anything")
	}
}

func TestASignatureIsForOneObjectAndOneMethod(t *testing.T) {
	t.Parallel()
	t.Run("directory", func(t *testing.T) {
		t.Parallel()
		dir, h := handled(t)
		mustBindOne(t, dir, h)
	})
	t.Run("S3", func(t *testing.T) {
		t.Parallel()
		store, signer := bucket(t, objectstest.StartVersity(t), "bound")
		mustBindOne(t, store, signer)
	})
}

// TestPartsAreBoundToo checks that the right to a part is valid only for that part of that upload, and that an aborted
// upload leaves nothing.
func TestPartsAreBoundToo(t *testing.T) {
	t.Parallel()
	store, signer := bucket(t, objectstest.StartVersity(t), "parts")
	signed, err := signer.SignPut(t.Context(), "a/large", 40<<20)
	if err != nil || len(signed.Parts) != 3 || signed.URL != "" {
		t.Fatalf("%+v, %v", signed, err)
	}
	u, err := url.Parse(signed.Parts[0])
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Set("partNumber", "3")
	u.RawQuery = query.Encode()
	for name, target := range map[string]string{"another part": u.String(), "another key": strings.Replace(signed.Parts[0], "a/large", "a/other", 1)} {
		if got := status(t, http.MethodPut, target, "x"); got != http.StatusForbidden {
			t.Errorf("%s: %d", name, got)
		}
	}
	broken := errors.New("the disk broke")
	file := io.MultiReader(bytes.NewReader(make([]byte, 20<<20)), &failing{broken})
	if err := presigned(signing(signer)).Put(t.Context(), "a/large", file, 40<<20); !errors.Is(err, broken) {
		t.Errorf("an upload that breaks: %v", err)
	}
	if _, err := store.Stat(t.Context(), "a/large"); !errors.Is(err, objects.ErrNotFound) {
		t.Errorf("half an object is there: %v", err)
	}
	if status(t, http.MethodDelete, signed.Abort, "") != http.StatusNoContent {
		t.Error("an upload could not be given up")
	}
	if tidier, ok := store.(objects.Tidier); !ok {
		t.Fatalf("%T tidies nothing", store)
	} else if left, err := tidier.Tidy(t.Context(), time.Now().Add(time.Minute)); err != nil || left > 0 {
		t.Errorf("parts of %d uploads are left, %v", left, err)
	}
}

type failing struct{ err error }

func (f *failing) Read([]byte) (int, error) { return 0, f.err }

// TestASignatureRunsOut checks that an expired signature is rejected as temporary, and that a retry uses a new one.
func TestASignatureRunsOut(t *testing.T) {
	t.Parallel()
	dir, h := handled(t)
	var later atomic.Int64
	h.SetClockForTest(func() time.Time { return time.Now().Add(time.Duration(later.Load())) })
	mustRunOut(t, dir, h, func() { later.Store(int64(24 * time.Hour)) })
}

func TestASignatureOfS3RunsOut(t *testing.T) {
	t.Parallel()
	store, signer := bucket(t, objectstest.StartVersity(t), "expiry")
	objects.SetLifeForTest(store, time.Second)
	mustRunOut(t, store, signer, func() {
		signed, err := signer.SignGet(t.Context(), "a/b")
		if err != nil {
			t.Fatal(err)
		}
		deadline := time.Now().Add(time.Minute)
		for status(t, http.MethodGet, signed.URL, "") == http.StatusOK {
			if time.Now().After(deadline) {
				t.Fatal("a signature for a second held for a minute")
			}
		}
		objects.SetLifeForTest(store, time.Hour)
	})
}

func mustRunOut(t *testing.T, store objects.Store, signer objects.Signer, wait func()) {
	t.Helper()
	if err := store.Put(t.Context(), "a/b", strings.NewReader("text"), 4); err != nil {
		t.Fatal(err)
	}
	stale := map[bool]objects.Signed{}
	var err error
	if stale[false], err = signer.SignGet(t.Context(), "a/b"); err != nil {
		t.Fatal(err)
	}
	if stale[true], err = signer.SignPut(t.Context(), "a/b", 4); err != nil {
		t.Fatal(err)
	}
	wait()
	first := true
	access := presigned(func(ctx context.Context, key string, write bool, size int64) (objects.Signed, error) {
		if first {
			return stale[write], nil
		}
		return signing(signer)(ctx, key, write, size)
	})
	path := filepath.Join(t.TempDir(), "file")
	for name, try := range map[string]func() error{
		"get": func() error { _, _, err := objects.GetFile(t.Context(), access, "a/b", path); return err },
		"put": func() error { return access.Put(t.Context(), "a/b", strings.NewReader("text"), 4) },
	} {
		first = true
		if err := try(); !errors.Is(err, objects.ErrUnavailable) || strings.Contains(fmt.Sprint(err), "ignature=") {
			t.Errorf("%s with a signature that ran out: %v", name, err)
		}
		first = false
		if err := try(); err != nil {
			t.Errorf("%s with a new one: %v", name, err)
		}
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "text" {
		t.Errorf("read %q, %v", data, err)
	}
}

func TestPresignedAnswers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status int
		code   string
		want   error
	}{
		{507, "XMinioStorageFull", objects.ErrFull},
		{503, "SlowDown", objects.ErrUnavailable},
		{500, "InternalError", objects.ErrUnavailable},
		{403, "RequestTimeTooSkewed", objects.ErrUnavailable},
		{404, "NoSuchKey", objects.ErrNotFound},
	} {
		base := answering(t, c.status, c.code)
		access := presigned(func(context.Context, string, bool, int64) (objects.Signed, error) {
			return objects.Signed{URL: base + "/key?X-Amz-Signature=geheim"}, nil
		})
		if err := access.Put(t.Context(), "key", strings.NewReader("x"), 1); !errors.Is(err, c.want) || strings.Contains(err.Error(), "geheim") {
			t.Errorf("put, %d %s: %v", c.status, c.code, err)
		}
	}
	access := presigned(func(context.Context, string, bool, int64) (objects.Signed, error) {
		return objects.Signed{URL: "http://127.0.0.1:1/key?X-Amz-Signature=geheim"}, nil
	})
	if _, err := access.Get(t.Context(), "key"); !errors.Is(err, objects.ErrUnavailable) || strings.Contains(err.Error(), "geheim") {
		t.Errorf("nobody listens: %v", err)
	}
	refused := presigned(func(context.Context, string, bool, int64) (objects.Signed, error) {
		return objects.Signed{}, objects.ErrRefused
	})
	if err := refused.Put(t.Context(), "key", strings.NewReader("x"), 1); !errors.Is(err, objects.ErrRefused) {
		t.Errorf("refused: %v", err)
	}
}

// TestCopiesAreNotTheStoresFiles checks that changes to a file read from a directory store, or to a file handle that
// was stored there, do not change the stored object.
func TestCopiesAreNotTheStoresFiles(t *testing.T) {
	t.Parallel()
	dir := open(t, t.TempDir())
	access := objects.Copies(dir)
	path := filepath.Join(t.TempDir(), "file")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("text"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := objects.PutFile(t.Context(), access, "a/b", path); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("evil"), 0); err != nil {
		t.Fatal(err)
	}
	if _, _, err := objects.GetFile(t.Context(), access, "a/b", path); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(path, 0o600), os.WriteFile(path, []byte("evil"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if r, err := dir.Get(t.Context(), "a/b"); err != nil {
		t.Error(err)
	} else if data, err := io.ReadAll(r); err != nil || string(data) != "text" {
		t.Errorf("the store holds %q, %v", data, err)
	} else {
		r.Close()
	}
}

// lingering is a transport that fails the first request of every path while its body is still read, as net/http may.
type lingering struct {
	store   http.RoundTripper
	reading sync.WaitGroup
	mu      sync.Mutex
	failed  map[string]bool
	wrong   atomic.Int32
}

func (l *lingering) RoundTrip(req *http.Request) (*http.Response, error) {
	l.mu.Lock()
	again := l.failed[req.URL.String()] || req.Method != http.MethodPut
	l.failed[req.URL.String()] = true
	l.mu.Unlock()
	if again {
		return l.store.RoundTrip(req)
	}
	l.reading.Go(func() {
		data, err := io.ReadAll(req.Body)
		if err != nil || int64(len(data)) != req.ContentLength || bytes.Count(data, data[:1]) != len(data) {
			l.wrong.Add(1)
		}
		_ = req.Body.Close()
	})
	return nil, &net.OpError{Op: "write", Err: syscall.ECONNRESET}
}

// A part is neither sent again nor overwritten by the next one while a failed request still reads it.
func TestAPartIsKeptWhileARequestReadsIt(t *testing.T) {
	t.Parallel()
	const parts, size = 12, 1 << 16
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("ETag", "tag")
	}))
	t.Cleanup(server.Close)
	signed := objects.Signed{PartBytes: size, Complete: server.URL + "/complete", Abort: server.URL + "/abort"}
	var content bytes.Buffer
	for i := range parts {
		signed.Parts = append(signed.Parts, fmt.Sprintf("%s/%d", server.URL, i))
		content.Write(bytes.Repeat([]byte{byte(i)}, size))
	}
	network := &lingering{store: http.DefaultTransport, failed: map[string]bool{}}
	store := presigned(func(context.Context, string, bool, int64) (objects.Signed, error) { return signed, nil })
	store.Client.Transport = network
	err := store.Put(t.Context(), "checkpoints/s-1/0/a", io.MultiReader(&content), parts*size)
	network.reading.Wait()
	if err != nil || network.wrong.Load() > 0 {
		t.Errorf("%d of %d parts changed while they were sent: %v", network.wrong.Load(), parts, err)
	}
}
