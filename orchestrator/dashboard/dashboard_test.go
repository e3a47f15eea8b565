package dashboard

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/dashboard/tsgen"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func get(t *testing.T, h http.Handler, path, accept string) *http.Response {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	resp := w.Result()
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func body(t *testing.T, r *http.Response) string {
	t.Helper()
	data, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// Every page finds its script, however deep its path is, and nothing outside of the embedded files is served.
func TestPagesFindTheirFiles(t *testing.T) {
	t.Parallel()
	h := Handler()
	for path, up := range map[string]string{
		"/ui/": "./assets/", "/ui/sweeps": "./assets/", "/ui/sweeps/digits-1": "./../assets/", "/ui/sweeps/a/trials/3": "./../../../assets/",
		"/ui/../../etc/passwd": "./../../../assets/",
	} {
		resp := get(t, h, path, "text/html")
		text := body(t, resp)
		if resp.StatusCode != http.StatusOK || !strings.Contains(text, `src="`+up) {
			t.Errorf("%s: %d, without a script below %s:\n%s", path, resp.StatusCode, up, text)
		}
		if csp := resp.Header.Get("Content-Security-Policy"); !strings.Contains(csp, "script-src 'self'") || strings.Contains(csp, "unsafe") {
			t.Errorf("%s: the policy is %q", path, csp)
		}
	}
	script := regexp.MustCompile(`src="\./(assets/[^"]+)"`).FindStringSubmatch(body(t, get(t, h, "/ui/", "")))
	resp := get(t, h, "/ui/"+script[1], "*/*")
	if resp.StatusCode != http.StatusOK || !strings.Contains(resp.Header.Get("Cache-Control"), "immutable") || !strings.Contains(resp.Header.Get("Content-Type"), "javascript") {
		t.Errorf("the script: %d %v", resp.StatusCode, resp.Header)
	}
	if resp := get(t, h, "/ui/assets/no.js", "*/*"); resp.StatusCode != http.StatusNotFound {
		t.Errorf("a file that does not exist: %d", resp.StatusCode)
	}
}

// Browsers at / see the pages; programs see what they saw before.
func TestBrowsersAreSentToThePages(t *testing.T) {
	t.Parallel()
	h := ForBrowsers(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	if r := get(t, h, "/", "text/html,*/*"); r.StatusCode != http.StatusFound || r.Header.Get("Location") != "ui/" {
		t.Errorf("a browser: %d %q", r.StatusCode, r.Header.Get("Location"))
	}
	if r := get(t, h, "/", "*/*"); r.StatusCode != http.StatusTeapot {
		t.Errorf("curl: %d", r.StatusCode)
	}
}

// The committed pages are built from the committed sources, whose types are those of the API.
func TestThePagesAreBuiltFromTheirSources(t *testing.T) {
	t.Parallel()
	types, err := os.ReadFile(filepath.Join("web", tsgen.TypesFile))
	if err != nil {
		t.Fatal(err)
	}
	service := outbidv1.File_outbid_v1_service_proto.Services().ByName("OutbidService")
	if string(types) != tsgen.Types(service) {
		t.Errorf("web/%s is not what the proto files say: run make dashboard", tsgen.TypesFile)
	}
	want, err := tsgen.Sources("web")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join("dist", tsgen.SourcesFile))
	if err != nil || string(got) != want {
		t.Errorf("dist was built from other sources (%v): run make dashboard", err)
	}
}

// The files that a browser loads first stay small.
func TestThePagesAreSmall(t *testing.T) {
	t.Parallel()
	var sum int
	files, err := filepath.Glob("dist/assets/*")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		sum += gzipped(t, data)
	}
	if sum > 120<<10 {
		t.Errorf("the pages have %d bytes compressed; at most %d", sum, 120<<10)
	}
}

func gzipped(t *testing.T, data []byte) int {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Len()
}
