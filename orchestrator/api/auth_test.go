package api

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// TestAuthMatrix requests a sweep of tenant vision with every kind of token.
func TestAuthMatrix(t *testing.T) {
	t.Parallel()
	h := serve(t, func(c *Config) { c.Tokens = testTokens(t) })
	h.control.add("digits-1", "vision", 1)
	h.control.add("words-2", "speech", 1)
	const (
		ok     = codes.OK
		denied = codes.PermissionDenied
		none   = codes.NotFound
		who    = codes.Unauthenticated
	)
	callers := []string{"", "unknown-unknown-unknown", token("root"), token("ann"), token("bob"), token("eve"), token("all")}
	for name, tc := range map[string]struct {
		call func(context.Context, outbidv1.OutbidServiceClient) error
		want []codes.Code
	}{
		//                  nobody, unknown, admin, its user, other user, its viewer, viewer of all
		"GetServerInfo": {info, []codes.Code{who, who, ok, ok, ok, ok, ok}},
		"GetSweep":      {get, []codes.Code{who, who, ok, ok, none, ok, ok}},
		"ControlSweep":  {pause, []codes.Code{who, who, ok, ok, none, denied, denied}},
		"AskTrial":      {ask, []codes.Code{who, who, ok, ok, none, denied, denied}},
		"WatchSweep":    {watchOnce, []codes.Code{who, who, ok, ok, none, ok, ok}},
		"PutBlob":       {putBlob, []codes.Code{who, who, ok, ok, ok, denied, denied}},
		"ReadLedger":    {readLedger, []codes.Code{who, who, ok, denied, denied, denied, denied}},
	} {
		for i, tok := range callers {
			err := tc.call(t.Context(), h.dial(t, tok))
			if status.Code(err) != tc.want[i] {
				t.Errorf("%s by %.3s: %v, want %v", name, tok, err, tc.want[i])
			}
		}
	}
	resp, err := h.dial(t, token("ann")).ListSweeps(t.Context(), &outbidv1.ListSweepsRequest{})
	if err != nil || len(resp.GetSweeps()) != 1 || resp.GetSweeps()[0].GetId() != "digits-1" {
		t.Errorf("ann sees %v, %v", resp.GetSweeps(), err)
	}
	// An unknown sweep and another tenant's sweep give the same error.
	notHers := pause2(t, h, "words-2")
	nowhere := pause2(t, h, "words-3")
	if strings.ReplaceAll(notHers, "words-2", "words-3") != nowhere {
		t.Errorf("%q differs from %q", notHers, nowhere)
	}
	for _, actor := range h.control.actors {
		if actor != "root" && actor != "ann" {
			t.Errorf("a command by %s reached control", actor)
		}
	}
}

func info(ctx context.Context, c outbidv1.OutbidServiceClient) error {
	_, err := c.GetServerInfo(ctx, &outbidv1.GetServerInfoRequest{})
	return err
}

func get(ctx context.Context, c outbidv1.OutbidServiceClient) error {
	_, err := c.GetSweep(ctx, &outbidv1.GetSweepRequest{Sweep: "digits-1"})
	return err
}

func pause(ctx context.Context, c outbidv1.OutbidServiceClient) error {
	_, err := c.ControlSweep(ctx, &outbidv1.ControlSweepRequest{
		Sweep: "digits-1", Command: outbidv1.SweepCommand_SWEEP_COMMAND_PAUSE,
	})
	return err
}

func pause2(t *testing.T, h *testServer, sweep string) string {
	t.Helper()
	_, err := h.dial(t, token("ann")).GetSweep(t.Context(), &outbidv1.GetSweepRequest{Sweep: sweep})
	return err.Error()
}

func ask(ctx context.Context, c outbidv1.OutbidServiceClient) error {
	_, err := c.AskTrial(ctx, &outbidv1.AskTrialRequest{Sweep: "digits-1"})
	return err
}

func watchOnce(ctx context.Context, c outbidv1.OutbidServiceClient) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.WatchSweep(ctx, &outbidv1.WatchSweepRequest{Sweep: "digits-1"})
	if err == nil {
		_, err = stream.Recv()
	}
	return err
}

func putBlob(ctx context.Context, c outbidv1.OutbidServiceClient) error {
	stream, err := c.PutBlob(ctx)
	if err != nil {
		return err
	}
	stream.Send(&outbidv1.PutBlobRequest{Data: []byte("x")}) // CloseAndRecv returns the error
	_, err = stream.CloseAndRecv()
	return err
}

func readLedger(ctx context.Context, c outbidv1.OutbidServiceClient) error {
	stream, err := c.ReadLedger(ctx, &outbidv1.ReadLedgerRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil && status.Code(err) == codes.Unknown { // io.EOF: the ledger is empty
		return nil
	}
	return err
}

func TestRESTAuth(t *testing.T) {
	t.Parallel()
	h := serve(t, func(c *Config) { c.Tokens = testTokens(t) })
	h.control.add("digits-1", "vision", 1)
	for _, tc := range []struct {
		path, header string
		want         int
	}{
		{"/v1/sweeps", "", 401},
		{"/v1/sweeps", "Bearer wrong", 401},
		{"/v1/sweeps", "Basic " + token("ann"), 401},
		{"/v1/sweeps", "Bearer " + token("ann"), 200},
		{"/v1/sweeps", "bearer " + token("ann"), 200},
		{"/v1/sweeps/digits-1", "Bearer " + token("bob"), 404},
		{"/v1/sweeps/digits-1/reports", "Bearer " + token("bob"), 404},
		{"/v1/ledger", "Bearer " + token("eve"), 403},
		{"/metrics", "", 401},
		{"/metrics", "Bearer " + token("all"), 200},
		{"/healthz", "", 200},
		{"/readyz", "", 200},
		{"/", "", 200},
	} {
		resp, b := h.call(t, "GET", tc.path, "", "Authorization", tc.header)
		if resp.StatusCode != tc.want {
			t.Errorf("%s with %.10q: status %d, want %d: %s", tc.path, tc.header, resp.StatusCode, tc.want, b)
		}
		if tc.want == 401 && resp.Header.Get("WWW-Authenticate") == "" {
			t.Errorf("%s: 401 without WWW-Authenticate", tc.path)
		}
	}
}

func TestRefusesToListenBeyondLoopback(t *testing.T) {
	t.Parallel()
	tokens, cert := testTokens(t), &tls.Config{MinVersion: tls.VersionTLS12}
	for name, tc := range map[string]struct {
		addr   string
		tokens *Tokens
		tls    *tls.Config
		want   []string
	}{
		"any address":    {":0", nil, nil, []string{"every address", "outbid token new", "outbid tls new"}},
		"any IPv4":       {"0.0.0.0:0", nil, nil, []string{"0.0.0.0", "outbid token new", "outbid tls new"}},
		"without token":  {"0.0.0.0:0", nil, cert, []string{"outbid token new"}},
		"without TLS":    {"[::]:0", tokens, nil, []string{"outbid tls new"}},
		"a name":         {"outbid.example:0", nil, nil, []string{"outbid.example"}},
		"bad address":    {"7700", nil, nil, []string{"127.0.0.1:7700"}},
		"loopback":       {"127.0.0.1:0", nil, nil, nil},
		"localhost":      {"localhost:0", nil, nil, nil},
		"with both":      {"127.0.0.1:0", tokens, cert, nil},
		"loopback, TLS":  {"127.0.0.1:0", nil, cert, nil},
		"loopback, both": {"127.0.0.1:0", tokens, cert, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := New(Config{
				Control: newFakeControl(), Store: &fakeStore{}, Logs: &fakeLogs{}, Registry: prometheus.NewRegistry(),
				Addr: tc.addr, Tokens: tc.tokens, TLS: tc.tls,
			})
			if err == nil {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}
			if (err == nil) != (tc.want == nil) {
				t.Fatalf("error %v", err)
			}
			for _, say := range tc.want {
				if !strings.Contains(err.Error(), say) {
					t.Errorf("%q does not say %q", err, say)
				}
			}
		})
	}
	if err := checkAddr(Config{Addr: "0.0.0.0:0", Tokens: tokens, TLS: cert}); err != nil {
		t.Errorf("with tokens and TLS: %v", err)
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files, err := MakeCert(dir, []string{"outbid.example", "192.0.2.7"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	caBefore, _ := os.ReadFile(files.CA)
	if _, err := MakeCert(dir, nil, time.Now()); err != nil { // another one by the same authority
		t.Fatal(err)
	}
	if ca, _ := os.ReadFile(files.CA); string(ca) != string(caBefore) {
		t.Error("the authority was replaced")
	}
	if _, err := MakeCert(dir, []string{"outbid.example", "192.0.2.7"}, time.Now()); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{files.Key, files.CAKey} {
		if info, err := os.Stat(key); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", key, info.Mode(), err)
		}
	}
	conf, err := LoadTLS(files.Cert, files.Key)
	if err != nil {
		t.Fatal(err)
	}
	h := serve(t, func(c *Config) { c.TLS, c.Tokens = conf, testTokens(t) })
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(caBefore)
	for _, name := range []string{"127.0.0.1", "localhost", "outbid.example", "192.0.2.7"} {
		client := &tls.Config{RootCAs: pool, ServerName: name}
		conn, err := grpc.NewClient(h.Addr(), grpc.WithTransportCredentials(credentials.NewTLS(client)),
			grpc.WithPerRPCCredentials(bearer(token("eve"))))
		if err != nil {
			t.Fatal(err)
		}
		if err := info(t.Context(), outbidv1.NewOutbidServiceClient(conn)); err != nil {
			t.Errorf("gRPC as %s: %v", name, err)
		}
		conn.Close()
	}
	rest := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	resp, err := rest.Get(h.URL() + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("REST: status %d", resp.StatusCode)
	}
	if conn, err := tls.Dial("tcp", h.Addr(), &tls.Config{ServerName: "localhost"}); err == nil {
		conn.Close()
		t.Error("a client that does not know the authority trusts the server")
	}
	if _, err := LoadTLS(filepath.Join(dir, "no.pem"), files.Key); err == nil || !strings.Contains(err.Error(), "outbid tls new") {
		t.Errorf("no certificate: %v", err)
	}
}

func TestMakeToken(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "new", "tokens")
	if _, err := LoadTokens(path); err == nil || !strings.Contains(err.Error(), "outbid token new") {
		t.Errorf("no file: %v", err)
	}
	ann := Principal{Name: "ann", Tenant: "vision", Role: RoleUser}
	first, err := MakeToken(path, ann)
	if err != nil {
		t.Fatal(err)
	}
	second, err := MakeToken(path, Principal{Name: "root", Tenant: AnyTenant, Role: RoleAdmin})
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	tokens, err := LoadTokens(path)
	if err != nil {
		t.Fatal(err)
	}
	if who, ok := tokens.find(first); !ok || who != ann {
		t.Errorf("the first token belongs to %+v", who)
	}
	if who, ok := tokens.find(second); !ok || who.Role != RoleAdmin {
		t.Errorf("the second token belongs to %+v", who)
	}
	if _, ok := tokens.find(first + "x"); ok {
		t.Error("a wrong token was accepted")
	}
	for _, bad := range []Principal{
		ann,
		{Name: "a b", Tenant: "x", Role: RoleUser},
		{Name: "bob", Role: RoleUser},
		{Name: "bob", Tenant: "x", Role: "boss"},
	} {
		if _, err := MakeToken(path, bad); err == nil {
			t.Errorf("made a token for %+v", bad)
		}
	}
}

func TestParseTokensNamesTheLine(t *testing.T) {
	t.Parallel()
	secret := token("secret")
	for text, want := range map[string]string{
		"":                                      "does not contain a token",
		"# only a comment\n":                    "does not contain a token",
		"\n" + secret + " ann vision":           "tokens:2: a line must have a token, a name, a tenant and a role, got 3 words",
		"short ann vision user":                 "tokens:1: the token of ann is 5 characters long; at least 20 are needed",
		secret + " ann vision boss":             `tokens:1: role "boss": must be admin, operator, auditor, tenant-admin, user, viewer, viewer-nologs or metrics`,
		secret + " ann v/ user":                 `tokens:1: tenant "v/": letters`,
		secret + " ? vision user":               `tokens:1: name "?": letters`,
		strings.Repeat(secret+" a b user\n", 2): "tokens:2: a and a have the same token",
	} {
		_, err := ParseTokens(strings.NewReader(text), "tokens")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		} else if strings.Contains(err.Error(), secret) {
			t.Errorf("the error shows the token: %v", err)
		}
	}
}

func FuzzParseTokens(f *testing.F) {
	f.Add(token("secret") + " ann vision user\n# comment\n")
	f.Fuzz(func(t *testing.T, text string) {
		if tokens, err := ParseTokens(strings.NewReader(text), "tokens"); err == nil && len(tokens.all()) == 0 {
			t.Error("no token and no error")
		}
	})
}

func FuzzPageToken(f *testing.F) {
	f.Add(pageToken{List: "sweeps ", Next: 3}.String())
	f.Fuzz(func(t *testing.T, text string) {
		token, err := parsePageToken(text, "sweeps ")
		if err == nil && (token.List != "sweeps " || token.Next < 0) {
			t.Errorf("%q is %+v", text, token)
		}
	})
}

func FuzzLoopbackHost(f *testing.F) {
	f.Add("127.0.0.1:80")
	f.Add("[::1]")
	f.Fuzz(func(t *testing.T, host string) {
		if loopbackHost(host) && !strings.Contains(strings.ToLower(host), "localhost") && !hasLoopback(host) {
			t.Errorf("%q is taken for loopback", host)
		}
	})
}

func hasLoopback(host string) bool {
	h, _, err := net.SplitHostPort(host)
	if err != nil {
		h = host
	}
	ip := net.ParseIP(strings.Trim(h, "[]"))
	return ip != nil && ip.IsLoopback()
}
