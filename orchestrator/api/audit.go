package api

import (
	"context"
	"errors"
	"net"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/outbid-dev/outbid/orchestrator/audit"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Audit records calls.
type Audit interface {
	// Record adds an event. It waits until the event is stored, but not for long.
	Record(ctx context.Context, e audit.Event)
	// Read calls f with stored lines, oldest first, until f returns false. It returns the sequence of the last record that
	// it read, and whether records may follow.
	Read(ctx context.Context, q audit.Query, f func(line []byte) bool) (last uint64, left bool, err error)
}

// otherTenantError is the error for an object of another tenant. The caller sees the error for an object that does not
// exist; the audit records a denial.
type otherTenantError struct{ error }

// Unwrap returns the error that the caller sees.
func (e otherTenantError) Unwrap() error { return e.error }

// audited is what the audit records of a call. The interceptor fills it while the call runs.
type audited struct {
	method string
	began  time.Time
	// request is the first request, or nil if the call was denied before. answer is the answer of an allowed unary call.
	request, answer any
}

type auditedKey struct{}

// withAudited stores a in the context.
func withAudited(ctx context.Context, a *audited) context.Context {
	return context.WithValue(ctx, auditedKey{}, a)
}

// sees records the first request of the call.
func (a *audited) sees(request any) {
	if a.request == nil {
		a.request = request
	}
}

func auditedOf(ctx context.Context) *audited {
	if a, ok := ctx.Value(auditedKey{}).(*audited); ok {
		return a
	}
	return &audited{}
}

// record adds a finished call to the audit if it is a denial, or if its method is recorded. err is the handler's error,
// shown what the caller sees.
func (i *interceptor) record(ctx context.Context, err, shown error) {
	if i.audit == nil {
		return
	}
	a, who := auditedOf(ctx), caller(ctx)
	r := ruleOf(a.method)
	denied := denial(r, err, shown)
	if denied == "" && !r.isRecorded() && r.need != readContent {
		return
	}
	object := i.objectOf(who, r, a)
	if denied == "" && r.need == readContent && !who.isForeign(object.Namespace) {
		return
	}
	e := event(who, denied, shown)
	e.Verb, e.ObjectRef = verbOf(r, a.request), object
	e.RequestReceivedTimestamp, e.RequestURI = a.began, a.method
	e.SourceIPs, e.UserAgent = origin(ctx)
	e.Annotations[audit.AnnotationMethod] = path.Base(a.method)
	if about, ok := a.request.(interface{ GetRole() string }); ok {
		e.Annotations[audit.AnnotationRole] = about.GetRole()
	}
	i.audit.Record(context.WithoutCancel(ctx), e)
}

// isForeign reports whether a caller of every tenant, other than the user of a server without tokens, uses a tenant's
// object.
func (p Principal) isForeign(tenant string) bool {
	return tenant != "" && tenant != p.Tenant && (p.Role == RoleAdmin || p.Tenant == AnyTenant) && !p.local
}

// denial returns why a call was denied, or "" if it was not.
func denial(r rule, err, shown error) string {
	if _, hidden := errors.AsType[otherTenantError](err); hidden {
		return audit.DeniedTenant
	}
	switch status.Code(shown) {
	case codes.Unauthenticated:
		return audit.DeniedUnauthenticated
	case codes.PermissionDenied:
		if r.need == open { // the request's own token is not valid
			return audit.DeniedUnauthenticated
		}
		return audit.DeniedRole
	case codes.ResourceExhausted:
		return audit.DeniedLimit
	}
	return ""
}

// event returns the event of a call with a result.
func event(who Principal, denied string, shown error) audit.Event {
	st := status.Convert(shown)
	e := audit.Event{
		User: audit.User{Username: who.Name},
		ResponseStatus: audit.Status{
			Code: runtime.HTTPStatusFromCode(st.Code()), Reason: code.Code(st.Code()).String(), Message: st.Message(),
		},
		Annotations: map[string]string{},
	}
	if who.Name == "" {
		e.User.Username = audit.Anonymous
	} else {
		e.User.Groups = []string{"role:" + string(who.Role), "tenant:" + who.Tenant}
	}
	if denied != "" {
		e.Annotations[audit.AnnotationDenied] = denied
	}
	return e
}

// verbOf returns the verb of a call: that of its command, such as pause or cordon, or that of its method.
func verbOf(r rule, request any) string {
	switch req := request.(type) {
	case *outbidv1.ControlSweepRequest:
		return lastWord(req.GetCommand().String())
	case *outbidv1.ControlTrialRequest:
		return lastWord(req.GetCommand().String())
	case *outbidv1.ControlNodeRequest:
		return lastWord(req.GetCommand().String())
	}
	return r.verb
}

// lastWord returns the last word of an enum's name in lower case.
func lastWord(name string) string {
	return strings.ToLower(name[strings.LastIndexByte(name, '_')+1:])
}

// objectOf returns the object of a call. Its namespace is the tenant of the sweep, or the tenant that the request
// names, or else the caller's tenant.
func (i *interceptor) objectOf(who Principal, r rule, a *audited) *audit.ObjectRef {
	o := &audit.ObjectRef{Resource: r.resource}
	switch req := a.request.(type) {
	case *outbidv1.SubmitSweepRequest:
		o.Namespace, o.Name = orOwn(who, req.GetSpec().GetTenant()), req.GetSpec().GetName()
		if resp, ok := a.answer.(*outbidv1.SubmitSweepResponse); ok {
			o.Namespace, o.Name = tenantOf(resp.GetSweep().GetSpec()), resp.GetSweep().GetId()
		}
	case *outbidv1.SetTenantRequest:
		o.Namespace, o.Name = req.GetTenant().GetName(), req.GetTenant().GetName()
	case *outbidv1.JoinWorkerRequest:
		o.Name = req.GetNode()
		if resp, ok := a.answer.(*outbidv1.JoinWorkerResponse); ok {
			o.Name = resp.GetNode()
		}
	case interface{ GetSweep() string }:
		o.Name = req.GetSweep()
		if trial, ok := a.request.(interface{ GetTrial() int32 }); ok {
			o.Name += "/" + strconv.Itoa(int(trial.GetTrial()))
		}
		if sweep, err := i.control.Sweep(req.GetSweep()); err == nil {
			o.Namespace = tenantOf(sweep.GetSpec())
		}
	case interface{ GetNode() string }:
		o.Name = req.GetNode()
	case interface{ GetTenant() string }:
		o.Namespace, o.Name = orOwn(who, req.GetTenant()), req.GetTenant()
		if named, ok := a.request.(interface{ GetName() string }); ok {
			o.Name = named.GetName()
		}
	}
	return o
}

// orOwn returns a tenant, or the caller's if it is "". That is the default of requests.
func orOwn(who Principal, tenant string) string {
	if tenant == "" && who.Tenant != AnyTenant {
		return who.Tenant
	}
	return tenant
}

// agentHeader is the metadata key through which REST passes the User-Agent of its client.
const agentHeader = "outbid-user-agent"

func userAgent(_ context.Context, r *http.Request) metadata.MD {
	return metadata.Pairs(agentHeader, r.UserAgent())
}

// origin returns the address and the user agent of a call's client. A REST call comes from this process; the gateway
// appends its client's address to a header, which callers of gRPC could forge.
func origin(ctx context.Context) (addresses []string, agent string) {
	md, _ := metadata.FromIncomingContext(ctx)
	from, ok := peer.FromContext(ctx)
	if !ok {
		return nil, ""
	}
	if from.Addr.Network() != "bufconn" {
		return hostOf(from.Addr.String()), first(md.Get("user-agent"))
	}
	forwarded := strings.Split(first(md.Get("x-forwarded-for")), ",")
	return hostOf(strings.TrimSpace(forwarded[len(forwarded)-1])), first(md.Get(agentHeader))
}

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// hostOf returns a list with the host of an address, or with the address if it has no port.
func hostOf(addr string) []string {
	if host, _, err := net.SplitHostPort(addr); err == nil {
		addr = host
	}
	if addr == "" {
		return nil
	}
	return []string{addr}
}

// recordHTTP adds a request to the audit that does not reach gRPC: a rejected one, or a sign-in.
func (i *interceptor) recordHTTP(r *http.Request, who Principal, verb, resource, denied string, result error) {
	if i.audit == nil {
		return
	}
	if rule, ok := rules()[r.URL.Path]; ok { // gRPC
		verb, resource = rule.verb, rule.resource
	}
	e := event(who, denied, result)
	e.Verb, e.ObjectRef, e.RequestURI = verb, &audit.ObjectRef{Resource: resource}, r.URL.Path
	e.SourceIPs, e.UserAgent = hostOf(r.RemoteAddr), r.UserAgent()
	i.audit.Record(context.WithoutCancel(r.Context()), e)
}

// recordSignIn adds the sign-in of a browser to the audit, or its denial.
func (i *interceptor) recordSignIn(r *http.Request, who Principal, denied error) {
	if denied != nil {
		i.recordHTTP(r, Principal{}, "create", "sessions", audit.DeniedUnauthenticated, denied)
		return
	}
	i.recordHTTP(r, who, "create", "sessions", "", nil)
}
