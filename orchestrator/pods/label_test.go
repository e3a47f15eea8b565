package pods

import (
	"context"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The label is set, tried again if that fails, and removed at the end.
func TestLabel(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 10)
	answers := make(chan int, 10)
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.WriteHeader(<-answers)
		asked <- strings.Join([]string{r.Method, r.URL.Path, r.Header.Get("Authorization"), string(body)}, " ")
	}))
	defer api.Close()
	own := t.TempDir()
	for name, data := range map[string]string{
		"ca.crt": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw})), "token": "abc\n", "namespace": "ml",
	} {
		if err := os.WriteFile(filepath.Join(own, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	at, err := url.Parse(api.URL)
	if err != nil {
		t.Fatal(err)
	}
	inPod := func(name string) string {
		return map[string]string{"KUBERNETES_SERVICE_HOST": at.Hostname(), "KUBERNETES_SERVICE_PORT": at.Port()}[name]
	}
	hostname := func() (string, error) { return "outbid-0", nil }
	l, err := openLabel("outbid.dev/leader=true", own, inPod, hostname)
	if err != nil {
		t.Fatal(err)
	}
	l.retry = time.Millisecond
	ctx, stop := context.WithCancel(t.Context())
	failures := make(chan error, 10)
	done := make(chan struct{})
	answers <- http.StatusForbidden
	answers <- http.StatusOK
	answers <- http.StatusOK
	go func() {
		l.Keep(ctx, func(err error) { failures <- err })
		close(done)
	}()
	const request = "PATCH /api/v1/namespaces/ml/pods/outbid-0 Bearer abc "
	for range 2 {
		if got := <-asked; got != request+`{"metadata":{"labels":{"outbid.dev/leader":"true"}}}` {
			t.Errorf("asked %s", got)
		}
	}
	if err := <-failures; !strings.Contains(err.Error(), "403 Forbidden") {
		t.Errorf("failed with %v", err)
	}
	stop()
	<-done
	if got := <-asked; got != request+`{"metadata":{"labels":{"outbid.dev/leader":null}}}` {
		t.Errorf("at the end asked %s", got)
	}
	for label, want := range map[string]string{"leader": "want NAME=VALUE", "a b=c": "want NAME=VALUE"} {
		if _, err := openLabel(label, own, inPod, hostname); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", label, err)
		}
	}
	if _, err := openLabel("a=b", own, func(string) string { return "" }, hostname); err == nil || !strings.Contains(err.Error(), "not in a Kubernetes pod") {
		t.Errorf("outside a pod: %v", err)
	}
}
