package tenants

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// limitsOf returns the limits of a tenant: its own settings, and the server's settings for the rest. Without server
// settings, as in simulation, the rest is unlimited.
func (tn *Tenants) limitsOf(tenant string) limits.Tenant {
	if tn.set.Limits != nil {
		return tn.set.Limits(tenant, tn.st.Tenant(tenant))
	}
	limit, err := limits.Over(limits.Boundless(), tn.st.Tenant(tenant).GetLimits())
	if err != nil {
		return limits.Boundless()
	}
	return limit
}

// checkLimits returns why a tenant may not have another sweep of a spec now, or nil if it may.
func (tn *Tenants) checkLimits(name string, s *outbidv1.SweepSpec, use state.TenantUse) error {
	if tn.set.Room != nil {
		if why := tn.set.Room(); why != "" {
			return &state.LimitError{Limit: "max_file_store", Text: "no room for another sweep: " + why, RetryAfter: roomAgain}
		}
	}
	limit := tn.limitsOf(name)
	over := func(most, used int64) bool { return most != limits.Unlimited && used > most }
	specs, checkpoints := tn.st.TenantBytes(name)
	switch size := int64(proto.Size(s)); {
	case over(limit.Sweeps, int64(use.Sweeps)+1):
		return &state.LimitError{
			Limit: "sweeps", Tenant: name, Text: fmt.Sprintf("tenant %s has %d sweeps that have not ended; the limit is %d", name, use.Sweeps, limit.Sweeps),
		}
	case over(limit.SpecBytes, specs+size):
		return &state.LimitError{Limit: "spec_bytes", Tenant: name, Text: fmt.Sprintf("the specs of tenant %s take %d bytes and this one "+
			"%d; the limit is %d; delete sweeps that are no longer needed", name, specs, size, limit.SpecBytes)}
	case over(limit.CheckpointBytes, checkpoints):
		return &state.LimitError{Limit: "checkpoint_bytes", Tenant: name, Text: fmt.Sprintf("the checkpoints of tenant %s take %d bytes; "+
			"the limit is %d; delete sweeps that are no longer needed", name, checkpoints, limit.CheckpointBytes)}
	}
	return nil
}

// roomAgain is when to retry a submission that was refused for lack of room.
const roomAgain = time.Minute

// ReportsFull returns that a sweep's reports exceed their limit, or "" if they do not.
func (tn *Tenants) ReportsFull(s *state.Sweep) string {
	if s.ReportBytes < limits.LeastReportBytes {
		return ""
	}
	limit := tn.limitsOf(state.TenantOf(s.Spec))
	if limit.ReportBytes == limits.Unlimited || s.ReportBytes <= limit.ReportBytes {
		return ""
	}
	return fmt.Sprintf("limit reached: its reports take %d bytes; the limit for a sweep is %d (report_bytes of tenant %s)",
		s.ReportBytes, limit.ReportBytes, state.TenantOf(s.Spec))
}
