package api

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"runtime/debug"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// interceptor handles every gRPC and REST call: it authenticates the caller, checks permissions, recovers from panics,
// converts errors to statuses, logs and counts.
type interceptor struct {
	control Control
	tokens  *Tokens
	// audit records calls; it may be nil.
	audit Audit
	// signIn is nil without an identity provider.
	signIn *SignIn
	// sessions are the sessions of browsers.
	sessions *sessions
	logger   *slog.Logger
	// throttle limits the streams and the changes of each tenant.
	throttle *throttle
	// stopping is cancelled when the server stops, which ends all streams.
	stopping context.Context //nolint:containedctx // it lives as long as the server, not a call
	// away returns why the server cannot answer now, or ""; it may be nil.
	away    func() string
	calls   *prometheus.CounterVec
	seconds *prometheus.HistogramVec
}

type principalKey struct{}

// caller returns the caller that the interceptor stored in the context.
func caller(ctx context.Context) Principal {
	who, _ := ctx.Value(principalKey{}).(Principal)
	return who
}

// unary intercepts calls with one answer.
func (i *interceptor) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (
	resp any, err error,
) {
	call := &audited{method: info.FullMethod, began: time.Now(), request: req}
	ctx = withAudited(ctx, call)
	defer func() { err = i.leave(ctx, info.FullMethod, call.began, recover(), err) }()
	ctx, err = i.enter(ctx, info.FullMethod)
	if err != nil {
		return nil, err
	}
	if err := checkText(req); err != nil {
		return nil, err
	}
	if err := i.scope(ctx, req); err != nil {
		return nil, err
	}
	if err := i.throttle.change(caller(ctx), ruleOf(info.FullMethod)); err != nil {
		return nil, err
	}
	resp, err = handle(ctx, req)
	if err == nil {
		call.answer = resp
	}
	if m, ok := resp.(proto.Message); ok && err == nil && caller(ctx).hidesEnv() {
		return hideEnv(m), nil
	}
	return resp, err
}

// stream intercepts streams. Their contexts end when the server stops.
func (i *interceptor) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) (
	err error,
) {
	ctx, cancel := context.WithCancelCause(ss.Context())
	defer cancel(nil)
	defer context.AfterFunc(i.stopping, func() { cancel(errStopping) })()
	call := &audited{method: info.FullMethod, began: time.Now()}
	ctx = withAudited(ctx, call)
	defer func() {
		if err != nil && errors.Is(context.Cause(ctx), errStopping) {
			err = errStopping
		}
		err = i.leave(ctx, info.FullMethod, call.began, recover(), err)
	}()
	ctx, err = i.enter(ctx, info.FullMethod)
	if err != nil {
		return err
	}
	if err := i.throttle.change(caller(ctx), ruleOf(info.FullMethod)); err != nil {
		return err
	}
	done, err := i.throttle.stream(ctx)
	if err != nil {
		return err
	}
	defer done()
	return handle(srv, &interceptedStream{ServerStream: ss, ctx: ctx, through: i})
}

// errStopping ends streams when the server stops.
var errStopping = status.Error(codes.Unavailable, state.ErrStopping.Error())

// interceptedStream is a stream whose requests are checked and limited to the caller's tenant.
type interceptedStream struct {
	grpc.ServerStream
	ctx     context.Context //nolint:containedctx // grpc.ServerStream requires it
	through *interceptor
}

// Context implements grpc.ServerStream.
func (s *interceptedStream) Context() context.Context { return s.ctx }

// SendMsg implements grpc.ServerStream.
func (s *interceptedStream) SendMsg(m any) error {
	if caller(s.ctx).hidesEnv() {
		var err error
		if m, err = hideEnvSent(m); err != nil {
			return err
		}
	}
	return s.ServerStream.SendMsg(m)
}

// RecvMsg implements grpc.ServerStream.
func (s *interceptedStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	auditedOf(s.ctx).sees(m)
	if err := checkText(m); err != nil {
		return err
	}
	return s.through.scope(s.ctx, m)
}

// enter authenticates the caller and checks that their role allows the method.
func (i *interceptor) enter(ctx context.Context, method string) (context.Context, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	need := ruleOf(method).need
	var who Principal
	if need != open {
		var err error
		if who, err = i.authenticate(ctx, md.Get("authorization")); err != nil {
			return ctx, err
		}
		who = withMemberships(i.control, who)
	}
	ctx = context.WithValue(ctx, principalKey{}, who)
	if err := checkParameters(md, method); err != nil {
		return ctx, err
	}
	if err := permit(who, method); err != nil {
		return ctx, err
	}
	if why := i.waits(); why != "" && need != open && path.Base(method) != "GetServerInfo" {
		return ctx, status.Error(codes.Unavailable, why)
	}
	return ctx, nil
}

// waits returns why the server cannot answer now, or "".
func (i *interceptor) waits() string {
	if i.away == nil {
		return ""
	}
	return i.away()
}

// permit returns an error unless the caller's role, scopes and tenant allow a method. It names what the method needs.
func permit(who Principal, fullName string) error {
	need, method := ruleOf(fullName).need, path.Base(fullName)
	if who.allows(need) {
		return permitTenant(who, need, "")
	}
	if who.Role.allows(need) {
		return status.Errorf(codes.PermissionDenied, "%s needs the scope %s; the token of %s has only %s", method, need.scope(), who.Name, who.scopes)
	}
	return status.Errorf(codes.PermissionDenied, "%s needs %s; the role of %s is %s", method, rolesWith(need), who.Name, who.Role)
}

// authenticate returns the caller that an Authorization header identifies.
func (i *interceptor) authenticate(ctx context.Context, header []string) (Principal, error) {
	if i.tokens == nil {
		return localPrincipal(), nil
	}
	if len(header) == 0 {
		return Principal{}, status.Error(codes.Unauthenticated,
			`a token is needed: send the header "Authorization: Bearer TOKEN"`)
	}
	kind, token, _ := strings.Cut(header[0], " ")
	if strings.EqualFold(kind, sessionScheme) {
		if strings.HasPrefix(token, signInPrefix) {
			return i.signIn.browser(token, time.Now())
		}
		return i.tokens.sessionHolder(token, time.Now())
	}
	if !strings.EqualFold(kind, "bearer") {
		return Principal{}, status.Error(codes.Unauthenticated, `the Authorization header must be "Bearer TOKEN"`)
	}
	return i.bearer(ctx, strings.TrimSpace(token))
}

// scope rejects requests about another tenant's sweep as if that sweep did not exist.
func (i *interceptor) scope(ctx context.Context, req any) error {
	who := caller(ctx)
	named, ok := req.(interface{ GetSweep() string })
	if !ok || named.GetSweep() == "" {
		return nil // the handler returns an error that names the field
	}
	return permitSweep(i.control, who, named.GetSweep())
}

// permitSweep returns an error if a sweep belongs to another tenant, as if it did not exist.
func permitSweep(control Control, who Principal, id string) error {
	if who.Role == RoleAdmin || who.Tenant == AnyTenant {
		return nil
	}
	sweep, err := control.Sweep(id)
	if gone, ok := errors.AsType[*state.DeletedError](err); ok && who.owns(gone.Tenant) {
		return nil // the handler reports that the sweep was deleted
	} else if ok {
		return otherTenantError{fmt.Errorf("%w: there is no sweep %q", state.ErrNotFound, id)}
	}
	if err != nil {
		return err
	}
	if !who.owns(tenantOf(sweep.GetSpec())) {
		return otherTenantError{fmt.Errorf("%w: there is no sweep %q", state.ErrNotFound, id)}
	}
	return nil
}

// permitTenant returns an error if the caller may not use a permission for a tenant, as if it did not exist. An empty
// tenant means the caller's tenant.
func permitTenant(who Principal, need access, tenant string) error {
	switch need {
	case readEvents:
		if who.Role != RoleAdmin && who.Tenant != AnyTenant {
			return status.Errorf(codes.PermissionDenied, "the ledger has the events of every tenant; %s may read only those of %s", who.Name, who.Tenant)
		}
	case manageTenant, manageTokens:
		if tenant != "" && !who.administers(tenant) {
			return otherTenantError{noTenant(tenant)}
		}
	case read, readContent, readAudit, write:
		if tenant != "" && !who.owns(tenant) {
			return otherTenantError{noTenant(tenant)}
		}
	}
	return nil
}

// tenantOf returns the tenant that owns a sweep.
func tenantOf(spec *outbidv1.SweepSpec) string {
	if spec.GetTenant() == "" {
		return "default"
	}
	return spec.GetTenant()
}

// leave converts a call's result for the caller, and logs and counts it.
func (i *interceptor) leave(ctx context.Context, method string, began time.Time, panicked any, err error) error {
	name, id := path.Base(method), rand.Text()[:10]
	shown := err
	switch {
	case panicked != nil:
		i.logger.ErrorContext(ctx, "api call panicked", "method", name, "id", id, "panic", panicked,
			"stack", string(debug.Stack()))
		shown = internalError(id)
	case err != nil:
		var level slog.Level
		level, shown = i.publicError(ctx, err, id)
		i.logger.Log(ctx, level, "api call failed", "method", name, "id", id, "actor", caller(ctx).Name, "err", err)
	}
	i.record(ctx, err, shown)
	setRetryTrailer(ctx, shown)
	took := time.Since(began)
	i.calls.WithLabelValues(name, status.Code(shown).String()).Inc()
	i.seconds.WithLabelValues(name).Observe(took.Seconds())
	i.logger.DebugContext(ctx, "api call", "method", name, "code", status.Code(shown).String(), "took", took)
	return shown
}
