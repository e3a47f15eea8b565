package spot_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/worker/spot"
)

// open returns the source of a name.
func open(t *testing.T, name string) spot.Source {
	t.Helper()
	s, err := spot.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// says fails the test unless the source has this notice, or an error that contains it.
func says(t *testing.T, s spot.Source, want string) {
	t.Helper()
	got, err := s.Look(t.Context())
	if err != nil {
		got = err.Error()
	}
	if want == "" && got != "" || !strings.Contains(got, want) {
		t.Errorf("it says %q, want %q", got, want)
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	for name, good := range map[string]bool{
		"ec2": true, "gce": true, "azure": true, "file:notice": true, "http://127.0.0.1:1/x": true, "https://h/x?y=z": true,
		"": false, "file:": false, "notice": false, "ftp://h/x": false, "http://": false, "EC2": false, "http://[": false,
	} {
		_, err := spot.Open(name)
		if (err == nil) != good {
			t.Errorf("%q: %v", name, err)
		}
		if err != nil && !strings.Contains(err.Error(), fmt.Sprintf("must be ec2, gce, azure, file:PATH or an http URL, got %q", name)) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "notice")
	s := open(t, "file:"+path)
	says(t, s, "")
	for text, want := range map[string]string{
		"": "spot notice", "maintenance at noon\nignored\n": "spot notice: maintenance at noon", "a\x1bb": "spot notice: a",
		strings.Repeat("x", 1<<20): "spot notice: xxx",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		says(t, s, want)
		if got, _ := s.Look(t.Context()); len(got) > limits.Detail || strings.Contains(got, "ignored") || strings.Contains(got, "\x1b") {
			t.Errorf("%d bytes: %.200q", len(got), got)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	says(t, s, "")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	says(t, s, "is not a regular file")
	says(t, open(t, "file:"+dir), "is not a regular file")
	says(t, open(t, "file:"+filepath.Join(path, "below")), "not a directory")
}

// serve runs a metadata service with the function's answers.
func serve(t *testing.T, path string, answer http.HandlerFunc) spot.Source {
	t.Helper()
	s := httptest.NewServer(answer)
	t.Cleanup(s.Close)
	return open(t, s.URL+path)
}

// EC2 answers 404 until there is a notice, and only requests that have a token of the newest session.
func TestEC2(t *testing.T) {
	t.Parallel()
	var noticed, expired atomic.Bool
	var tokens atomic.Int32
	s := serve(t, "/latest/meta-data/spot/instance-action", func(w http.ResponseWriter, r *http.Request) {
		token := fmt.Sprint("session-", tokens.Load())
		switch {
		case r.URL.Path == "/latest/api/token":
			if r.Method != http.MethodPut || r.Header.Get("X-aws-ec2-metadata-token-ttl-seconds") != "21600" {
				http.Error(w, "no", http.StatusBadRequest)
				return
			}
			expired.Store(false)
			_, _ = fmt.Fprint(w, "session-", tokens.Add(1))
		case tokens.Load() == 0 || expired.Load() || r.Header.Get("X-aws-ec2-metadata-token") != token:
			http.Error(w, "no token", http.StatusUnauthorized)
		case r.URL.Path != "/latest/meta-data/spot/instance-action" || !noticed.Load():
			http.NotFound(w, r)
		default:
			_, _ = fmt.Fprint(w, `{"action": "terminate", "time": "2026-11-28T08:22:00Z"}`)
		}
	})
	says(t, s, "")
	says(t, s, "")
	if tokens.Load() != 1 {
		t.Errorf("%d tokens for two looks", tokens.Load())
	}
	expired.Store(true)
	says(t, s, "")
	if tokens.Load() != 2 {
		t.Errorf("%d tokens after the first had expired", tokens.Load())
	}
	noticed.Store(true)
	says(t, s, "spot notice: terminate at 2026-11-28T08:22:00Z")
}

func TestGCE(t *testing.T) {
	t.Parallel()
	var preempted atomic.Bool
	s := serve(t, "/computeMetadata/v1/instance/preempted", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Metadata-Flavor") != "Google" {
			http.Error(w, "Missing Metadata-Flavor:Google header.", http.StatusForbidden)
			return
		}
		_, _ = fmt.Fprintln(w, strings.ToUpper(strconv.FormatBool(preempted.Load())))
	})
	says(t, s, "")
	preempted.Store(true)
	says(t, s, "spot notice: the machine is preempted")
}

// Azure announces events of all machines of a scale set to each of them, and others than their end.
func TestAzure(t *testing.T) {
	t.Parallel()
	var events atomic.Value
	var named atomic.Bool
	events.Store("")
	s := serve(t, "/metadata/scheduledevents?api-version=2020-07-01", func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Metadata") != "true":
			http.Error(w, "Required metadata header not specified", http.StatusBadRequest)
		case r.URL.Path == "/metadata/instance/compute/name" && named.Load():
			_, _ = fmt.Fprint(w, "vmss_3")
		case r.URL.Path == "/metadata/scheduledevents" && r.URL.Query().Get("api-version") != "":
			_, _ = fmt.Fprintf(w, `{"DocumentIncarnation": 1, "Events": [%s]}`, events.Load())
		default:
			http.NotFound(w, r)
		}
	})
	event := func(kind string, names string) string {
		return fmt.Sprintf(`{"EventId": "1", "EventType": %q, "ResourceType": "VirtualMachine", "Resources": [%s], "EventStatus": "Scheduled", `+
			`"NotBefore": "Sat, 28 Nov 2026 08:22:00 GMT"}`, kind, names)
	}
	says(t, s, "")
	events.Store(event("Preempt", `"vmss_4"`))
	says(t, s, "spot notice: Preempt at Sat, 28 Nov 2026 08:22:00 GMT") // its own name is not known
	named.Store(true)
	says(t, s, "")
	events.Store(event("Freeze", `"vmss_3"`) + "," + event("Terminate", `"vmss_4"`))
	says(t, s, "")
	events.Store(event("Freeze", `"vmss_3"`) + "," + event("Terminate", `"vmss_4", "VMSS_3"`))
	says(t, s, "spot notice: Terminate at Sat, 28 Nov 2026 08:22:00 GMT")
	events.Store(event("Redeploy", ""))
	says(t, s, "spot notice: Redeploy")
}

func TestBrokenServices(t *testing.T) {
	t.Parallel()
	text := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, body) }
	}
	code := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/y")
			w.WriteHeader(status)
		}
	}
	for name, tc := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"an error":   {code(http.StatusInternalServerError), "answers 500 Internal Server Error"},
		"a redirect": {code(http.StatusFound), "answers 302 Found"},
		"no token":   {code(http.StatusUnauthorized), "wants a token, and /latest/api/token gives none (401 Unauthorized)"},
		"a page":     {text("<html>" + strings.Repeat("x", 1000)), `answers "<html>xxx`},
		"other JSON": {text(`{"id": 1}`), "want TRUE or FALSE, or JSON with action (EC2) or Events (Azure)"},
		"bad JSON":   {text(`{"action": 1}`), "want TRUE or FALSE"},
		"no end":     {text(strings.Repeat(" ", 1<<20)), "answers more than 65536 bytes"},
		"no answer":  {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			says(t, serve(t, "/x", tc.answer), tc.want)
		})
	}
	says(t, open(t, "http://127.0.0.1:1/x"), "spot notice: http://127.0.0.1:1/x dial tcp")
}

// A service that does not answer, or not to its end, costs a bounded time.
func TestSilentServices(t *testing.T) {
	t.Parallel()
	for name, begins := range map[string]bool{"no answer": false, "half an answer": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, "/x", func(w http.ResponseWriter, r *http.Request) {
				if begins {
					_, _ = fmt.Fprint(w, `{"action":`)
					w.(http.Flusher).Flush() //nolint:forcetypeassert // a server's writer
				}
				<-r.Context().Done()
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if got, err := s.Look(ctx); err == nil || ctx.Err() != nil {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}
