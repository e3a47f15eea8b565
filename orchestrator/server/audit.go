package server

import (
	"context"
	"strconv"

	"github.com/outbid-dev/outbid/orchestrator/api"
	"github.com/outbid-dev/outbid/orchestrator/audit"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// recorder adds changes to the audit that no call caused.
type recorder struct {
	log *audit.Log
	// tokens is the path of the tokens file.
	tokens string
}

// openAudit opens the audit and records that this server leads. The record of its stop is the last one.
func (s *Server) openAudit(ctx context.Context) error {
	log, err := audit.Open(s.nc, audit.Config{Replicas: s.cfg.NATS.Replicas, Now: s.cfg.Now, File: s.cfg.AuditLog, Logger: s.log})
	if err != nil {
		return err
	}
	records := recorder{log, s.cfg.Tokens}
	s.onClose(func() error {
		records.change("stop", &audit.ObjectRef{Resource: "servers", Name: s.cfg.Name}, nil)
		if err := log.Close(); err != nil {
			s.log.Warn("the audit is incomplete", "err", err)
		}
		return nil
	})
	s.audit = log
	if err := log.Register(s.registry); err != nil {
		return err
	}
	records.change("start", &audit.ObjectRef{Resource: "servers", Name: s.cfg.Name}, map[string]string{
		"outbid.dev/version": s.cfg.Version, "outbid.dev/term": strconv.FormatUint(s.lead.Term(), 10),
	})
	s.reloaded = func(kind string) { records.change("reload", &audit.ObjectRef{Resource: kind}, nil) }
	if s.tokens != nil {
		s.tokens.OnChange(records.edits)
	}
	return ctx.Err()
}

// change adds a change of an object.
func (r recorder) change(verb string, object *audit.ObjectRef, notes map[string]string) {
	r.log.Record(context.Background(), audit.Event{
		Verb: verb, User: audit.User{Username: audit.Server}, ObjectRef: object, ResponseStatus: audit.Status{Code: 200, Reason: "OK"}, Annotations: notes,
	})
}

// edits adds an edit of the tokens file: names, tenants and roles, but no tokens.
func (r recorder) edits(changes []api.TokenChange) {
	for _, c := range changes {
		verb, who := "update", c.After
		switch {
		case c.Before.Name == "":
			verb = "create"
		case c.After.Name == "":
			verb, who = "delete", c.Before
		}
		r.change(verb, &audit.ObjectRef{Resource: "tokens", Namespace: who.Tenant, Name: who.Name}, map[string]string{
			audit.AnnotationRole: string(who.Role), "outbid.dev/file": r.tokens,
		})
	}
}

// checkAudit reports whether the audit is stored.
func (s *Server) checkAudit() *outbidv1.Check {
	check := &outbidv1.Check{Name: "audit", Ok: true, Detail: "all records are stored"}
	if err := s.audit.Check(); err != nil {
		check.Ok, check.Detail = false, err.Error()
		check.Fix = "free space for NATS, or for the file of --audit-log; the server then continues by itself"
	}
	return check
}
