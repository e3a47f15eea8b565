package server_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/outbid-dev/outbid/orchestrator/api"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

type bearer string

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

func (b bearer) RequireTransportSecurity() bool { return false }

// as returns a client of the server that sends a token.
func (r *running) as(t *testing.T, token string) outbidv1.OutbidServiceClient {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+strings.TrimPrefix(r.URL(), "http://"), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithPerRPCCredentials(bearer(token)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return outbidv1.NewOutbidServiceClient(conn)
}

// withTokens starts a server with a tokens file, and returns clients by the names of its callers.
func withTokens(t *testing.T) (*running, map[string]outbidv1.OutbidServiceClient) {
	t.Helper()
	cfg, clients, tokens := config(t), map[string]outbidv1.OutbidServiceClient{}, map[string]string{}
	cfg.Tokens = filepath.Join(t.TempDir(), "tokens")
	for _, who := range []api.Principal{
		{Name: "root", Tenant: "*", Role: api.RoleAdmin},
		{Name: "tess", Tenant: "vision", Role: api.RoleTenantAdmin},
		{Name: "ann", Tenant: "vision", Role: api.RoleUser},
	} {
		token, err := api.MakeToken(cfg.Tokens, who)
		if err != nil {
			t.Fatal(err)
		}
		tokens[who.Name] = token
	}
	s := run(t, cfg)
	for name, token := range tokens {
		clients[name] = s.as(t, token)
	}
	return s, clients
}

func wanted(tenant, name, role string, life time.Duration, scopes ...string) *outbidv1.CreateTokenRequest {
	return &outbidv1.CreateTokenRequest{Tenant: tenant, Name: name, Role: role, Scopes: scopes, Life: durationpb.New(life)}
}

func list(t *testing.T, c outbidv1.OutbidServiceClient) error {
	t.Helper()
	_, err := c.ListSweeps(t.Context(), &outbidv1.ListSweepsRequest{})
	return err
}

// TestAnAPITokenWorksUntilItIsRevoked goes through the life of a token on a real server.
func TestAnAPITokenWorksUntilItIsRevoked(t *testing.T) {
	t.Parallel()
	s, by := withTokens(t)
	made, err := by["tess"].CreateToken(t.Context(), wanted("", "ci", "user", time.Hour, "read"))
	if err != nil || made.GetInfo().GetTenant() != "vision" {
		t.Fatalf("%v, %v", made, err)
	}
	ci := s.as(t, made.GetToken())
	info, err := ci.GetServerInfo(t.Context(), &outbidv1.GetServerInfoRequest{})
	if c := info.GetCaller(); err != nil || c.GetName() != "vision/ci" || c.GetTenant() != "vision" || c.GetRole() != "user" {
		t.Errorf("%v, %v", c, err)
	}
	_, err = ci.SubmitSweep(t.Context(), &outbidv1.SubmitSweepRequest{Spec: shell(t)})
	if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "scope write") {
		t.Errorf("a call beyond the scopes: %v", err)
	}
	if _, err := ci.CreateToken(t.Context(), wanted("", "more", "user", time.Hour)); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a token by a token with scopes: %v", err)
	}
	if all, err := by["root"].ListTokens(t.Context(), &outbidv1.ListTokensRequest{}); err != nil || len(all.GetTokens()) != 1 || all.GetTokens()[0].GetLastUsed() == nil ||
		all.GetTokens()[0].GetCreatedBy() != "tess" {
		t.Errorf("%v, %v", all, err)
	}
	again, err := by["tess"].RotateToken(t.Context(), &outbidv1.RotateTokenRequest{Name: "ci"})
	if err != nil {
		t.Fatal(err)
	}
	if err := list(t, ci); status.Code(err) != codes.Unauthenticated {
		t.Errorf("the token before the rotation: %v", err)
	}
	ci = s.as(t, again.GetToken())
	if err := list(t, ci); err != nil {
		t.Errorf("the token after the rotation: %v", err)
	}
	if _, err := by["tess"].RevokeToken(t.Context(), &outbidv1.RevokeTokenRequest{Name: "ci"}); err != nil {
		t.Fatal(err)
	}
	if err := list(t, ci); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a revoked token: %v", err)
	}
	page, err := by["root"].ListAudit(t.Context(), &outbidv1.ListAuditRequest{Actor: "tess", Lines: true})
	if err != nil || len(page.GetRecords()) != 3 {
		t.Fatalf("%d records of tess, %v", len(page.GetRecords()), err)
	}
	for i, verb := range []string{"create", "rotate", "delete"} {
		line := page.GetRecords()[i].GetLine()
		if !strings.Contains(line, `"verb":"`+verb+`"`) || !strings.Contains(line, `{"resource":"tokens","namespace":"vision","name":"ci"}`) ||
			strings.Contains(line, made.GetToken()) || strings.Contains(line, again.GetToken()) {
			t.Errorf("%s", line)
		}
	}
}

// TestAnAPITokenExpires waits for the end of a short life.
func TestAnAPITokenExpires(t *testing.T) {
	t.Parallel()
	s, by := withTokens(t)
	made, err := by["root"].CreateToken(t.Context(), wanted("vision", "ci", "user", time.Second))
	if err != nil {
		t.Fatal(err)
	}
	ci := s.as(t, made.GetToken())
	if err := list(t, ci); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(patience)
	for list(t, ci) == nil {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatal("it did not expire")
		}
	}
	if err := list(t, ci); status.Code(err) != codes.Unauthenticated || time.Now().Before(made.GetInfo().GetExpires().AsTime()) {
		t.Errorf("%v", err)
	}
}

// TestWhoMayCreateAPITokens checks that a caller cannot give permissions that it does not have.
func TestWhoMayCreateAPITokens(t *testing.T) {
	t.Parallel()
	_, by := withTokens(t)
	for name, tc := range map[string]struct {
		who  string
		req  *outbidv1.CreateTokenRequest
		want codes.Code
	}{
		"any role":            {"root", wanted("*", "board", "operator", time.Hour), codes.OK},
		"an operator's":       {"root", wanted("vision", "op", "operator", time.Hour), codes.InvalidArgument},
		"the own tenant":      {"tess", wanted("vision", "ci", "tenant-admin", time.Hour), codes.OK},
		"another tenant":      {"tess", wanted("speech", "ci", "user", time.Hour), codes.NotFound},
		"every tenant":        {"tess", wanted("*", "ci", "user", time.Hour), codes.NotFound},
		"an admin":            {"tess", wanted("vision", "adm", "admin", time.Hour), codes.PermissionDenied},
		"an auditor":          {"tess", wanted("vision", "aud", "auditor", time.Hour), codes.PermissionDenied},
		"a user":              {"ann", wanted("vision", "mine", "user", time.Hour), codes.PermissionDenied},
		"a name of a person":  {"root", wanted("vision", "Ann@x", "user", time.Hour), codes.InvalidArgument},
		"no such role":        {"root", wanted("vision", "x", "boss", time.Hour), codes.InvalidArgument},
		"no such scope":       {"root", wanted("vision", "x", "user", time.Hour, "all"), codes.InvalidArgument},
		"for ever":            {"root", wanted("vision", "x", "user", 500*24*time.Hour), codes.InvalidArgument},
		"of a strange tenant": {"root", wanted("a/b", "x", "user", time.Hour), codes.InvalidArgument},
	} {
		if _, err := by[tc.who].CreateToken(t.Context(), tc.req); status.Code(err) != tc.want {
			t.Errorf("%s by %s: %v, want %s", name, tc.who, err, tc.want)
		}
	}
	if _, err := by["root"].CreateToken(t.Context(), wanted("vision", "ci", "user", time.Hour)); status.Code(err) != codes.AlreadyExists {
		t.Errorf("a name that exists: %v", err)
	}
	if _, err := by["root"].CreateToken(t.Context(), wanted("vision", "aud", "auditor", time.Hour)); err != nil {
		t.Fatal(err)
	}
	if _, err := by["tess"].RotateToken(t.Context(), &outbidv1.RotateTokenRequest{Name: "aud"}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a tenant-admin takes an auditor's token: %v", err)
	}
	if _, err := by["tess"].RevokeToken(t.Context(), &outbidv1.RevokeTokenRequest{Tenant: "*", Name: "board"}); status.Code(err) != codes.NotFound {
		t.Errorf("a tenant-admin revokes a token of every tenant: %v", err)
	}
}
