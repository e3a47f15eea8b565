package control

import (
	"fmt"
	"math"
	"math/bits"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// limitsOf returns the limits of a tenant: its own settings, and the server's settings for the rest. Without server
// settings, as in simulation, the rest is unlimited.
func (c *Core) limitsOf(tenant string) limits.Tenant {
	if c.set.Limits != nil {
		return c.set.Limits(tenant, c.st.Tenant(tenant))
	}
	limit, err := limits.Over(limits.Boundless(), c.st.Tenant(tenant).GetLimits())
	if err != nil {
		return limits.Boundless()
	}
	return limit
}

// checkLimits returns why a tenant may not have another sweep of a spec now, or nil if it may.
func (c *Core) checkLimits(name string, s *outbidv1.SweepSpec, use state.TenantUse) error {
	if c.set.Room != nil {
		if why := c.set.Room(); why != "" {
			return &state.LimitError{Limit: "max_file_store", Text: "no room for another sweep: " + why, RetryAfter: roomAgain}
		}
	}
	limit := c.limitsOf(name)
	over := func(most, used int64) bool { return most != limits.Unlimited && used > most }
	specs, checkpoints := c.st.TenantBytes(name)
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

// reportsFull returns that a sweep's reports exceed their limit, or "" if they do not.
func (c *Core) reportsFull(s *state.Sweep) string {
	if s.ReportBytes < limits.LeastReportBytes {
		return ""
	}
	limit := c.limitsOf(state.TenantOf(s.Spec))
	if limit.ReportBytes == limits.Unlimited || s.ReportBytes <= limit.ReportBytes {
		return ""
	}
	return fmt.Sprintf("limit reached: its reports take %d bytes; the limit for a sweep is %d (report_bytes of tenant %s)",
		s.ReportBytes, limit.ReportBytes, state.TenantOf(s.Spec))
}

// reportMeter measures a tenant's reports against its rate. It is not part of the state: it decides how fast workers
// and clients may report, but not the effect of reports.
type reportMeter struct {
	// rate is the limit in bytes per second, or 0 for none. left is how many bytes could be reported at once at the
	// time at.
	rate, left float64
	at         time.Time
	// looked is when the limit was looked up.
	looked time.Time
	// minute is the number of bytes reported in the last minute, as an exponential moving average.
	minute float64
}

// burstSeconds is how many seconds' worth of its rate a tenant may report at once.
const burstSeconds = 1000

// meterOf updates and returns a tenant's meter. It looks up the limit at most once a second, because reports are
// frequent.
func (c *Core) meterOf(tenant string) *reportMeter {
	m := c.meters[tenant]
	if m == nil {
		m = &reportMeter{at: c.now, left: math.Inf(1)}
		c.meters[tenant] = m
	}
	passed := c.now.Sub(m.at).Seconds()
	if passed <= 0 && !m.looked.IsZero() {
		return m
	}
	if c.now.Sub(m.looked) >= time.Second {
		m.rate, m.looked = float64(max(0, c.limitsOf(tenant).ReportRate)), c.now
	}
	m.left, m.at = min(m.left+passed*m.rate, m.rate*burstSeconds), c.now
	m.minute *= math.Exp(-passed / time.Minute.Seconds())
	return m
}

// rates returns the bytes per second that tenants reported in the last minute.
func (c *Core) rates() map[string]float64 {
	all := make(map[string]float64, len(c.meters))
	for tenant := range c.meters {
		all[tenant] = c.meterOf(tenant).minute / time.Minute.Seconds()
	}
	return all
}

// countReport counts a report against its tenant's rate.
func (c *Core) countReport(s *state.Sweep, r *outbidv1.Report) {
	m, size := c.meterOf(state.TenantOf(s.Spec)), float64(state.ReportSize(r))
	m.left, m.minute = m.left-size, m.minute+size
}

// tooFast returns an error with the time to wait if a tenant's clients must not report now, or nil.
func (c *Core) tooFast(tenant string) error {
	m := c.meterOf(tenant)
	if m.rate == 0 || m.left >= 0 {
		return nil
	}
	wait := max(time.Duration(-m.left/m.rate*float64(time.Second)).Round(time.Millisecond), time.Millisecond)
	return &state.LimitError{
		Limit: "report_rate", Tenant: tenant, RetryAfter: wait,
		Text: fmt.Sprintf("tenant %s reports faster than its limit of %.0f bytes a second; try again in %s", tenant, m.rate, wait),
	}
}

const (
	// leastShare is the minimum rate of a trial's reports in bytes per second.
	leastShare = 1 << 10
	// spendIn is in how many seconds the remainder of a burst may be spent.
	spendIn = 10
)

// reportShare returns how fast a trial may report in bytes per second: its share of its tenant's rate, rounded down
// to a power of two so that it seldom changes. It returns 0 for no limit while the tenant has used less than half of
// its burst.
func (c *Core) reportShare(s *state.Sweep) int64 {
	tenant := state.TenantOf(s.Spec)
	m := c.meterOf(tenant)
	if m.rate == 0 || m.left >= m.rate*burstSeconds/2 {
		return 0
	}
	running := 0
	for _, o := range c.st.Live {
		if state.TenantOf(o.Spec) == tenant {
			running += len(o.Running)
		}
	}
	share := int64((m.rate + max(0, m.left)/spendIn) / float64(max(1, running)))
	return max(leastShare, int64(1)<<(bits.Len64(uint64(share))-1))
}

// samplersOf returns how many tuner processes of a tenant may run at the same time.
func (l *Loop) samplersOf(tenant string) int64 {
	if l.cfg.Settings.Limits == nil {
		return limits.Unlimited
	}
	v := l.view.Load()
	if v == nil {
		return limits.Default().Samplers
	}
	return l.cfg.Settings.Limits(tenant, v.Tenant(tenant)).Samplers
}
