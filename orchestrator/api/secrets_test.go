package api

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/outbid-dev/outbid/orchestrator/secrets"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// fakeSecrets stores secrets in memory. It is not safe for concurrent use.
type fakeSecrets map[string]string

func (f fakeSecrets) Set(_ context.Context, tenant, name, value, by string) (secrets.Info, error) {
	f[tenant+"/"+name] = value
	return secrets.Info{Tenant: tenant, Name: name, SetBy: by}, nil
}

func (f fakeSecrets) List(tenant string) []secrets.Info {
	var found []secrets.Info
	for key := range f {
		if name, ok := strings.CutPrefix(key, tenant+"/"); ok {
			found = append(found, secrets.Info{Tenant: tenant, Name: name})
		}
	}
	return found
}

func (f fakeSecrets) Has(tenant, name string) bool { return f[tenant+"/"+name] != "" }

func (f fakeSecrets) Delete(_ context.Context, tenant, name string) error {
	if !f.Has(tenant, name) {
		return fmt.Errorf("secret %s: %w", name, secrets.ErrMissing)
	}
	delete(f, tenant+"/"+name)
	return nil
}

// logLines collects log lines.
type logLines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logLines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// dialAs returns a client with a token.
func dialAs(t *testing.T, h *testServer, name string) outbidv1.OutbidServiceClient {
	t.Helper()
	conn, err := grpc.NewClient(h.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithPerRPCCredentials(bearer(token(name))))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return outbidv1.NewOutbidServiceClient(conn)
}

func TestSecretsBelongToATenant(t *testing.T) {
	t.Parallel()
	kept := fakeSecrets{}
	h := serve(t, func(c *Config) { c.Tokens, c.Secrets = testTokens(t), kept })
	ctx, ann, bob, root := t.Context(), dialAs(t, h, "ann"), dialAs(t, h, "bob"), dialAs(t, h, "root")
	got, err := ann.SetSecret(ctx, &outbidv1.SetSecretRequest{Name: "wandb", Value: "value-of-ann\n"})
	if s := got.GetSecret(); err != nil || s.GetTenant() != "vision" || s.GetSetBy() != "ann" || kept["vision/wandb"] != "value-of-ann\n" {
		t.Fatalf("%v, %v; kept %v", got, err, kept)
	}
	if _, err := bob.ListSecrets(ctx, &outbidv1.ListSecretsRequest{Tenant: "vision"}); status.Code(err) != codes.NotFound {
		t.Errorf("another tenant's list: %v", err)
	}
	if _, err := bob.DeleteSecret(ctx, &outbidv1.DeleteSecretRequest{Tenant: "vision", Name: "wandb"}); status.Code(err) != codes.NotFound {
		t.Errorf("another tenant's removal: %v", err)
	}
	if _, err := bob.SetSecret(ctx, &outbidv1.SetSecretRequest{Tenant: "vision", Name: "wandb", Value: "x"}); status.Code(err) != codes.NotFound {
		t.Errorf("another tenant's set: %v", err)
	}
	list, err := root.ListSecrets(ctx, &outbidv1.ListSecretsRequest{Tenant: "vision"})
	if err != nil || len(list.GetSecrets()) != 1 {
		t.Errorf("an admin's list: %v, %v", list, err)
	}
	if _, err := ann.DeleteSecret(ctx, &outbidv1.DeleteSecretRequest{Name: "wandb"}); err != nil || len(kept) != 0 {
		t.Errorf("%v, left %v", err, kept)
	}
	if _, err := ann.DeleteSecret(ctx, &outbidv1.DeleteSecretRequest{Name: "wandb"}); status.Code(err) != codes.NotFound {
		t.Errorf("removed twice: %v", err)
	}
}

func TestWrongSecretsAreRefusedWithoutTheirValue(t *testing.T) {
	t.Parallel()
	var lines logLines
	h := serve(t, func(c *Config) {
		c.Tokens, c.Secrets = testTokens(t), fakeSecrets{}
		c.Logger = slog.New(slog.NewTextHandler(&lines, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	const value = "do-not-show-me"
	for name, req := range map[string]*outbidv1.SetSecretRequest{
		"name":   {Name: "a b", Value: value},
		"value":  {Name: "a", Value: strings.Repeat(value, 4000)},
		"zero":   {Name: "a", Value: value + "\x00"},
		"bidi":   {Name: "a", Value: value + "\u202e"},
		"empty":  {Name: "a"},
		"tenant": {Name: "a", Value: value, Tenant: "Not A Tenant"},
	} {
		_, err := dialAs(t, h, "root").SetSecret(t.Context(), req)
		if status.Code(err) != codes.InvalidArgument || strings.Contains(err.Error(), value) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, body := range map[string]string{
		"a number":     `{"value": 123456789012}`,
		"a list":       `{"value": ["do-not-show-me"]}`,
		"not JSON":     `{"value": "do-not-show-me`,
		"text":         `do-not-show-me`,
		"other field":  `{"do-not-show-me": 1}`,
		"invalid text": "{\"value\": \"do-not-show-me\xff\"}",
	} {
		text := put(t, h, "/v1/tenants/default/secrets/a", body)
		if strings.Contains(text, value) || strings.Contains(text, "123456789012") {
			t.Errorf("%s: %s", name, text)
		}
	}
	if log := lines.text(); !strings.Contains(log, "SetSecret") || strings.Contains(log, value) || strings.Contains(log, "123456789012") {
		t.Errorf("the log has a value:\n%s", log)
	}
}

// put sends a body as an admin and returns the answer.
func put(t *testing.T, h *testServer, path, body string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, h.URL()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token("root"))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestViewersWithoutLogsSeeNoValuesOfVariables(t *testing.T) {
	t.Parallel()
	const value = "the-value-of-a-variable"
	h := serve(t, func(c *Config) { c.Tokens = testTokens(t) })
	h.control.add("digits-1", "vision", 1)
	h.control.change("digits-1", func(s *fakeSweep) {
		s.view.Spec.Workload = &outbidv1.SweepSpec_Program{Program: &outbidv1.Program{
			Shell: "true", Env: map[string]string{"A": value}, Secrets: map[string]string{"B": "b"},
		}}
	})
	ctx := t.Context()
	for name, shown := range map[string]bool{"eve": true, "ned": false} {
		c := dialAs(t, h, name)
		one, err := c.GetSweep(ctx, &outbidv1.GetSweepRequest{Sweep: "digits-1"})
		if err != nil {
			t.Fatal(err)
		}
		all, err := c.ListSweeps(ctx, &outbidv1.ListSweepsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		watch, err := c.WatchSweep(ctx, &outbidv1.WatchSweepRequest{Sweep: "digits-1"})
		if err != nil {
			t.Fatal(err)
		}
		news, err := watch.Recv()
		if err != nil {
			t.Fatal(err)
		}
		for what, s := range map[string]*outbidv1.Sweep{"get": one.GetSweep(), "list": all.GetSweeps()[0], "watch": news.GetSweep()} {
			p := s.GetSpec().GetProgram()
			if (p.GetEnv()["A"] == value) != shown || p.GetEnv()["A"] == "" || p.GetSecrets()["B"] != "b" {
				t.Errorf("%s by %s: %v", what, name, p)
			}
		}
	}
}

func TestSubmitNamesAMissingSecretAndWarnsOfAnOpenOne(t *testing.T) {
	t.Parallel()
	h := serve(t, func(c *Config) { c.Tokens, c.Secrets = testTokens(t), fakeSecrets{"vision/wandb": "v"} })
	s := okSpec()
	s.Workload = &outbidv1.SweepSpec_Program{Program: &outbidv1.Program{
		Shell: "true", Env: map[string]string{"HF_TOKEN": "x", "MONKEY": "y"}, Secrets: map[string]string{"WANDB_API_KEY": "wandb"},
	}}
	if _, err := dialAs(t, h, "bob").SubmitSweep(t.Context(), &outbidv1.SubmitSweepRequest{Spec: s}); status.Code(err) != codes.InvalidArgument ||
		!strings.Contains(err.Error(), `program.env.WANDB_API_KEY: tenant speech has no secret "wandb"; set it with 'outbid secret set wandb'`) {
		t.Errorf("another tenant's secret: %v", err)
	}
	got, err := dialAs(t, h, "ann").SubmitSweep(t.Context(), &outbidv1.SubmitSweepRequest{Spec: s})
	if err != nil || len(got.GetWarnings()) != 1 || !strings.HasPrefix(got.GetWarnings()[0], "program.env.HF_TOKEN is stored in the ledger") {
		t.Errorf("%v: %q", err, got.GetWarnings())
	}
}
