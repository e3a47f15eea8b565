package objects_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/objects"
)

// The parts of a file are exactly the bytes from its offset on, also if a part is sent again.
func TestTheFileOfAnUploadIsDividedIntoParts(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	got, tries := map[string][]byte{}, map[string]int{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, err := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		if tries[r.URL.Path]++; err != nil || r.URL.Path == "/1" && tries["/1"] == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		if r.Method == http.MethodPut {
			got[r.URL.Path] = data
		}
		w.Header().Set("ETag", r.URL.Path)
	}))
	defer server.Close()
	content := []byte(strings.Repeat("0123456789abcdef-", 100_000)) // many times what one read takes
	const first, each = 17, 500_000
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // only read
	if _, err := f.Seek(first, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	signed := objects.Signed{PartBytes: each, Complete: server.URL + "/complete", Abort: server.URL + "/abort"}
	size := int64(len(content) - first - 5)
	for i := range int((size + each - 1) / each) {
		signed.Parts = append(signed.Parts, fmt.Sprintf("%s/%d", server.URL, i))
	}
	p := &objects.Presigned{
		Sign:   func(context.Context, string, bool, int64) (objects.Signed, error) { return signed, nil },
		Client: server.Client(), Name: func() string { return "a store" },
	}
	if err := p.Put(t.Context(), "files/x", f, size); err != nil {
		t.Fatal(err)
	}
	var all []byte
	for i := range signed.Parts {
		all = append(all, got[fmt.Sprintf("/%d", i)]...)
	}
	if !bytes.Equal(all, content[first:len(content)-5]) || tries["/1"] != 2 {
		t.Errorf("%d bytes arrived in parts after %v tries, want %d", len(all), tries, size)
	}
}
