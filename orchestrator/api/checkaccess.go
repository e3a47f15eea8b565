package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// accessService has the call about what callers may do. It decides with the functions that the interceptor and the other
// parts use.
type accessService struct {
	control Control
	// tokens may be nil.
	tokens *Tokens
}

// object is what a question names besides a call: a sweep, a node or a tenant.
type object struct{ sweep, node, tenant string }

// CheckAccess implements the service.
func (s *accessService) CheckAccess(ctx context.Context, req *outbidv1.CheckAccessRequest) (*outbidv1.CheckAccessResponse, error) {
	who, err := s.subject(caller(ctx), req)
	if err != nil {
		return nil, err
	}
	about := s.object(req)
	methods, err := methodsOf(req.GetVerb(), cmp.Or(req.GetResource(), about.resource(req.GetVerb())))
	if err != nil {
		return nil, err
	}
	resp := &outbidv1.CheckAccessResponse{Allowed: true, Name: who.Name, Tenant: who.Tenant, Role: string(who.Role)}
	if who.scopes != 0 {
		resp.Scopes = strings.Split(who.scopes.String(), ", ")
	}
	for _, method := range methods {
		p := s.permission(who, method, about)
		resp.Allowed = resp.GetAllowed() && p.GetAllowed()
		resp.Permissions = append(resp.Permissions, p)
	}
	return resp, nil
}

// permission returns whether a caller may make a call about an object.
func (s *accessService) permission(who Principal, method string, about object) *outbidv1.Permission {
	r := ruleOf(method)
	p := &outbidv1.Permission{Call: path.Base(method), Verb: r.verb, Resource: r.resource, Permission: r.need.String()}
	err := permit(who, method)
	if err == nil && about.tenant != "" {
		err = permitTenant(who, r.need, about.tenant)
	}
	if err == nil && about.sweep != "" && hasField(method, "sweep") {
		err = permitSweep(s.control, who, about.sweep)
	}
	if err != nil {
		p.Reason = reasonOf(err)
		return p
	}
	p.Allowed, p.Reason = true, who.grant(r.need)
	return p
}

// reasonOf returns the message of an error.
func reasonOf(err error) string {
	if s, ok := status.FromError(err); ok {
		return s.Message()
	}
	return strings.TrimPrefix(err.Error(), state.ErrNotFound.Error()+": ")
}

// grant names what gives the caller a permission.
func (p Principal) grant(need access) string {
	switch {
	case need == open:
		return "every caller, because the call checks a token of its own"
	case need == anyRole:
		return "every role"
	case p.local:
		return "this server asks for no tokens"
	case p.scopes != 0:
		return fmt.Sprintf("the role %s and the scope %s", p.Role, need.scope())
	}
	return "the role " + string(p.Role)
}

func (s *accessService) isNode(name string) bool {
	return slices.ContainsFunc(s.control.Nodes(), func(n *outbidv1.Node) bool { return n.GetInfo().GetName() == name })
}

// object returns the object that a request names. Without a resource it is the sweep of that name, or else the node.
func (s *accessService) object(req *outbidv1.CheckAccessRequest) object {
	o := object{tenant: req.GetTenant()}
	isNode := req.GetResource() == "nodes"
	if req.GetResource() == "" {
		_, err := s.control.Sweep(req.GetName())
		isNode = errors.Is(err, state.ErrNotFound) && s.isNode(req.GetName())
	}
	switch {
	case req.GetName() == "":
	case isNode:
		o.node = req.GetName()
	default:
		o.sweep = req.GetName()
	}
	return o
}

// resource returns the resource that a verb without one means, or "" if the verb is a call or a command.
func (o object) resource(verb string) string {
	isVerb := false
	for _, r := range rules() {
		isVerb = isVerb || r.verb == verb
	}
	switch {
	case !isVerb:
		return ""
	case o.node != "":
		return "nodes"
	case o.sweep != "":
		return "sweeps"
	}
	return ""
}

// commandCalls returns the calls that commands with another name make.
func commandCalls() map[string]string {
	return map[string]string{
		"run": "SubmitSweep", "submit": "SubmitSweep", "preview": "PreviewSweep", "pause": "ControlSweep", "resume": "ControlSweep", "stop": "ControlSweep",
		"logs": "StreamLogs", "explain": "ExplainSweep", "cordon": "ControlNode", "uncordon": "ControlNode", "drain": "ControlNode",
		"usage": "GetUsage", "audit": "ListAudit", "replay": "ReadLedger",
	}
}

// methodsOf returns the full names of the calls that a verb means for a resource, in the order of their names. An empty
// verb means every call.
func methodsOf(verb, resource string) ([]string, error) {
	word := cmp.Or(commandCalls()[verb], verb)
	all := slices.SortedFunc(maps.Keys(rules()), func(a, b string) int { return strings.Compare(path.Base(a), path.Base(b)) })
	var found, resources []string
	for _, method := range all {
		r := ruleOf(method)
		if word != "" && r.verb != word && !strings.EqualFold(path.Base(method), word) {
			continue
		}
		if !slices.Contains(resources, r.resource) {
			resources = append(resources, r.resource)
		}
		if resource == "" || r.resource == resource {
			found = append(found, method)
		}
	}
	slices.Sort(resources)
	switch {
	case len(resources) == 0:
		return nil, fieldError("verb", "%q: must be a call such as DeleteSweep, or a verb: %s", verb, strings.Join(verbs(), ", "))
	case len(found) == 0:
		return nil, fieldError("resource", "%q: must be one of %s", resource, strings.Join(resources, ", "))
	case word != "" && resource == "" && len(resources) > 1:
		return nil, fieldError("resource", "is empty; %s may be about %s", verb, strings.Join(resources, ", "))
	}
	return found, nil
}

// verbs returns the verbs of every call, sorted.
func verbs() []string {
	known := map[string]bool{}
	for _, r := range rules() {
		known[r.verb] = true
	}
	return slices.Sorted(maps.Keys(known))
}

// hasField reports whether the request of a call has a field.
func hasField(method string, field protoreflect.Name) bool {
	for _, m := range serviceMethods() {
		if m.Name() == protoreflect.Name(path.Base(method)) {
			return m.Input().Fields().ByName(field) != nil
		}
	}
	return false
}

// serviceMethods returns the calls of the service.
func serviceMethods() (all []protoreflect.MethodDescriptor) {
	methods := outbidv1.File_outbid_v1_service_proto.Services().ByName("OutbidService").Methods()
	for i := range methods.Len() {
		all = append(all, methods.Get(i))
	}
	return all
}

// subject returns the subject of a question: the caller, a role, or the holder of a token.
func (s *accessService) subject(who Principal, req *outbidv1.CheckAccessRequest) (Principal, error) {
	as := req.GetAs()
	if as == "" {
		return who, nil
	}
	if !who.allows(readAudit) {
		return Principal{}, status.Errorf(codes.PermissionDenied, "as: only an admin or auditor may ask for others; the role of %s is %s", who.Name, who.Role)
	}
	isBound := who.Role != RoleAdmin && who.Tenant != AnyTenant
	role := Role(as)
	if checkRole(role) != nil {
		other, found := s.tokens.holder(as)
		if !found || isBound && other.Tenant != who.Tenant {
			return Principal{}, fieldError("as", "%q: must be a role or the name of a token", as)
		}
		return withMemberships(s.control, other), nil
	}
	tenant := cmp.Or(req.GetAsTenant(), req.GetTenant(), AnyTenant)
	if isBound {
		tenant = cmp.Or(req.GetAsTenant(), who.Tenant)
	}
	if isBound && tenant != who.Tenant {
		return Principal{}, otherTenantError{noTenant(tenant)}
	}
	if role.needsEveryTenant() {
		tenant = AnyTenant
	}
	return Principal{Name: "a caller", Tenant: tenant, Role: role}, nil
}

// Resources returns the names of the resources that calls are about, sorted.
func Resources() []string {
	known := map[string]bool{}
	for _, r := range rules() {
		known[r.resource] = true
	}
	return slices.Sorted(maps.Keys(known))
}
