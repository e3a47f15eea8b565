package cli

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// SetSecret implements the service.
func (f *fakeService) SetSecret(_ context.Context, req *outbidv1.SetSecretRequest) (*outbidv1.SetSecretResponse, error) {
	f.note(req)
	tenant := req.GetTenant()
	if tenant == "" {
		tenant = "default"
	}
	return &outbidv1.SetSecretResponse{Secret: &outbidv1.Secret{Name: req.GetName(), Tenant: tenant, SetAt: ago(0)}}, nil
}

// ListSecrets implements the service.
func (f *fakeService) ListSecrets(_ context.Context, req *outbidv1.ListSecretsRequest) (*outbidv1.ListSecretsResponse, error) {
	f.note(req)
	return &outbidv1.ListSecretsResponse{Secrets: []*outbidv1.Secret{{Name: "wandb", Tenant: "vision", SetAt: ago(0), SetBy: "ann"}}}, nil
}

// DeleteSecret implements the service.
func (f *fakeService) DeleteSecret(_ context.Context, req *outbidv1.DeleteSecretRequest) (*outbidv1.DeleteSecretResponse, error) {
	f.note(req)
	if req.GetName() != "wandb" {
		return nil, status.Error(codes.NotFound, "there is no such secret")
	}
	return &outbidv1.DeleteSecretResponse{}, nil
}

// RemoveTenant implements the service.
func (f *fakeService) RemoveTenant(_ context.Context, req *outbidv1.RemoveTenantRequest) (*outbidv1.RemoveTenantResponse, error) {
	f.note(req)
	return &outbidv1.RemoveTenantResponse{}, nil
}

const typedSecret = "typed-secret-value"

func TestSecretSetTakesTheValueFromWhereItIsTold(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "value")
	if err := os.WriteFile(file, []byte(typedSecret+"\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"standard input": nil, "a file": {"--from-file", file}, "a variable": {"--from-env", "WANDB"},
	} {
		service := &fakeService{}
		url, _ := serveFake(t, service, "127.0.0.1:0")
		app := newTestApp(strings.NewReader(typedSecret+"\n"), map[string]string{"WANDB": typedSecret, "OUTBID_URL": url})
		code := <-app.start(t.Context(), append([]string{"secret", "set", "wandb", "--tenant", "vision"}, args...)...)
		if code != 0 || strings.Contains(app.out.String()+app.err.String(), typedSecret) {
			t.Errorf("from %s: exit code %d:\n%s%s", name, code, app.out, app.err)
		}
		if got, ok := service.asked[0].(*outbidv1.SetSecretRequest); !ok || got.GetValue() != typedSecret || got.GetTenant() != "vision" || got.GetName() != "wandb" {
			t.Errorf("from %s: sent %v", name, service.asked)
		}
	}
}

func TestSecretSetRefusesWhatIsNoValue(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"unexpected argument":            {"wandb", typedSecret},
		"the value is empty":             {"wandb"},
		"MISSING is not set or is empty": {"wandb", "--from-env", "MISSING"},
		"none of the others can be":      {"wandb", "--from-env", "A", "--from-file", "b"},
	} {
		app := newTestApp(strings.NewReader("\n"), nil)
		if code := <-app.start(t.Context(), append([]string{"secret", "set"}, args...)...); code != 2 || !strings.Contains(app.err.String(), want) {
			t.Errorf("%v: exit code %d, not told %q:\n%s", args, code, want, app.err)
		}
	}
}

func TestSecretsAreListedAndRemoved(t *testing.T) {
	t.Parallel()
	url, _ := serveFake(t, &fakeService{}, "127.0.0.1:0")
	for want, args := range map[string][]string{
		"wandb  vision  2026-05-04 12:00:00  ann": {"ls"},
		`"set_by":"ann"`:                  {"list", "-o", "json"},
		"secret wandb is removed":         {"rm", "wandb"},
		"outbid: there is no such secret": {"remove", "other"},
	} {
		app := newTestApp(strings.NewReader(""), map[string]string{"OUTBID_URL": url})
		<-app.start(t.Context(), append([]string{"secret"}, args...)...)
		if text := app.out.String() + app.err.String(); !strings.Contains(text, want) {
			t.Errorf("%v: not %q:\n%s", args, want, text)
		}
	}
}

// TestTenantRemoveNamesWhatStays checks that removing a tenant keeps its secrets and reports them.
func TestTenantRemoveNamesWhatStays(t *testing.T) {
	t.Parallel()
	service := &fakeService{}
	url, _ := serveFake(t, service, "127.0.0.1:0")
	app := newTestApp(nil, map[string]string{"OUTBID_URL": url})
	code := <-app.start(t.Context(), "tenant", "remove", "vision")
	if code != 0 || !strings.Contains(app.out.String(), "vision no longer has settings") ||
		!strings.Contains(app.err.String(), "1 of its secrets remain: 'outbid secret list --tenant vision'") {
		t.Errorf("exit code %d:\n%s%s", code, app.out, app.err)
	}
}
