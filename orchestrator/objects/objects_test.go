package objects_test

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/outbid-dev/outbid/orchestrator/objects"
	"github.com/outbid-dev/outbid/orchestrator/objects/objectstest"
)

const (
	user     = "outbid-test"
	password = "outbid-test-password"
)

// TestMain sets credentials and a trusted certificate for all tests, which run in parallel.
func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "objects-test")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	server := httptest.NewTLSServer(nil) // all such servers have the same certificate
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	server.Close()
	own, err := ownAuthority(dir)
	if err != nil {
		return 1, err
	}
	path := filepath.Join(dir, "cert.pem")
	if err := os.WriteFile(path, append(cert, own...), 0o600); err != nil {
		return 1, err
	}
	certificateDir = dir
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": user, "AWS_SECRET_ACCESS_KEY": password, "SSL_CERT_FILE": path,
	} {
		if err := os.Setenv(name, value); err != nil {
			return 1, err
		}
	}
	return m.Run(), nil
}

func open(t testing.TB, url string) objects.Store {
	t.Helper()
	s, err := objects.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestDir(t *testing.T) {
	t.Parallel()
	objectstest.Run(t, func(t *testing.T) objects.Store { return open(t, t.TempDir()) })
}

// TestDirThatDiscards is TestDir on a disk that frees files of any size in small steps.
func TestDirThatDiscards(t *testing.T) {
	t.Parallel()
	objectstest.Run(t, func(t *testing.T) objects.Store {
		s, err := objects.OpenDir(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		s.FreeSlowlyForTest()
		return s
	})
}

func TestS3InMemory(t *testing.T) {
	if os.Getenv(objectstest.VersityEnv) != "" {
		t.Skip("TestVersity tests the same on a real server")
	}
	t.Parallel()
	// Use TLS, because over plain HTTP the fake stores the chunk signatures too.
	server := httptest.NewTLSServer(gofakes3.New(s3mem.New()).Server())
	t.Cleanup(server.Close)
	urls := objectstest.URLs(server.URL)
	objectstest.Run(t, func(t *testing.T) objects.Store { return open(t, urls()) })
}

func TestMinio(t *testing.T) {
	t.Parallel()
	server := objectstest.StartMinio(t)
	urls := objectstest.URLs(server.Endpoint)
	objectstest.Run(t, func(t *testing.T) objects.Store { return open(t, urls()) })
}

func TestVersity(t *testing.T) {
	t.Parallel()
	server := objectstest.StartVersity(t)
	urls := objectstest.URLs(server.Endpoint)
	objectstest.Run(t, func(t *testing.T) objects.Store { return open(t, urls()) })
}

func TestVersityDown(t *testing.T) {
	t.Parallel()
	server := objectstest.StartVersity(t)
	s := open(t, objectstest.URLs(server.Endpoint)())
	if err := s.Put(t.Context(), "a", strings.NewReader("kept"), 4); err != nil {
		t.Fatal(err)
	}
	server.Stop(t)
	_, statErr := s.Stat(t.Context(), "a")
	for what, err := range map[string]error{
		"put": s.Put(t.Context(), "b", strings.NewReader("x"), 1), "stat": statErr, "check": s.Check(t.Context()),
		"list": s.List(t.Context(), "", func(objects.Info) bool { return true }), "delete": s.Delete(t.Context(), "a"),
	} {
		if !errors.Is(err, objects.ErrUnavailable) {
			t.Errorf("%s while the server is down: %v", what, err)
		}
	}
	server.Start(t)
	r, err := s.Get(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); err != nil || string(got) != "kept" {
		t.Errorf("got %q, %v", got, err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

func TestOpenErrors(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]string{
		"":                                "no path or URL given",
		file:                              file,
		"file://host/path":                `host "host"`,
		"file://":                         "absolute path",
		"http://127.0.0.1:9000/bucket":    `scheme "http"`,
		"s3://":                           `bucket ""`,
		"s3://Bucket":                     `bucket "Bucket"`,
		"s3://ab":                         `bucket "ab"`,
		"s3://bucket/a/../b":              "prefix",
		"s3://bucket?endpont=http://x":    `parameter "endpont"`,
		"s3://bucket?endpoint=127.0.0.1":  `endpoint "127.0.0.1"`,
		"s3://bucket?endpoint=ftp://x":    `endpoint "ftp://x"`,
		"s3://bucket?endpoint=http://x/y": `endpoint "http://x/y"`,
		"s3://k:geheim@bucket":            "AWS_ACCESS_KEY_ID",
		"s3://bucket\x7f?k=geheim":        "not a URL",
	} {
		_, err := objects.Open(t.Context(), url)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%q: %v; want %q", url, err, want)
		}
	}
}

// answering starts a server that gives every request the same answer.
func answering(t *testing.T, status int, code string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(status)
		fmt.Fprintf(w, `<?xml version="1.0"?><Error><Code>%s</Code><Message>said the test</Message></Error>`, code)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestAnswersOfTheServer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status int
		code   string
		want   error
		text   string
	}{
		{507, "XMinioStorageFull", objects.ErrFull, ""},
		{507, "Other", objects.ErrFull, ""},
		{503, "SlowDown", objects.ErrUnavailable, ""},
		{500, "InternalError", objects.ErrUnavailable, ""},
		{503, "XMinioServerNotInitialized", objects.ErrUnavailable, ""},
		{403, "InvalidAccessKeyId", nil, "AWS_ACCESS_KEY_ID"},
		{403, "SignatureDoesNotMatch", nil, "AWS_SECRET_ACCESS_KEY"},
		{403, "AccessDenied", nil, "policy of bucket"},
		{404, "NoSuchBucket", nil, `no bucket "bucket"`},
	} {
		t.Run(fmt.Sprint(c.status, " ", c.code), func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			s := objects.NewS3ForTest(t, answering(t, c.status, c.code))
			err := s.Put(ctx, "key", strings.NewReader("x"), 1)
			if err == nil || !errors.Is(err, c.want) && c.want != nil || !strings.Contains(err.Error(), c.text) {
				t.Errorf("put: %v", err)
			}
		})
	}
}

// TestDeniedBesideARemoval checks that a denial by MinIO during the removal of a neighbouring object counts as
// temporary after an earlier success.
func TestDeniedBesideARemoval(t *testing.T) {
	t.Parallel()
	var puts atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		if r.Method == http.MethodPut && puts.Add(1) == 2 {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `<Error><Code>AccessDenied</Code><Message>Access Denied.</Message></Error>`)
		}
	}))
	t.Cleanup(server.Close)
	s := objects.NewS3ForTest(t, server.URL)
	for i, want := range []error{nil, objects.ErrUnavailable, nil} {
		if err := s.Put(t.Context(), "key", strings.NewReader("x"), 1); !errors.Is(err, want) {
			t.Errorf("put %d: %v, want %v", i+1, err, want)
		}
	}
}

// TestNobodyAnswers checks that a server that accepts connections but never answers is unavailable, like one that
// rejects them.
func TestNobodyAnswers(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts connections
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	if _, err := objects.Open(t.Context(), "s3://bucket/prefix?endpoint=http://"+silent.Addr().String()); err != nil {
		t.Errorf("%v: a store that is away may come back", err)
	}
}

func TestNobodyListens(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	s, err := objects.Open(t.Context(), "s3://bucket/prefix?endpoint="+server.URL)
	if err != nil {
		t.Fatalf("%v: a store that is away may come back", err)
	}
	if err := s.Check(t.Context()); !errors.Is(err, objects.ErrUnavailable) || !strings.Contains(err.Error(), server.URL) {
		t.Errorf("%v: want that the store at %s is unavailable", err, server.URL)
	}
}
