package api

import (
	"context"

	"github.com/outbid-dev/outbid/orchestrator/limits"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// showLimits adds a tenant's limits, with its use of each.
func (s *tenantService) showLimits(ctx context.Context, t *outbidv1.TenantState) error {
	name, use := t.GetTenant().GetName(), t.GetUse()
	streams, submits := s.throttle.use(name)
	use.Streams, use.Submits = int32(streams), int32(submits)
	functions, _, err := s.blobs.usage(ctx, name)
	if err != nil {
		return err
	}
	used := map[string]float64{
		"sweeps": float64(use.GetSweeps()), "submits_per_minute": float64(submits), "spec_bytes": float64(use.GetSpecBytes()),
		"report_rate": use.GetReportRate(), "report_bytes": float64(use.GetReportBytes()), "streams": float64(streams),
		"samplers": float64(use.GetSamplers()), "checkpoint_bytes": float64(use.GetCheckpointBytes()), "blob_bytes": float64(functions),
	}
	limit := s.limitOf(name)
	for _, f := range limits.Fields() {
		l := &outbidv1.TenantLimit{Name: f.Name, Limit: float64(*f.At(&limit)), Unit: string(f.Unit), Help: f.Help, Reached: f.Reached}
		if n, counted := used[f.Name]; counted {
			l.Used = &n
		}
		t.Limits = append(t.Limits, l)
	}
	t.Limits = append(t.Limits, &outbidv1.TenantLimit{
		Name: "max_weight", Limit: limit.MaxWeight, Help: "the largest weight of a sweep", Reached: "a sweep with more is refused",
	})
	return nil
}
