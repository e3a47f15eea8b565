package server

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// A server that starts or stands by lives for probes, and tells clients of both kinds that it takes no commands.
func TestAServerThatIsNotReadySaysSo(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := openStandby(l, nil, http.NotFoundHandler())
	p.waitFor("the lead")
	const want = "starts or stands by, and waits for the lead"
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
