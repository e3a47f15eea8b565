package server

import (
	"github.com/outbid-dev/outbid/orchestrator/api"
	"github.com/outbid-dev/outbid/orchestrator/audit"
	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/retention"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// newRetention returns the keeper of ended sweeps, which records each deletion in the audit.
func newRetention(s *Server) *retention.Keeper {
	records := recorder{log: s.audit}
	return retention.New(retention.Config{
		Sweeps: s.loop, Now: s.loop.Now, Logger: s.log,
		Limits: func(tenant string) limits.Tenant { return api.LimitOf(s.loop, s.limits, tenant) },
		Deleted: func(e *outbidv1.Expired, actor string) {
			records.change("delete", &audit.ObjectRef{Resource: "sweeps", Namespace: e.GetTenant(), Name: e.GetSweep()}, map[string]string{
				"outbid.dev/retain": e.GetRetain(), "outbid.dev/actor": actor,
			})
		},
	})
}
