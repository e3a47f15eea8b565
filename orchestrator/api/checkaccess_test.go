package api

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// TestCheckAccessPredictsEveryCall asks for every call, every role, one tenant or all of them, and a sweep of the caller,
// of another tenant or an unknown one. Then it makes the call and compares.
func TestCheckAccessPredictsEveryCall(t *testing.T) {
	t.Parallel()
	lines, principals := "", []string{}
	for _, role := range Roles() {
		for _, tenant := range []string{"vision", AnyTenant} {
			if role.needsEveryTenant() && tenant != AnyTenant {
				continue
			}
			name := fmt.Sprintf("%s-%d", role, len(principals))
			lines += fmt.Sprintf("%s %s %s %s\n", token(name), name, tenant, role)
			principals = append(principals, name)
		}
	}
	list, err := ParseTokens(strings.NewReader(lines), "tokens")
	if err != nil {
		t.Fatal(err)
	}
	h := serve(t, func(c *Config) { c.Tokens = list })
	h.control.add("digits-1", "vision", 1)
	h.control.add("words-1", "speech", 1)
	admin := h.dial(t, token(principals[1]))
	for _, name := range principals {
		own, conn := h.dial(t, token(name)), h.connect(t, token(name))
		for _, m := range serviceMethods() {
			for _, sweep := range []string{"", "digits-1", "words-1", "nothing-1"} {
				req := &outbidv1.CheckAccessRequest{Verb: string(m.Name()), Name: sweep}
				got, err := own.CheckAccess(t.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				isAllowed := mayCall(t, conn, m, sweep, !strings.HasPrefix(name, "admin") && got.GetTenant() != AnyTenant)
				if got.GetAllowed() != isAllowed {
					t.Errorf("%s %s of %q: check says %v, the call %v", name, m.Name(), sweep, got, isAllowed)
				}
				req.As = name
				other, err := admin.CheckAccess(t.Context(), req)
				if err != nil || !proto.Equal(got, other) {
					t.Errorf("%s %s of %q: an admin learns %v, %v; the caller %v", name, m.Name(), sweep, other, err, got)
				}
			}
		}
	}
}

// mayCall makes a call about a sweep with an otherwise empty request, and reports whether the caller may. For a caller of
// one tenant an unknown sweep is one of another tenant.
func mayCall(t *testing.T, conn *grpc.ClientConn, m protoreflect.MethodDescriptor, sweep string, isBound bool) bool {
	t.Helper()
	req := dynamicpb.NewMessage(m.Input())
	if field := m.Input().Fields().ByName("sweep"); field != nil {
		req.Set(field, protoreflect.ValueOfString(sweep))
	}
	err := callWith(t, conn, m, req)
	hidden := isBound && status.Code(err) == codes.NotFound && strings.Contains(err.Error(), fmt.Sprintf("there is no sweep %q", sweep))
	return !slices.Contains([]codes.Code{codes.PermissionDenied, codes.Unauthenticated}, status.Code(err)) && !hidden
}

func TestCheckAccessAnswers(t *testing.T) {
	t.Parallel()
	h := serve(t, func(c *Config) { c.Tokens = testTokens(t) })
	h.control.add("digits-1", "vision", 1)
	h.control.nodes = []*outbidv1.Node{{Info: &outbidv1.NodeInfo{Name: "gpu-7"}}}
	type question = outbidv1.CheckAccessRequest
	for _, tc := range []struct {
		who     string
		req     *question
		allowed bool
		calls   string
		reason  string
	}{
		{"ann", &question{Verb: "delete", Name: "digits-1"}, true, "DeleteSweep", "the role user"},
		{"bob", &question{Verb: "delete", Name: "digits-1"}, false, "DeleteSweep", `there is no sweep "digits-1"`},
		{"eve", &question{Verb: "delete", Name: "digits-1"}, false, "DeleteSweep", "needs the role admin, tenant-admin or user"},
		{"eve", &question{Verb: "logs", Name: "digits-1"}, true, "StreamLogs", "the role viewer"},
		{"eve", &question{Verb: "list", Resource: "trials", Name: "digits-1"}, true, "ListTrials ReadColumns", "the role viewer"},
		{"olga", &question{Verb: "drain", Name: "gpu-7"}, true, "ControlNode", "the role operator"},
		{"ann", &question{Verb: "drain", Resource: "nodes", Name: "gpu-7"}, false, "ControlNode", "needs the role admin or operator; the role of ann is user"},
		{"olga", &question{Verb: "delete", Name: "gpu-7"}, true, "RemoveWorker", "the role operator"},
		{"tess", &question{Verb: "update", Resource: "tenants", Tenant: "speech"}, false, "SetTenant", `there is no tenant "speech"`},
		{"tess", &question{Verb: "update", Resource: "tenants", Tenant: "vision"}, true, "SetTenant", "the role tenant-admin"},
		{"vera", &question{Verb: "replay"}, false, "ReadLedger", "the ledger has the events of every tenant"},
		{"prom", &question{Verb: "checkaccess"}, true, "CheckAccess", "every role"},
		{"audi", &question{Verb: "submit", As: "user"}, true, "SubmitSweep", "the role user"},
		{"audi", &question{Verb: "delete", Name: "digits-1", As: "bob"}, false, "DeleteSweep", "there is no sweep"},
		{"root", &question{Verb: "delete", Name: "digits-1", As: "user", AsTenant: "speech"}, false, "DeleteSweep", "there is no sweep"},
		{"vera", &question{Verb: "submit", As: "ann"}, true, "SubmitSweep", "the role user"},
	} {
		got, err := dialAs(t, h, tc.who).CheckAccess(t.Context(), tc.req)
		if err != nil {
			t.Errorf("%s: %v: %v", tc.who, tc.req, err)
			continue
		}
		var calls []string
		for _, p := range got.GetPermissions() {
			calls = append(calls, p.GetCall())
			if !strings.Contains(p.GetReason(), tc.reason) {
				t.Errorf("%s: %v: the reason is %q, want %q", tc.who, tc.req, p.GetReason(), tc.reason)
			}
		}
		if got.GetAllowed() != tc.allowed || strings.Join(calls, " ") != tc.calls {
			t.Errorf("%s: %v: %v", tc.who, tc.req, got)
		}
	}
}

func TestCheckAccessRefusals(t *testing.T) {
	t.Parallel()
	h := serve(t, func(c *Config) { c.Tokens = testTokens(t) })
	type question = outbidv1.CheckAccessRequest
	for _, tc := range []struct {
		who  string
		req  *question
		want codes.Code
		text string
	}{
		{"ann", &question{As: "admin"}, codes.PermissionDenied, "only an admin or auditor"},
		{"vera", &question{As: "bob"}, codes.InvalidArgument, "must be a role or the name of a token"},
		{"vera", &question{As: "user", AsTenant: "speech"}, codes.NotFound, "no tenant"},
		{"root", &question{As: "nobody"}, codes.InvalidArgument, "must be a role or the name of a token"},
		{"root", &question{Verb: "fly"}, codes.InvalidArgument, "must be a call such as DeleteSweep"},
		{"root", &question{Verb: "delete"}, codes.InvalidArgument, "may be about nodes, secrets, sweeps, tenants, tokens"},
		{"root", &question{Verb: "delete", Resource: "logs"}, codes.InvalidArgument, "must be one of nodes, secrets"},
	} {
		_, err := dialAs(t, h, tc.who).CheckAccess(t.Context(), tc.req)
		if status.Code(err) != tc.want || !strings.Contains(err.Error(), tc.text) {
			t.Errorf("%s: %v: %v", tc.who, tc.req, err)
		}
	}
}
