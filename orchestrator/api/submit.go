package api

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/objects"
	"github.com/outbid-dev/outbid/orchestrator/spec"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// maxKey limits an idempotency key in bytes.
const maxKey = 200

// SubmitSweep implements the service.
func (s *sweepService) SubmitSweep(ctx context.Context, req *outbidv1.SubmitSweepRequest) (
	_ *outbidv1.SubmitSweepResponse, err error,
) {
	who := caller(ctx)
	checked, err := s.prepare(who, req.GetSpec())
	if err != nil {
		return nil, err
	}
	if err := s.secrets.checkSecrets(checked); err != nil {
		return nil, err
	}
	if why := s.control.Impossible(checked); why != "" && s.alone() {
		return nil, fieldError("resources", "%s; ask for what there is ('outbid nodes' lists it), or start the server with more "+
			"('outbid up --devices', or OUTBID_DEVICES)", why)
	}
	if err := s.throttle.submit(who, tenantOf(checked)); err != nil {
		return nil, err
	}
	if f := checked.GetFunction(); f != nil {
		s.blobs.protect(f.GetBlob(), who.Tenant)
		if err := s.checkBlob(ctx, f); err != nil {
			s.blobs.release(f.GetBlob(), who.Tenant)
			return nil, err
		}
	}
	drawSeed(checked.GetTuner(), rand.Uint32)
	key := req.GetIdempotencyKey()
	if len(key) > maxKey {
		return nil, fieldError("idempotency_key", "is %d bytes long; at most %d", len(key), maxKey)
	}
	if key != "" {
		// Another caller's use of the same key must not return this sweep.
		key = who.Name + "/" + key
	}
	ended := s.trace(ctx, checked)
	defer func() { ended(err) }()
	tenant := tenantOf(checked)
	if err := s.logs.Reserve(ctx, tenant, s.tenants.limitOf(tenant).LogBytes); err != nil {
		// Training is possible without logs.
		s.logger.WarnContext(ctx, "no room is left for the output of trials", "tenant", tenant, "err", err)
	}
	id, err := s.control.Submit(ctx, checked, who.Name, key)
	if err != nil {
		return nil, err
	}
	if f := checked.GetFunction(); f != nil {
		s.blobs.release(f.GetBlob(), who.Tenant)
	}
	sweep, err := s.control.Sweep(id)
	if err != nil {
		return nil, fmt.Errorf("show the sweep just submitted: %w", err)
	}
	return &outbidv1.SubmitSweepResponse{Sweep: sweep, Warnings: secretWarnings(checked)}, nil
}

// drawSeed gives a sweep without a seed a random one. The spec shows it so that the sweep can be repeated. It is short
// enough to type.
func drawSeed(t *outbidv1.Tuner, draw func() uint32) {
	if t.Seed == nil {
		t.Seed = new(uint64(draw()))
	}
}

// prepare returns a copy of the caller's spec, with defaults, after checking it.
func (s *sweepService) prepare(who Principal, sent *outbidv1.SweepSpec) (*outbidv1.SweepSpec, error) {
	if sent == nil {
		return nil, fieldError("spec", "is missing")
	}
	if err := spec.CheckSize(sent, s.maxSpec()); err != nil {
		return nil, err
	}
	own := proto.CloneOf(sent)
	if own.GetTenant() == "" && who.Tenant != AnyTenant {
		own.Tenant = who.Tenant
	}
	spec.Default(own)
	if err := spec.Check(own); err != nil {
		return nil, err
	}
	if !who.owns(own.GetTenant()) {
		return nil, otherTenantError{status.Errorf(codes.PermissionDenied, "tenant: %s belongs to tenant %q and may not use %q; leave it out",
			who.Name, who.Tenant, own.GetTenant())}
	}
	if err := checkWeight(s.tenants.limitOf(own.GetTenant()), who, own.GetTenant(), own.GetWeight()); err != nil {
		return nil, err
	}
	if len(own.GetTuner().GetPlugin().GetCommand()) > 0 && who.Role != RoleAdmin {
		// The program would run on this machine with the orchestrator's rights.
		return nil, status.Errorf(codes.PermissionDenied, "tuner.plugin: %s is a %s; a tuner plugin "+
			"requires an admin's token", who.Name, who.Role)
	}
	return own, nil
}

// checkBlob checks that the function of a sweep is in the store.
func (s *sweepService) checkBlob(ctx context.Context, f *outbidv1.Function) error {
	_, err := s.store.Stat(ctx, objects.BlobKey(f.GetBlob()))
	if errors.Is(err, objects.ErrNotFound) {
		return fieldError("function.blob", "there is no function %s on this server; send it with PutBlob first", f.GetBlob())
	}
	if err != nil {
		return fmt.Errorf("find the function of a sweep: %w", err)
	}
	return nil
}

// ExtendSweep implements the service. Control has the old spec, so it checks the new one.
func (s *sweepService) ExtendSweep(ctx context.Context, req *outbidv1.ExtendSweepRequest) (
	*outbidv1.ExtendSweepResponse, error,
) {
	if req.GetSweep() == "" {
		return nil, errNoSweep()
	}
	if req.Trials == nil && req.MaxSteps == nil && len(req.GetSpace()) == 0 && req.GetLimits() == nil && req.Weight == nil {
		return nil, status.Error(codes.InvalidArgument, "nothing to extend: give trials, max_steps, space, limits or weight")
	}
	sweep, err := s.control.Sweep(req.GetSweep())
	if err != nil {
		return nil, err
	}
	if err := s.mayWeigh(caller(ctx), sweep, req); err != nil {
		return nil, err
	}
	if err := s.throttle.submit(caller(ctx), tenantOf(sweep.GetSpec())); err != nil {
		return nil, err
	}
	again, err := s.control.Extend(ctx, req, caller(ctx).Name)
	if err != nil {
		return nil, err
	}
	if sweep, err = s.control.Sweep(req.GetSweep()); err != nil {
		return nil, err
	}
	return &outbidv1.ExtendSweepResponse{Sweep: sweep, TrainedAgain: again}, nil
}

// mayWeigh rejects an extension that raises a sweep's weight above its tenant's limit.
func (s *sweepService) mayWeigh(who Principal, sweep *outbidv1.Sweep, req *outbidv1.ExtendSweepRequest) error {
	if req.Weight == nil || req.GetWeight() <= sweep.GetSpec().GetWeight() {
		return nil
	}
	tenant := sweep.GetSpec().GetTenant()
	return checkWeight(s.tenants.limitOf(tenant), who, tenant, req.GetWeight())
}
