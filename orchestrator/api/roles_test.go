package api

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

var updateDocs = flag.Bool("update", false, "write the generated part of docs/reference/roles.md again")

// rolesPage has a table of the roles that may call each RPC. It is the expected result of TestEveryMethodByEveryRole.
const rolesPage = "../../docs/reference/roles.md"

// TestEveryMethodByEveryRole calls every RPC of every service with a token of each role, on a real server, and compares
// with the table of the documentation. Each call has an empty request, so an allowed one fails for another reason.
func TestEveryMethodByEveryRole(t *testing.T) {
	t.Parallel()
	tokens := ""
	for _, role := range Roles() {
		tokens += fmt.Sprintf("%s %s * %s\n", token("every-"+string(role)), role, role)
	}
	list, err := ParseTokens(strings.NewReader(tokens), "tokens")
	if err != nil {
		t.Fatal(err)
	}
	h := serve(t, func(c *Config) { c.Tokens = list })
	for _, stranger := range []string{"", "unknown-unknown-unknown"} {
		for _, m := range everyMethod(t) {
			code := status.Code(callEmpty(t, h.connect(t, stranger), m))
			if open := ruleOf(fullName(m)).need == open; open == (code == codes.Unauthenticated) {
				t.Errorf("%s by the token %q: %s", m.Name(), stranger, code)
			}
		}
	}
	var table strings.Builder
	table.WriteString("| call | permission |")
	for _, role := range Roles() {
		fmt.Fprintf(&table, " %s |", role)
	}
	table.WriteString("\n|---|---|" + strings.Repeat("---|", len(Roles())) + "\n")
	for _, m := range everyMethod(t) {
		fmt.Fprintf(&table, "| %s | %s |", m.Name(), ruleOf(fullName(m)).need)
		for _, role := range Roles() {
			code := status.Code(callEmpty(t, h.connect(t, token("every-"+string(role))), m))
			mark := "yes"
			if code == codes.PermissionDenied || code == codes.Unauthenticated {
				mark = "–"
			}
			fmt.Fprintf(&table, " %s |", mark)
		}
		table.WriteString("\n")
	}
	checkGenerated(t, table.String())
}

// checkGenerated compares the generated part of rolesPage, or writes it with -update.
func checkGenerated(t *testing.T, want string) {
	t.Helper()
	page, err := os.ReadFile(rolesPage)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- generated: calls -->\n", "<!-- /generated: calls -->"
	before, rest, opened := strings.Cut(string(page), begin)
	got, after, closed := strings.Cut(rest, end)
	if !opened || !closed {
		t.Fatalf("%s has no %s", rolesPage, begin)
	}
	if got == want {
		return
	}
	if !*updateDocs {
		t.Errorf("the roles may call other RPCs than %s says; if that is right, run: go test ./orchestrator/api -run %s -update\n%s", rolesPage, t.Name(),
			cmp.Diff(got, want))
		return
	}
	if err := os.WriteFile(rolesPage, []byte(before+begin+want+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// everyMethod returns the RPCs of every service of the API. Each must have a rule.
func everyMethod(t *testing.T) (all []protoreflect.MethodDescriptor) {
	t.Helper()
	services := outbidv1.File_outbid_v1_service_proto.Services()
	for i := range services.Len() {
		methods := services.Get(i).Methods()
		for j := range methods.Len() {
			m := methods.Get(j)
			if _, known := rules()[fullName(m)]; !known {
				t.Fatalf("add %s to rules: the permission that it requires, and how the audit describes it", m.Name())
			}
			all = append(all, m)
		}
	}
	return all
}

func fullName(m protoreflect.MethodDescriptor) string {
	return "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
}

// connect returns a connection that sends a token unless it is empty.
func (h *testServer) connect(t *testing.T, token string) *grpc.ClientConn {
	t.Helper()
	opts := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	if token != "" {
		opts = append(opts, grpc.WithPerRPCCredentials(bearer(token)))
	}
	conn, err := grpc.NewClient(h.Addr(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// callEmpty calls a method with an empty request and returns its error.
func callEmpty(t *testing.T, conn *grpc.ClientConn, m protoreflect.MethodDescriptor) error {
	t.Helper()
	return callWith(t, conn, m, dynamicpb.NewMessage(m.Input()))
}

// callWith calls a method with a request and returns its error.
func callWith(t *testing.T, conn *grpc.ClientConn, m protoreflect.MethodDescriptor, req proto.Message) error {
	t.Helper()
	stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, fullName(m))
	if err != nil {
		return err
	}
	_ = stream.SendMsg(req) // the answer has the error
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
`+token("tess")+` tess vision tenant-admin
`+token("olga")+` olga * operator
`+token("audi")+` audi * auditor
`+token("vera")+` vera vision auditor
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

// TestATenantAdminManagesOneTenant changes tenants with every caller that has a reason to.
func TestATenantAdminManagesOneTenant(t *testing.T) {
	t.Parallel()
	h := serve(t, func(c *Config) { c.Tokens = testTokens(t) })
	vision := func() *outbidv1.Tenant { return &outbidv1.Tenant{Name: "vision", Weight: 2, Members: []string{"zoe"}} }
	if _, err := dialAs(t, h, "root").SetTenant(t.Context(), &outbidv1.SetTenantRequest{Tenant: vision()}); err != nil {
		t.Fatal(err)
	}
	members := vision()
	members.Members = []string{"zoe", "ned"}
	heavier := vision()
	heavier.Weight = 9
	unset := vision()
	unset.Quota, unset.Limits = &outbidv1.TenantQuota{}, &outbidv1.TenantLimits{}
	limited := vision()
	limited.Limits = &outbidv1.TenantLimits{Sweeps: proto.Int32(1 << 20)}
	for name, tc := range map[string]struct {
		who  string
		req  *outbidv1.SetTenantRequest
		want codes.Code
	}{
		"members":         {"tess", &outbidv1.SetTenantRequest{Tenant: members}, codes.OK},
		"what is not set": {"tess", &outbidv1.SetTenantRequest{Tenant: unset}, codes.OK},
		"weight":          {"tess", &outbidv1.SetTenantRequest{Tenant: heavier}, codes.PermissionDenied},
		"limits":          {"tess", &outbidv1.SetTenantRequest{Tenant: limited}, codes.PermissionDenied},
		"another tenant":  {"tess", &outbidv1.SetTenantRequest{Tenant: &outbidv1.Tenant{Name: "speech", Weight: 1}}, codes.NotFound},
		"a new tenant":    {"tess", &outbidv1.SetTenantRequest{Tenant: &outbidv1.Tenant{Name: "fresh", Weight: 1}, Add: true}, codes.NotFound},
		"a user":          {"ann", &outbidv1.SetTenantRequest{Tenant: members}, codes.PermissionDenied},
		"an operator":     {"olga", &outbidv1.SetTenantRequest{Tenant: members}, codes.PermissionDenied},
	} {
		if _, err := dialAs(t, h, tc.who).SetTenant(t.Context(), tc.req); status.Code(err) != tc.want {
			t.Errorf("%s by %s: %v, want %s", name, tc.who, err, tc.want)
		}
		if _, err := dialAs(t, h, "root").SetTenant(t.Context(), &outbidv1.SetTenantRequest{Tenant: vision()}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAnAuditorOfATenantReadsOnlyItsRecords gives two auditors the same audit.
func TestAnAuditorOfATenantReadsOnlyItsRecords(t *testing.T) {
	t.Parallel()
	lines, err := os.ReadFile("../cli/testdata/audit.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	records := &fakeAudit{lines: strings.Split(strings.TrimSpace(string(lines)), "\n")}
	h := serve(t, func(c *Config) { c.Tokens, c.Audit = testTokens(t), records })
	for name, tc := range map[string]struct {
		who  string
		req  *outbidv1.ListAuditRequest
		n    int
		want codes.Code
	}{
		"every tenant":         {"audi", &outbidv1.ListAuditRequest{}, 3, codes.OK},
		"lines":                {"audi", &outbidv1.ListAuditRequest{Lines: true}, 3, codes.OK},
		"the own tenant":       {"vera", &outbidv1.ListAuditRequest{}, 2, codes.OK},
		"denials of it":        {"vera", &outbidv1.ListAuditRequest{Tenant: "vision", Denied: true}, 1, codes.OK},
		"another tenant":       {"vera", &outbidv1.ListAuditRequest{Tenant: "speech"}, 0, codes.NotFound},
		"lines of all tenants": {"vera", &outbidv1.ListAuditRequest{Lines: true}, 0, codes.PermissionDenied},
		"a tenant-admin":       {"tess", &outbidv1.ListAuditRequest{}, 0, codes.PermissionDenied},
	} {
		got, err := dialAs(t, h, tc.who).ListAudit(t.Context(), tc.req)
		if status.Code(err) != tc.want || len(got.GetRecords()) != tc.n {
			t.Errorf("%s: %d records, %v", name, len(got.GetRecords()), err)
		}
	}
	if err := readLedger(t.Context(), dialAs(t, h, "audi")); err != nil {
		t.Errorf("the ledger by an auditor of every tenant: %v", err)
	}
	if err := readLedger(t.Context(), dialAs(t, h, "vera")); status.Code(err) != codes.PermissionDenied {
		t.Errorf("the ledger by an auditor of one tenant: %v", err)
	}
}

// TestOperatorsAndAuditorsReadNoContents checks that values of environment variables are hidden from them, as from
// viewers without logs.
func TestOperatorsAndAuditorsReadNoContents(t *testing.T) {
	t.Parallel()
	h := serve(t, func(c *Config) { c.Tokens = testTokens(t) })
	h.control.add("digits-1", "vision", 1)
	h.control.change("digits-1", func(s *fakeSweep) {
		s.view.Spec.Workload = &outbidv1.SweepSpec_Program{Program: &outbidv1.Program{Env: map[string]string{"A": "b"}}}
	})
	for name, hidden := range map[string]bool{"root": false, "tess": false, "ann": false, "eve": false, "ned": true, "olga": true, "audi": true, "vera": true} {
		got, err := dialAs(t, h, name).GetSweep(t.Context(), &outbidv1.GetSweepRequest{Sweep: "digits-1"})
		if err != nil || (got.GetSweep().GetSpec().GetProgram().GetEnv()["A"] == hiddenValue) != hidden {
			t.Errorf("%s reads %v, %v", name, got.GetSweep().GetSpec().GetProgram(), err)
		}
	}
}

// TestAnOperatorNeedsEveryTenant checks that a role for nodes cannot be limited to a tenant.
func TestAnOperatorNeedsEveryTenant(t *testing.T) {
	t.Parallel()
	for tenant, want := range map[string]bool{"*": true, "vision": false} {
		if err := checkPrincipal(Principal{Name: "olga", Tenant: tenant, Role: RoleOperator}); (err == nil) != want {
			t.Errorf("%s: %v", tenant, err)
		}
	}
}
