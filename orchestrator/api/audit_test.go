package api

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/audit"
	"github.com/outbid-dev/outbid/orchestrator/identity"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// fakeAudit keeps events.
type fakeAudit struct {
	mu     sync.Mutex
	events []audit.Event
	lines  []string
}

func (f *fakeAudit) Record(_ context.Context, e audit.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events = append(f.events, e)
}

func (f *fakeAudit) Read(_ context.Context, q audit.Query, each func([]byte) bool) (uint64, bool, error) {
	for n, line := range f.lines[q.After:] {
		if !each([]byte(line)) {
			return q.After + uint64(n) + 1, int(q.After)+n+1 < len(f.lines), nil
		}
	}
	return uint64(len(f.lines)), false, nil
}

// take returns the events since the last call.
func (f *fakeAudit) take() []audit.Event {
	f.mu.Lock()
	defer f.mu.Unlock()
	taken := f.events
	f.events = nil
	return taken
}

// brief describes an event in one line.
func brief(e audit.Event) string {
	words := []string{e.User.Username, e.Verb, e.ObjectRef.Resource, e.ObjectRef.Namespace, e.ObjectRef.Name, e.ResponseStatus.Reason, e.Denied()}
	for i, w := range words {
		if w == "" {
			words[i] = "-"
		}
	}
	return strings.Join(words, " ")
}

func serveAudited(t *testing.T) (*testServer, *fakeAudit) {
	t.Helper()
	records := &fakeAudit{}
	h := serve(t, func(c *Config) { c.Tokens, c.Audit, c.Workers = testTokens(t), records, oneToken{} })
	h.control.add("digits-1", "vision", 1)
	h.control.add("words-2", "speech", 1)
	return h, records
}

// TestTheAuditHasChangesAndDenials makes one call of each kind and compares the records.
func TestTheAuditHasChangesAndDenials(t *testing.T) {
	t.Parallel()
	h, records := serveAudited(t)
	call := func(who string, f func(context.Context, outbidv1.OutbidServiceClient) error) func() {
		return func() { _ = f(t.Context(), dialAs(t, h, who)) }
	}
	cordon := func(ctx context.Context, c outbidv1.OutbidServiceClient) error {
		_, err := c.ControlNode(ctx, &outbidv1.ControlNodeRequest{Node: "gpu-7", Command: outbidv1.NodeCommand_NODE_COMMAND_CORDON})
		return err
	}
	logs := func(ctx context.Context, c outbidv1.OutbidServiceClient) error {
		stream, err := c.StreamLogs(ctx, &outbidv1.StreamLogsRequest{Sweep: "digits-1"})
		if err == nil {
			_, err = stream.Recv()
		}
		return err
	}
	for name, tc := range map[string]struct {
		call func()
		want string
	}{
		"a read has no record":      {call("ann", get), ""},
		"a change":                  {call("ann", pause), "ann pause sweeps vision digits-1 OK -"},
		"asks are in the ledger":    {call("ann", ask), ""},
		"another tenant's sweep":    {call("bob", get), "bob get sweeps vision digits-1 NOT_FOUND tenant"},
		"a change there":            {call("bob", pause), "bob pause sweeps vision digits-1 NOT_FOUND tenant"},
		"another tenant's stream":   {call("bob", watchOnce), "bob watch sweeps vision digits-1 NOT_FOUND tenant"},
		"the wrong role":            {call("eve", pause), "eve pause sweeps vision digits-1 PERMISSION_DENIED role"},
		"the wrong role, a stream":  {call("ann", readLedger), "ann get ledger - - PERMISSION_DENIED role"},
		"administration":            {call("root", cordon), "root cordon nodes - gpu-7 OK -"},
		"the ledger":                {call("root", readLedger), "root get ledger - - OK -"},
		"logs of one's own tenant":  {call("ann", logs), ""},
		"logs, read by an admin":    {call("root", logs), "root get logs vision digits-1/0 OK -"},
		"an unknown token":          {func() { _ = get(t.Context(), h.dial(t, strings.Repeat("x", 30))) }, "system:anonymous get sweeps - - UNAUTHENTICATED unauthenticated"},
		"a secret of another":       {call("bob", setSecret), "bob update secrets vision wandb NOT_FOUND tenant"},
		"a worker with a bad token": {call("root", join), "system:anonymous join nodes - gpu-7 PERMISSION_DENIED unauthenticated"},
	} {
		tc.call()
		var got []string
		for _, e := range records.take() {
			got = append(got, brief(e))
		}
		if strings.Join(got, "\n") != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func setSecret(ctx context.Context, c outbidv1.OutbidServiceClient) error {
	_, err := c.SetSecret(ctx, &outbidv1.SetSecretRequest{Tenant: "vision", Name: "wandb", Value: "very secret"})
	return err
}

func join(ctx context.Context, c outbidv1.OutbidServiceClient) error {
	key, err := identity.NewKey()
	if err != nil {
		return err
	}
	_, err = c.JoinWorker(ctx, &outbidv1.JoinWorkerRequest{Token: "no", Node: "gpu-7", PublicKey: key.Public()})
	return err
}

// TestARecordSaysWhoCalledFromWhere checks the origin of gRPC and REST calls. A client cannot choose its address.
func TestARecordSaysWhoCalledFromWhere(t *testing.T) {
	t.Parallel()
	h, records := serveAudited(t)
	h.call(t, http.MethodPost, "/v1/sweeps/digits-1:control", `{"command":"SWEEP_COMMAND_PAUSE"}`, "Authorization", "Bearer "+token("ann"),
		"User-Agent", "an agent", "X-Forwarded-For", "10.1.2.3")
	_ = pause(t.Context(), dialAs(t, h, "ann"))
	events := records.take()
	if len(events) != 2 {
		t.Fatalf("%d records", len(events))
	}
	for i, agent := range []string{"agent", "grpc-go"} {
		e := events[i]
		if len(e.SourceIPs) != 1 || e.SourceIPs[0] != "127.0.0.1" || !strings.Contains(e.UserAgent, agent) {
			t.Errorf("from %v with %q", e.SourceIPs, e.UserAgent)
		}
		if strings.Join(e.User.Groups, " ") != "role:user tenant:vision" || e.ResponseStatus.Code != 200 || e.RequestReceivedTimestamp.IsZero() {
			t.Errorf("%+v", e)
		}
	}
}

// TestNoRecordHasASecret checks that neither values of secrets nor tokens reach the audit.
func TestNoRecordHasASecret(t *testing.T) {
	t.Parallel()
	h, records := serveAudited(t)
	_ = setSecret(t.Context(), dialAs(t, h, "ann"))
	h.call(t, http.MethodPost, SessionPath, `{"token":"wrong-wrong-wrong-wrong"}`)
	h.call(t, http.MethodPost, SessionPath, `{"token":"`+token("ann")+`"}`)
	h.call(t, http.MethodGet, "/v1/sweeps", "", "Authorization", "Bearer wrong-wrong-wrong-wrong")
	events := records.take()
	if len(events) != 4 {
		t.Errorf("%d records, want 4", len(events))
	}
	text := fmt.Sprintf("%+v", events)
	for _, secret := range []string{"very secret", "wrong-wrong", token("ann")} {
		if strings.Contains(text, secret) {
			t.Errorf("%q is in %s", secret, text)
		}
	}
}
