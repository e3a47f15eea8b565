package api

import (
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// whoMayCall maps each method to the permission that it requires.
var whoMayCall = map[string]access{
	"GetServerInfo": read, "PreviewSweep": read, "ListSweeps": read, "GetSweep": read, "WatchSweep": read, "ReadColumns": read, "ListTrials": read, "GetTrial": read,
	"ListReports": read, "StreamLogs": readContent, "GetCheckpoint": readContent, "GetSoup": readContent, "ListNodes": read, "GetRound": read, "ListRounds": read,
	"GetPrices": read, "ExplainSweep": read, "GetTenant": read, "ListTenants": read,

	"SubmitSweep": write, "ControlSweep": write, "ControlTrial": write, "ExtendSweep": write, "DeleteSweep": write, "AskTrial": write, "TellTrial": write,
	"PutBlob": write, "PutSoup": write, "SetSecret": write, "ListSecrets": write, "DeleteSecret": write,

	"ReadLedger": admin, "ListAudit": admin, "NewWorkerToken": admin, "RemoveWorker": admin, "ControlNode": admin, "SetTenant": admin, "RemoveTenant": admin,

	"JoinWorker": open, // its request has another token
}

// TestEveryMethodByEveryRole checks that every method rejects exactly the roles that do not have its permission.
func TestEveryMethodByEveryRole(t *testing.T) {
	t.Parallel()
	h := serve(t, func(c *Config) { c.Tokens = testTokens(t) })
	roles := map[string]struct {
		token string
		may   []access
	}{
		"nobody":       {"", []access{open}},
		"stranger":     {"unknown-unknown-unknown", []access{open}},
		"metrics":      {token("prom"), []access{open}},
		"no logs":      {token("ned"), []access{open, read}},
		"viewer":       {token("eve"), []access{open, read, readContent}},
		"viewer of *":  {token("all"), []access{open, read, readContent}},
		"user":         {token("ann"), []access{open, read, readContent, write}},
		"other tenant": {token("bob"), []access{open, read, readContent, write}},
		"admin":        {token("root"), []access{open, read, readContent, write, admin}},
	}
	methods := outbidv1.File_outbid_v1_service_proto.Services().ByName("OutbidService").Methods()
	for role, r := range roles {
		opts := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
		if r.token != "" {
			opts = append(opts, grpc.WithPerRPCCredentials(bearer(r.token)))
		}
		conn, err := grpc.NewClient(h.Addr(), opts...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		for i := range methods.Len() {
			m := methods.Get(i)
			need, known := whoMayCall[string(m.Name())]
			if !known {
				t.Fatalf("add %s to whoMayCall", m.Name())
			}
			refused := true
			for _, a := range r.may {
				refused = refused && a != need
			}
			code := status.Code(callEmpty(t, conn, m))
			if was := code == codes.PermissionDenied || code == codes.Unauthenticated && need != open; was != refused {
				t.Errorf("%s by %s: %s, want it refused: %t", m.Name(), role, code, refused)
			}
		}
	}
}

// callEmpty calls a method with an empty request and returns its error.
func callEmpty(t *testing.T, conn *grpc.ClientConn, m protoreflect.MethodDescriptor) error {
	t.Helper()
	name := "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
	stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, name)
	if err != nil {
		return err
	}
	_ = stream.SendMsg(dynamicpb.NewMessage(m.Input())) // the answer has the error
	_ = stream.CloseSend()
	var answer proto.Message = dynamicpb.NewMessage(m.Output())
	return stream.RecvMsg(answer)
}

// testTokens returns one token of each kind; each is its name repeated.
func testTokens(t *testing.T) *Tokens {
	t.Helper()
	tokens, err := ParseTokens(strings.NewReader(`
# token name tenant role
`+token("root")+` root * admin
`+token("ann")+` ann vision user
`+token("bob")+` bob speech user
`+token("eve")+` eve vision viewer
`+token("all")+` all * viewer
`+token("ned")+` ned vision viewer-nologs
`+token("prom")+` prom * metrics
`), "tokens")
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}

func token(name string) string { return strings.Repeat(name, 20) }

// TestServerInfoNamesTheCaller checks that a client learns its token's tenant, so that it can tell which checkpoints
// are its own.
func TestServerInfoNamesTheCaller(t *testing.T) {
	t.Parallel()
	h := serve(t, func(c *Config) { c.Tokens = testTokens(t) })
	got, err := dialAs(t, h, "eve").GetServerInfo(t.Context(), &outbidv1.GetServerInfoRequest{})
	if c := got.GetCaller(); err != nil || c.GetName() != "eve" || c.GetTenant() != "vision" || c.GetRole() != "viewer" || c.GetLocal() {
		t.Errorf("%v, %v", c, err)
	}
}

func TestMetricsRoleReadsMetricsAlone(t *testing.T) {
	t.Parallel()
	h := serve(t, func(c *Config) { c.Tokens = testTokens(t) })
	for path, want := range map[string]int{
		"/metrics": http.StatusOK, "/healthz": http.StatusOK, "/readyz": http.StatusOK, "/v1/sweeps": http.StatusForbidden,
		"/v1/server": http.StatusForbidden, "/v1/nodes": http.StatusForbidden, "/v1/tenants": http.StatusForbidden,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.URL()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token("prom"))
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, resp.StatusCode, want)
		}
	}
}
