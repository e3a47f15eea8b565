package server

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// TestAServerThatIsNotReadySaysSo checks that a starting server or a standby passes liveness probes, and rejects
// commands from gRPC and REST clients.
func TestAServerThatIsNotReadySaysSo(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := openStandby(l, nil, http.NotFoundHandler())
	p.waitFor("the lead")
	const want = "is starting or a standby, and waits for the lead"
	for path, code := range map[string]int{"/healthz": http.StatusOK, "/v1/sweeps": http.StatusServiceUnavailable} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+l.Addr().String()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.Body.Close() != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != code || strings.Contains(string(text), want) != (code != http.StatusOK) {
			t.Errorf("%s: %s: %s", path, resp.Status, text)
		}
	}
	conn, err := grpc.NewClient("passthrough:///"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = outbidv1.NewOutbidServiceClient(conn).ListSweeps(t.Context(), &outbidv1.ListSweepsRequest{})
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), want) {
		t.Errorf("gRPC: %v", err)
	}
	if err := p.leave(); err != nil {
		t.Error(err)
	}
}

// TestWhatWasAskedBeforeIsAnswered checks that requests from before the server became ready are answered.
func TestWhatWasAskedBeforeIsAnswered(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	entered := make(chan struct{})
	p := openStandby(l, nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		select {
		case <-r.Context().Done(): // its connection is closed
		case <-time.After(answerWithin / 10):
			_, _ = io.WriteString(w, "answered")
		}
	}))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+l.Addr().String()+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	left := make(chan error, 1)
	go func() {
		<-entered
		left <- p.leave()
	}()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err != nil || string(text) != "answered" {
		t.Errorf("it is answered with %q, %v", text, err)
	}
	if err := <-left; err != nil {
		t.Error(err)
	}
}
