package cli

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/outbid-dev/outbid/orchestrator/audit"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// auditFile has three records that a server wrote.
const auditFile = "testdata/audit.jsonl"

func auditLines(t *testing.T) []string {
	t.Helper()
	data, err := os.ReadFile(auditFile)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(data)), "\n")
}

// ListAudit implements the service. Each page has one record.
func (f *fakeService) ListAudit(_ context.Context, req *outbidv1.ListAuditRequest) (*outbidv1.ListAuditResponse, error) {
	f.note(req)
	data, err := os.ReadFile(auditFile)
	if err != nil {
		return nil, err
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	resp := &outbidv1.ListAuditResponse{LastSeq: req.GetAfterSeq()}
	if int(req.GetAfterSeq()) >= len(lines) {
		return resp, nil
	}
	line := lines[req.GetAfterSeq()]
	r, err := audit.Parse([]byte(line))
	if err != nil {
		return nil, err
	}
	event, err := json.Marshal(r.Event)
	if err != nil {
		return nil, err
	}
	record := &outbidv1.AuditRecord{Seq: r.Seq, Event: &structpb.Struct{}, Line: line}
	if err := record.GetEvent().UnmarshalJSON(event); err != nil {
		return nil, err
	}
	resp.LastSeq++
	resp.Records, resp.More = []*outbidv1.AuditRecord{record}, int(resp.GetLastSeq()) < len(lines)
	return resp, nil
}

// TestAuditSelectsRecords checks what the flags send.
func TestAuditSelectsRecords(t *testing.T) {
	t.Parallel()
	service := &fakeService{}
	url, _ := serveFake(t, service, "127.0.0.1:0")
	app := newTestApp(strings.NewReader(""), map[string]string{"OUTBID_URL": url})
	if code := app.run(t.Context(), []string{"audit", "--since", "2d", "--actor", "ann", "--tenant", "vision", "--denied", "-o", "jsonl"}); code != 0 {
		t.Fatalf("exit %d: %s", code, app.err)
	}
	req, ok := service.asked[0].(*outbidv1.ListAuditRequest)
	if !ok || !req.GetSince().AsTime().Equal(noon().Add(-48*time.Hour)) || req.GetActor() != "ann" || req.GetTenant() != "vision" || !req.GetDenied() {
		t.Errorf("%v", service.asked)
	}
	if n := strings.Count(app.out.String(), "\n"); n != 3 || len(service.asked) != 3 {
		t.Errorf("%d lines after %d calls:\n%s", n, len(service.asked), app.out)
	}
}

// TestAuditVerifyChecksAFile verifies good, damaged and shortened files.
func TestAuditVerifyChecksAFile(t *testing.T) {
	t.Parallel()
	lines := auditLines(t)
	last, err := audit.Parse([]byte(lines[2]))
	if err != nil {
		t.Fatal(err)
	}
	anchor := audit.Anchor{Seq: last.Seq, Hash: last.Hash}.String()
	for name, tc := range map[string]struct {
		text string
		args []string
		code int
		want string
	}{
		"intact":       {strings.Join(lines, "\n") + "\n", []string{"--anchor", anchor}, 0, "anchor: " + anchor},
		"no newline":   {strings.Join(lines, "\n"), nil, 0, "3 records"},
		"empty":        {"", nil, 0, "no records"},
		"tampered":     {strings.Replace(strings.Join(lines, "\n"), `"username":"ann"`, `"username":"eve"`, 1), nil, 1, "was changed"},
		"removed":      {lines[0] + "\n" + lines[2], nil, 1, "were removed or reordered"},
		"end removed":  {lines[0] + "\n" + lines[1], []string{"--anchor", anchor}, 1, "its end was removed"},
		"not an audit": {"hello\n", nil, 1, "not an audit record"},
		"bad anchor":   {"", []string{"--anchor", "7"}, 2, "--anchor"},
	} {
		path := filepath.Join(t.TempDir(), "audit.jsonl")
		if err := os.WriteFile(path, []byte(tc.text), 0o600); err != nil {
			t.Fatal(err)
		}
		app := newTestApp(strings.NewReader(""), nil)
		code := app.run(t.Context(), append([]string{"audit", "verify", "--file", path}, tc.args...))
		if all := app.out.String() + app.err.String(); code != tc.code || !strings.Contains(all, tc.want) {
			t.Errorf("%s: exit %d, %s", name, code, all)
		}
	}
}
