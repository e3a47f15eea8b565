package mcp

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// overHTTP serves the fake over HTTP. It accepts the token "good" and notes the token of every connection.
func (f *fakeAPI) overHTTP(t *testing.T, open bool) (url string, tokens func() []string) {
	t.Helper()
	var mu sync.Mutex
	var seen []string
	server := New(Config{Connect: func(_ context.Context, token string) (*Connection, error) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, token)
		api := API(f)
		if token != "good" && token != "better" {
			api = refusing{f}
		}
		return &Connection{API: api, Where: "the server at http://127.0.0.1:7700"}, nil
	}})
	web := httptest.NewServer(server.Handler(open))
	t.Cleanup(func() {
		for s := range server.sdk.Sessions() {
			_ = s.Close()
		}
		web.Close()
	})
	return web.URL + Path, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return seen
	}
}

// refusing is an API that does not know the token.
type refusing struct{ *fakeAPI }

func (refusing) GetServerInfo(context.Context, *outbidv1.GetServerInfoRequest, ...grpc.CallOption) (*outbidv1.GetServerInfoResponse, error) {
	return nil, status.Error(codes.Unauthenticated, "the token is not known")
}

// withToken sends a token with each request.
type withToken struct {
	token string
	inner http.RoundTripper
}

func (w *withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+w.token)
	return w.inner.RoundTrip(r)
}

func TestEachHTTPRequestHasItsOwnToken(t *testing.T) {
	t.Parallel()
	f := newFake()
	url, tokens := f.overHTTP(t, false)
	inner := &http.Transport{}
	defer inner.CloseIdleConnections()
	sender := &withToken{"good", inner}
	client := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &sdk.StreamableClientTransport{
		Endpoint: url, HTTPClient: &http.Client{Transport: sender}, DisableStandaloneSSE: true,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = session.Close() }()
	mustAsk(t, session, "show_server", nil)
	sender.token = "better"
	mustAsk(t, session, "show_server", nil)
	got := tokens()
	if len(got) < 2 || got[len(got)-1] != "better" {
		t.Errorf("the connections were made with %q", got)
	}
	sender.token = "bad"
	if _, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "show_server"}); err == nil {
		t.Error("a call with a bad token succeeded")
	}
}

// post sends a request and returns the status and the body.
func post(t *testing.T, method, url, body string, headers ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Authorization", "Bearer good")
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		} else {
			r.Header.Set(headers[i], headers[i+1])
		}
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	got, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = got.Body.Close() }()
	text, _ := io.ReadAll(got.Body)
	return got.StatusCode, string(text)
}

const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},` +
	`"clientInfo":{"name":"test","version":"1"}}}`

func TestHTTPRefuses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, method, path, body string
		headers                  []string
		open, local              bool
		code                     int
		want                     string
	}{
		{name: "a good request", body: initialize, code: 200, want: "serverInfo"},
		{name: "another path", path: "x", body: initialize, code: 404, want: "is at /mcp"},
		{name: "a stream", method: "GET", code: 405, want: "use POST"},
		{name: "a bad token", body: initialize, headers: []string{"Authorization", "Bearer bad"}, code: 401, want: "the token is not known"},
		{name: "another scheme", body: initialize, headers: []string{"Authorization", "Basic good"}, code: 401, want: "the token is not known"},
		{name: "another origin", body: initialize, headers: []string{"Origin", "https://evil.example"}, code: 403},
		{name: "a rebound name", body: initialize, headers: []string{"Host", "evil.example", "Origin", "http://evil.example"}, code: 403, want: "Host"},
		{name: "a large body", body: `{"x":"` + strings.Repeat("x", maxBody) + `"}`, code: 413},
		{name: "an open server without tokens", body: initialize, open: true, local: true, code: 403, want: "does not require tokens"},
		{name: "an open server with tokens", body: initialize, open: true, code: 200, want: "serverInfo"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := newFake()
			f.info.Caller.Local = test.local
			url, _ := f.overHTTP(t, test.open)
			method := test.method
			if method == "" {
				method = "POST"
			}
			code, body := post(t, method, url+test.path, test.body, test.headers...)
			if code != test.code || !strings.Contains(body, test.want) {
				t.Errorf("got %d %s", code, body)
			}
		})
	}
}

func TestSessionsAreBounded(t *testing.T) {
	t.Parallel()
	url, _ := newFake().overHTTP(t, false)
	for i := range maxSessions {
		if code, body := post(t, "POST", url, initialize); code != 200 {
			t.Fatalf("session %d: %d %s", i, code, body)
		}
	}
	if code, body := post(t, "POST", url, initialize); code != 503 || !strings.Contains(body, "too many sessions") {
		t.Errorf("got %d %s", code, body)
	}
}

func TestClosingTheRequestCancelsTheCallOfTheAPI(t *testing.T) {
	t.Parallel()
	f := newFake()
	began, ended := make(chan struct{}), make(chan error, 1)
	f.onGet = func(ctx context.Context, _ *outbidv1.Sweep) error {
		close(began)
		<-ctx.Done()
		ended <- ctx.Err()
		return ctx.Err()
	}
	url, _ := f.overHTTP(t, false)
	ctx, cancel := context.WithCancel(t.Context())
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"show_sweep","arguments":{"sweep":"digits-2"},`+
		`"_meta":{"io.modelcontextprotocol/protocolVersion":%q,"io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},`+
		`"io.modelcontextprotocol/clientCapabilities":{}}}}`, sessionless)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Authorization": "Bearer good",
		"Mcp-Protocol-Version": sessionless, "Mcp-Method": "tools/call", "Mcp-Name": "show_sweep",
	} {
		r.Header.Set(name, value)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		if got, err := client.Do(r); err == nil {
			text, _ := io.ReadAll(got.Body)
			_ = got.Body.Close()
			if ctx.Err() == nil {
				t.Errorf("answered %d %s", got.StatusCode, text)
			}
		}
	}()
	eventually(t, began, "the call begins")
	cancel()
	eventually(t, ended, "the API's call ends")
	<-done
}
