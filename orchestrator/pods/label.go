package pods

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/oidc"
)

// Label is a label of the pod that this process runs in. A Service selects the leading server by it. The pod's
// ServiceAccount needs the permission to patch pods of its namespace.
type Label struct {
	name, value string
	pod         string
	client      *http.Client
	retry       time.Duration
}

// OpenLabel returns a label, given as NAME=VALUE. It sends no request.
func OpenLabel(label string) (*Label, error) { return openLabel(label, ownDir, os.Getenv, os.Hostname) }

func openLabel(label, own string, getenv func(string) string, hostname func() (string, error)) (*Label, error) {
	name, value, ok := strings.Cut(label, "=")
	if !ok || !regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9./_-]*$`).MatchString(name) || !regexp.MustCompile(`^[A-Za-z0-9._-]*$`).MatchString(value) {
		return nil, fmt.Errorf("%q: want NAME=VALUE, such as outbid.dev/leader=true", label)
	}
	base, client, err := apiServer(own, getenv)
	if err != nil {
		return nil, err
	}
	namespace, err := os.ReadFile(filepath.Join(own, "namespace")) //nolint:gosec // a file of the pod
	if err != nil {
		return nil, err
	}
	pod, err := hostname()
	if err != nil {
		return nil, err
	}
	path, err := url.JoinPath(base, "api/v1/namespaces", strings.TrimSpace(string(namespace)), "pods", pod)
	return &Label{name: name, value: value, pod: path, client: client, retry: labelRetry}, err
}

// errNoPod means that this process does not run in a pod.
var errNoPod = errors.New("this process is not in a Kubernetes pod")

// apiServer returns the URL of the API server of this pod's cluster, and a client that is this pod's ServiceAccount.
func apiServer(own string, getenv func(string) string) (string, *http.Client, error) {
	host, port := getenv("KUBERNETES_SERVICE_HOST"), getenv("KUBERNETES_SERVICE_PORT")
	if host == "" {
		return "", nil, errNoPod
	}
	client, err := oidc.Client(filepath.Join(own, "ca.crt"), nil)
	if err != nil {
		return "", nil, err
	}
	client.Transport = &asPod{token: filepath.Join(own, "token"), next: client.Transport}
	return "https://" + net.JoinHostPort(host, cmp.Or(port, "443")), client, nil
}

// labelRetry is the time between two attempts to change a label.
const labelRetry = 2 * time.Second

// Keep sets the label, and removes it when ctx ends. It tries again while the API server refuses or is away, and calls
// failed with the first error of each series.
func (l *Label) Keep(ctx context.Context, failed func(error)) {
	l.set(ctx, failed)
	<-ctx.Done()
	if err := l.Remove(context.WithoutCancel(ctx)); err != nil {
		failed(err)
	}
}

// set sets the label, unless ctx ends before.
func (l *Label) set(ctx context.Context, failed func(error)) {
	for told := false; ; {
		err := l.patch(ctx, l.value)
		if err == nil {
			return
		}
		if !told && ctx.Err() == nil {
			told = true
			failed(err)
		}
		select {
		case <-time.After(l.retry):
		case <-ctx.Done():
			return
		}
	}
}

// Remove removes the label, if the pod has it.
func (l *Label) Remove(ctx context.Context) error { return l.patch(ctx, nil) }

// patch sets the label to a value, or removes it if value is nil.
func (l *Label) patch(ctx context.Context, value any) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{l.name: value}}})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPatch, l.pod, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/merge-patch+json")
	resp, err := l.client.Do(req)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("label this pod %s: the API server answers %s: %s", l.name, resp.Status, bytes.TrimSpace(text))
	}
	return nil
}
