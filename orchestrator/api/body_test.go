package api

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// slowTime is longer than any request of these tests takes, and shorter than a server without deadlines takes.
const slowTime = 10 * time.Second

// sendHead opens a connection and sends the head of a request, but never its body.
func sendHead(t *testing.T, addr, path, token string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(slowTime)); err != nil {
		t.Fatal(err)
	}
	if token != "" {
		token = "Authorization: Bearer " + token + "\r\n"
	}
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\n%sContent-Type: application/json\r\n"+
		"Content-Length: 4000\r\n\r\n{", path, token)
	return conn
}

// mustEnd checks the answer, and that the server closes the connection.
func mustEnd(t *testing.T, conn net.Conn, code int, text string) {
	t.Helper()
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != code || !strings.Contains(string(body), text) {
		t.Errorf("status %d, %s, %v; want %d and %q", resp.StatusCode, body, err, code, text)
	}
	if _, err := r.ReadByte(); err == nil {
		t.Error("the connection is still open")
	} else if timeout, ok := err.(net.Error); ok && timeout.Timeout() { //nolint:errorlint // net returns it unwrapped
		t.Error("the connection is held")
	}
}

func TestWhoMayNotCallIsTurnedAwayBeforeTheBody(t *testing.T) {
	t.Parallel()
	h := serve(t, func(c *Config) { c.Tokens = testTokens(t) })
	for _, path := range []string{"/v1/sweeps", "/v1/nowhere"} {
		mustEnd(t, sendHead(t, h.Addr(), path, ""), http.StatusUnauthorized, "a token is needed")
		mustEnd(t, sendHead(t, h.Addr(), path, "wrong"), http.StatusUnauthorized, "not known")
	}
	if got := grpcSlowly(t, h.Addr(), ""); got != "16" {
		t.Errorf("gRPC without a token: status %s, want 16", got)
	}
}

func TestASlowBodyTimesOut(t *testing.T) {
	t.Parallel()
	h := serve(t, func(c *Config) {
		c.Tokens = testTokens(t)
		c.pace = pace{grace: time.Second, rate: 1 << 20} // long enough for a whole request on a busy machine
	})
	mustEnd(t, sendHead(t, h.Addr(), "/v1/sweeps", token("ann")), http.StatusRequestTimeout, "too slowly")
	if got := grpcSlowly(t, h.Addr(), token("ann")); got == "0" || got == "" {
		t.Errorf("gRPC without a request message: status %q", got)
	}
	// A slow answer is not cut off, because the request was complete.
	h.control.add("digits-1", "vision", 1)
	stream, err := h.dial(t, token("ann")).WatchSweep(t.Context(), &outbidv1.WatchSweepRequest{Sweep: "digits-1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	<-time.After(1500 * time.Millisecond) // longer than the pace's grace
	h.control.end("digits-1")
	if _, err := stream.Recv(); err != nil {
		t.Errorf("a stream was cut off: %v", err)
	}
}

func TestASteadyBodyMayTakeItsTime(t *testing.T) {
	t.Parallel()
	p := pace{grace: time.Second, rate: 1000}
	began := time.Unix(0, 0)
	for _, tc := range []struct {
		bytes int64
		want  time.Duration
	}{{0, time.Second}, {1000, 2 * time.Second}, {60_000, 61 * time.Second}} {
		if got := p.deadline(began, tc.bytes).Sub(began); got != tc.want {
			t.Errorf("after %d bytes: %s, want %s", tc.bytes, got, tc.want)
		}
	}
}

// grpcSlowly starts a gRPC call, never sends its message, and returns the call's status.
func grpcSlowly(t *testing.T, addr, token string) string {
	t.Helper()
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: &protocols}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: slowTime}
	body, never := io.Pipe()
	defer never.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
		"http://"+addr+outbidv1.OutbidService_GetServerInfo_FullMethodName, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("Te", "trailers")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(req)
	if err != nil {
		if timeout, ok := err.(net.Error); ok && timeout.Timeout() { //nolint:errorlint // net/http returns it unwrapped
			t.Error("the call is held")
			return ""
		}
		return err.Error() // the stream was reset
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err.Error()
	}
	if s := resp.Header.Get("Grpc-Status"); s != "" {
		return s
	}
	return resp.Trailer.Get("Grpc-Status")
}
