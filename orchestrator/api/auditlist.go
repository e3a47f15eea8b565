package api

import (
	"context"
	"encoding/json"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/outbid-dev/outbid/orchestrator/audit"
	"github.com/outbid-dev/outbid/orchestrator/limits"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

const (
	// auditPage is the default number of records on a page.
	auditPage = 100
	// auditScan is how many records a call reads at most to find those that match.
	auditScan = 20_000
)

// auditService has the calls about the audit. Its field is nil if the server does not have one.
type auditService struct{ audit Audit }

// ListAudit implements the service.
func (s *auditService) ListAudit(ctx context.Context, req *outbidv1.ListAuditRequest) (*outbidv1.ListAuditResponse, error) {
	size := int(req.GetPageSize())
	switch {
	case size == 0:
		size = auditPage
	case size < 0 || size > limits.AuditPage:
		return nil, fieldError("page_size", "must be between 1 and %d, got %d", limits.AuditPage, size)
	}
	if s.audit == nil {
		return nil, status.Error(codes.Unimplemented, "this server does not have an audit")
	}
	query := audit.Query{After: req.GetAfterSeq(), Scan: auditScan}
	if req.GetSince() != nil {
		query.Since = req.GetSince().AsTime()
	}
	who := caller(ctx)
	bound := who.Role != RoleAdmin && who.Tenant != AnyTenant
	if bound && req.GetTenant() == "" {
		req.Tenant = who.Tenant
	}
	if err := permitTenant(who, readAudit, req.GetTenant()); err != nil {
		return nil, err
	}
	if bound && req.GetLines() {
		return nil, status.Error(codes.PermissionDenied, "lines: the hashes cover the records of every tenant, which needs an auditor of the tenant *")
	}
	resp, bytes := &outbidv1.ListAuditResponse{}, 0
	var problem error
	last, more, err := s.audit.Read(ctx, query, func(line []byte) bool {
		found, err := auditRecord(req, line)
		if err != nil || found == nil {
			problem = err
			return err == nil
		}
		resp.Records = append(resp.Records, found)
		bytes += 3 * len(line)
		return len(resp.GetRecords()) < size && bytes < maxAnswer
	})
	if err == nil {
		err = problem
	}
	if err != nil {
		return nil, err
	}
	resp.LastSeq, resp.More = last, more
	return resp, nil
}

// auditRecord returns the record of a line, or nil if the request does not select it. A damaged line is returned without
// an event to requests for lines, which verify it.
func auditRecord(req *outbidv1.ListAuditRequest, line []byte) (*outbidv1.AuditRecord, error) {
	r, err := audit.Parse(line)
	found := &outbidv1.AuditRecord{Seq: r.Seq}
	if req.GetLines() {
		found.Line = string(line)
	}
	if err != nil {
		if !req.GetLines() {
			return nil, nil //nolint:nilnil // documented
		}
		return found, nil
	}
	if req.GetActor() != "" && r.User.Username != req.GetActor() || req.GetTenant() != "" && r.Tenant() != req.GetTenant() ||
		req.GetDenied() && r.Denied() == "" {
		return nil, nil //nolint:nilnil // documented
	}
	data, err := json.Marshal(r.Event)
	if err != nil {
		return nil, err
	}
	found.Event = &structpb.Struct{}
	return found, found.Event.UnmarshalJSON(data)
}
