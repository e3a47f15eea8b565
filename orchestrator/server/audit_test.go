package server_test

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/api"
	"github.com/outbid-dev/outbid/orchestrator/audit"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// auditLines returns the lines of a server's audit that a request selects.
func auditLines(t *testing.T, c outbidv1.OutbidServiceClient, req *outbidv1.ListAuditRequest) (lines []string) {
	t.Helper()
	req.Lines = true
	for {
		page, err := c.ListAudit(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page.GetRecords() {
			lines = append(lines, r.GetLine())
		}
		if req.AfterSeq = page.GetLastSeq(); !page.GetMore() {
			return lines
		}
	}
}

// TestTheAuditOutlivesItsServer makes calls on a real server, starts it again, and verifies the chain and the file.
func TestTheAuditOutlivesItsServer(t *testing.T) {
	t.Parallel()
	var file bytes.Buffer
	cfg := config(t)
	cfg.AuditLog = &file
	s := run(t, cfg)
	if _, err := s.SetTenant(t.Context(), &outbidv1.SetTenantRequest{Tenant: &outbidv1.Tenant{Name: "vision", Weight: 2}}); err != nil {
		t.Fatal(err)
	}
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	s = run(t, cfg)
	lines := auditLines(t, s, &outbidv1.ListAuditRequest{PageSize: 2})
	verbs := verified(t, lines)
	if want := "start servers|update tenants|stop servers|start servers"; verbs != want {
		t.Errorf("%s, want %s", verbs, want)
	}
	if got := auditLines(t, s, &outbidv1.ListAuditRequest{Tenant: "vision", Actor: "local"}); len(got) != 1 {
		t.Errorf("%d records of the tenant", len(got))
	}
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	if verbs := verified(t, strings.Split(strings.TrimSpace(file.String()), "\n")); verbs != "start servers|update tenants|stop servers|start servers|stop servers" {
		t.Errorf("the file has %s", verbs)
	}
}

// verified checks the chain of lines and returns their verbs and resources.
func verified(t *testing.T, lines []string) string {
	t.Helper()
	var v audit.Verifier
	var verbs []string
	for _, line := range lines {
		if err := v.Add([]byte(line)); err != nil {
			t.Fatal(err)
		}
		r, err := audit.Parse([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		verbs = append(verbs, r.Verb+" "+r.ObjectRef.Resource)
	}
	return strings.Join(verbs, "|")
}

// TestTheAuditNamesEditsOfTheTokensFile edits the file of a running server.
func TestTheAuditNamesEditsOfTheTokensFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens")
	var tokens []string
	for _, who := range []api.Principal{{Name: "root", Tenant: "*", Role: api.RoleAdmin}, {Name: "ann", Tenant: "vision", Role: api.RoleUser}} {
		token, err := api.MakeToken(path, who)
		if err != nil {
			t.Fatal(err)
		}
		tokens = append(tokens, token)
	}
	cfg := config(t)
	cfg.Tokens = path
	s := run(t, cfg)
	if err := os.WriteFile(path, []byte(tokens[0]+" root * admin\nnew-new-new-new-new-new bob speech viewer\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	text := awaitAudit(t, s, tokens[0], `"resource":"tokens","namespace":"vision","name":"ann"`)
	for _, want := range []string{
		`"verb":"create","user":{"username":"system:server"},"objectRef":{"resource":"tokens","namespace":"speech","name":"bob"}`,
		`"verb":"delete","user":{"username":"system:server"},"objectRef":{"resource":"tokens","namespace":"vision","name":"ann"}`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is not in %s", want, text)
		}
	}
	for _, secret := range append(tokens, "new-new") {
		if strings.Contains(text, secret) {
			t.Errorf("the audit has the token %s", secret)
		}
	}
}

// awaitAudit waits until the lines of a server's audit contain a text, and returns them as REST shows them.
func awaitAudit(t *testing.T, s *running, token, want string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		text := auditText(t, ctx, s, token)
		if strings.Contains(text, want) {
			return text
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s is not in %s", want, text)
		}
	}
}

func auditText(t *testing.T, ctx context.Context, s *running, token string) string { //nolint:revive // t is first in helpers
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL()+"/v1/audit?lines=true&page_size=1000", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(resp.Body); err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(b.String(), `\"`, `"`)
}
